"""`Expression`: conditions on one record as values, their columns, and their check by a schema."""

from __future__ import annotations

import math
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.strict_decoding import MAX_TEXT_LENGTH
from parley.client.data.column_types import canonicalize_text
from parley.client.data.query_party_block import (
    MISSING,
    CategoryField,
    RangeField,
    RawPartyBlock,
    get_field,
)
from parley.client.data.schema import Schema

Constant: TypeAlias = str | int | float | bool
Mask: TypeAlias = NDArray[np.bool_]

MAX_DEPTH: Final = 8
"""Maximum number of levels of a condition, and of parentheses."""
MAX_NODES: Final = 64
"""Maximum number of comparisons, and/or/not and constants of `in` together."""
RESERVED_WORDS: Final = frozenset({"and", "or", "not", "in", "is", "null", "none", "true", "false"})
"""Words that are not names of columns, unless in backticks."""

SIGNS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}

_ORDERED = frozenset(SIGNS) - {"==", "!="}


class WhereError(ValueError):
    """Error for a condition that cannot be asked: what was expected, what came."""


@dataclass(frozen=True, eq=True)
class Expression(ABC):
    """A condition on one record. `col` and `parse_where` create it; `&`, `|` and `~` combine it."""

    @property
    @abstractmethod
    def columns(self) -> frozenset[str]:
        """The columns that it reads."""

    @abstractmethod
    def check(self, schema: Schema) -> None:
        """Raise SchemaError or WhereError if this schema gives the condition no meaning."""

    @abstractmethod
    def mask(self, block: RawPartyBlock) -> Mask:
        """Return `[N]` whether each record counts. The block's schema must have passed `check`."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return plain values. `decode_where` is the inverse."""

    def __and__(self, other: Expression) -> Expression:
        return join_conditions("and", self, other)

    def __or__(self, other: Expression) -> Expression:
        return join_conditions("or", self, other)

    def __invert__(self) -> Expression:
        return check_size(negate(self))

    def __bool__(self) -> NoReturn:
        raise WhereError(
            "Expected conditions joined by & and |, negated by ~ and in parentheses, "
            "e.g. (col.age > 60) & (col.age < 80), got and, or, not, or a chain of comparisons."
        )

    @property
    @abstractmethod
    def size(self) -> tuple[int, int]:
        """Its depth, and its number of nodes."""


@dataclass(frozen=True)
class Comparison(Expression):
    """A column compared with a constant (a sign), with several ("in"), or with empty ("null")."""

    column: str
    sign: str
    values: tuple[Constant, ...] = ()

    @property
    def columns(self) -> frozenset[str]:
        """Its column."""
        return frozenset({self.column})

    @property
    def size(self) -> tuple[int, int]:
        """Depth 1, and 1 node, plus one per constant of `in`."""
        return 1, 1 + (len(self.values) if self.sign == "in" else 0)

    def check(self, schema: Schema) -> None:
        """Check that constants fit the column, and that null has a cell there.

        A number needs a number, a category a listed one.
        """
        field = get_field(schema, self.column)
        can_be_empty = isinstance(field, CategoryField) and MISSING in field.texts
        if self.sign == "null" and not can_be_empty:
            expected = "Expected a column that can be empty with null"
            why = "its schema refuses an empty value, or replaces it"
            raise WhereError(f"{expected}, got {self.column!r}: {why}.")
        if isinstance(field, CategoryField) and self.sign in _ORDERED:
            expected = f"Expected == or != with {self.column!r}, a column of categories"
            raise WhereError(f"{expected}, got {self.sign}.")
        for value in self.values:
            _check_constant(field, self.column, value)

    def mask(self, block: RawPartyBlock) -> Mask:
        """Compare with what the column's array contains: a code, or the clamped number."""
        field, cells = get_field(block.schema, self.column), block.columns[self.column]
        values: list[Any] = [MISSING] if self.sign == "null" else list(self.values)
        if isinstance(field, CategoryField):
            values = [field.texts.index(canonicalize_text(value)) for value in values]
        if self.sign not in SIGNS:
            return np.isin(cells, values)
        return np.asarray(SIGNS[self.sign](cells, values[0]))

    def to_json(self) -> dict[str, Any]:
        """Return `{"column", "is"}`, with `"value"` for a sign and `"values"` for in."""
        own = {"column": self.column, "is": self.sign}
        if self.sign == "null":
            return own
        given = {"values": list(self.values)} if self.sign == "in" else {"value": self.values[0]}
        return own | given

    def __str__(self) -> str:
        name, values = format_column(self.column), ", ".join(map(format_constant, self.values))
        if self.sign == "null":
            return f"{name} is null"
        return f"{name} in ({values})" if self.sign == "in" else f"{name} {self.sign} {values}"


