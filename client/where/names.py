"""`col`: a column's name that makes a condition when it is compared with a constant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from parley.client.where.expressions import (
    Constant,
    Expression,
    Leaf,
    WhereError,
    among,
    constant_of,
    limited,
    shown_name,
)


class ColumnName:
    """A column: `col.age`, `col["length of stay"]`; compared with a constant it is a condition."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def _compared(self, sign: str, value: object) -> Expression:
        return Leaf(self._name, sign, (constant_of(value, place=f"after {self!r} {sign}"),))

    def __lt__(self, value: object) -> Expression:
        return self._compared("<", value)

    def __le__(self, value: object) -> Expression:
        return self._compared("<=", value)

    def __gt__(self, value: object) -> Expression:
        return self._compared(">", value)

    def __ge__(self, value: object) -> Expression:
        return self._compared(">=", value)

    def __eq__(self, value: object) -> Expression:  # type: ignore[override] # a condition, as polars
        return self._compared("==", value)

    def __ne__(self, value: object) -> Expression:  # type: ignore[override] # a condition, as polars
        return self._compared("!=", value)

    __hash__ = None  # type: ignore[assignment] # == is no comparison of two of these

    def is_in(self, values: Iterable[Constant]) -> Expression:
        """Whether the value is one of several."""
        if isinstance(values, str):
            raise WhereError(f"Expected a list of constants for {self!r}, got the text {values!r}.")
        given = tuple(constant_of(value, place=f"in {self!r}") for value in values)
        return limited(among(self._name, given))

    def is_null(self) -> Expression:
        """Whether the value was empty."""
        return Leaf(self._name, "null")

    def __repr__(self) -> str:
        return shown_name(self._name)


class _Columns:
    """`col.NAME` and `col["NAME"]`."""

    def __getattr__(self, name: str) -> ColumnName:
        if name.startswith("__"):
            raise AttributeError(name)
        return ColumnName(name)

    def __getitem__(self, name: str) -> ColumnName:
        return ColumnName(name)


col: Final = _Columns()
"""Columns by name, to be compared with constants."""