@dataclass(frozen=True)
class CompoundCondition(Expression):
    """Several conditions: all ("and"), at least one ("or"), or the opposite of one ("not")."""

    connective: str
    parts: tuple[Expression, ...]

    @property
    def columns(self) -> frozenset[str]:
        """The columns of all parts."""
        return frozenset().union(*(part.columns for part in self.parts))

    @property
    def size(self) -> tuple[int, int]:
        """One level more than the deepest part, and one node more than all parts."""
        sizes = [part.size for part in self.parts]
        return 1 + max(depth for depth, _ in sizes), 1 + sum(nodes for _, nodes in sizes)

    def check(self, schema: Schema) -> None:
        """Check every part."""
        for part in self.parts:
            part.check(schema)

    def mask(self, block: RawPartyBlock) -> Mask:
        """Combine the masks of all parts."""
        masks = [part.mask(block) for part in self.parts]
        if self.connective == "not":
            return ~masks[0]
        join = np.logical_and if self.connective == "and" else np.logical_or
        return np.asarray(join.reduce(masks))

    def to_json(self) -> dict[str, Any]:
        """Return `{"and": [part, …]}`, `{"or": [part, …]}` or `{"not": part}`."""
        parts = [part.to_json() for part in self.parts]
        return {self.connective: parts[0] if self.connective == "not" else parts}

    def __str__(self) -> str:
        several = [isinstance(p, CompoundCondition) and p.connective != "not" for p in self.parts]
        shown = [f"({p})" if one else str(p) for p, one in zip(self.parts, several, strict=True)]
        return f"not {shown[0]}" if self.connective == "not" else f" {self.connective} ".join(shown)


def negate(condition: Expression) -> Expression:
    """Return the condition of the other records."""
    return CompoundCondition("not", (condition,))


def join_conditions(connective: str, *parts: Expression) -> Expression:
    """Join `parts` by one word. Parts that are joined by it already are flattened first."""
    flat: list[Expression] = []
    for part in parts:
        if not isinstance(part, Expression):
            got = type(part).__name__
            raise WhereError(f"Expected a condition next to {connective}, got {got}.")
        if isinstance(part, CompoundCondition) and part.connective == connective:
            flat += part.parts
        else:
            flat.append(part)
    return check_size(CompoundCondition(connective, tuple(flat)))


def check_size(expression: Expression) -> Expression:
    """Return the condition itself, unless it is too deep or too long."""
    depth, nodes = expression.size
    if depth > MAX_DEPTH:
        raise WhereError(f"Expected a condition of at most {MAX_DEPTH} levels, got more.")
    if nodes > MAX_NODES:
        raise WhereError(f"Expected a condition of at most {MAX_NODES} parts, got {nodes}.")
    return expression


def build_in_condition(column: str, values: tuple[Constant, ...]) -> Expression:
    """Build `in`, with at least one constant."""
    if not values:
        raise WhereError(f"Expected at least one constant for {column!r}, got none.")
    return Comparison(column, "in", values)


def _check_constant(field: CategoryField | RangeField, column: str, value: Constant) -> None:
    if isinstance(field, RangeField):
        if isinstance(value, str | bool):
            expected = f"a number to compare with {column!r}, in [{field.low:g}, {field.high:g}]"
            raise WhereError(f"Expected {expected}, got {value!r:.80}.")
    elif canonicalize_text(value) not in field.texts:
        known = ", ".join(map(repr, field.texts[:12])) + (", …" if len(field.texts) > 12 else "")
        raise WhereError(f"Expected one of {known} to compare with {column!r}, got {value!r:.80}.")


def parse_constant(value: object, *, context: str) -> Constant:
    """Return a constant of a condition: text, a finite number, or a truth value."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str) and len(value) <= MAX_TEXT_LENGTH:
        return value
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise WhereError(
        f"Expected a text, a finite number, true or false {context}, got {value!r:.80}"
        + (": use `is null` for an empty column." if value is None else ".")
    )


def format_column(column: str) -> str:
    """Format a column's name, in backticks unless it is a plain word."""
    plain = re.fullmatch(r"[^\W\d]\w*", column) and column.lower() not in RESERVED_WORDS
    return column if plain else f"`{column}`"


def format_constant(value: Constant) -> str:
    """Format a constant as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return repr(value)


class ColumnName:
    """A column: `col.age`, `col["length of stay"]`. Compared with a constant, it is a condition."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def _compare(self, sign: str, value: object) -> Expression:
        constant = parse_constant(value, context=f"after {self!r} {sign}")
        return Comparison(self._name, sign, (constant,))

    def __lt__(self, value: object) -> Expression:
        return self._compare("<", value)

    def __le__(self, value: object) -> Expression:
        return self._compare("<=", value)

    def __gt__(self, value: object) -> Expression:
        return self._compare(">", value)

    def __ge__(self, value: object) -> Expression:
        return self._compare(">=", value)

    def __eq__(self, value: object) -> Expression:  # type: ignore[override] # a condition, as polars
        return self._compare("==", value)

    def __ne__(self, value: object) -> Expression:  # type: ignore[override] # a condition, as polars
        return self._compare("!=", value)

    __hash__ = None  # type: ignore[assignment]  # == does not compare two of these

    def is_in(self, values: Iterable[Constant]) -> Expression:
        """Return the condition that the value is one of several."""
        if isinstance(values, str):
            raise WhereError(f"Expected a list of constants for {self!r}, got the text {values!r}.")
        given = tuple(parse_constant(value, context=f"in {self!r}") for value in values)
        return check_size(build_in_condition(self._name, given))

    def is_null(self) -> Expression:
        """Return the condition that the value was empty."""
        return Comparison(self._name, "null")

    def __repr__(self) -> str:
        return format_column(self._name)


class _Columns:
    """The object behind `col.NAME` and `col["NAME"]`."""

    def __getattr__(self, name: str) -> ColumnName:
        if name.startswith("__"):
            raise AttributeError(name)
        return ColumnName(name)

    def __getitem__(self, name: str) -> ColumnName:
        return ColumnName(name)


col: Final = _Columns()
"""Columns by name, to be compared with constants."""
