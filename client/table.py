"""A table as it was read, and the error that names a cell of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

__all__ = ["DataError", "Table"]


class DataError(ValueError):
    """Data that isn't what the schema says.

    The message may quote a cell: it is for the person who holds the file, on their own machine.
    `public_message` names the file's fault without row or value, for anybody else.

    Attributes:
        path, row, column: where; row is a CSV's line or the number of the row, counted from 1.
    """

    def __init__(
        self,
        expected: str,
        got: str | None = None,
        *,
        path: str | Path,
        row: int | None = None,
        column: str | None = None,
        unit: str = "line",
    ) -> None:
        self.path, self.row, self.column = str(path), row, column
        place = [self.path]
        if row is not None:
            place.append(f"{unit} {row}")
        if column is not None:
            place.append(f"column {column!r}")
        tail = "" if got is None else f", got {got}"
        super().__init__(f"{', '.join(place)}: Expected {expected}{tail}.")
        of = "" if column is None else f" of column {column!r}"
        self.public_message = f"Expected {expected}{of}; the data differ from the schema."


@dataclass(frozen=True, kw_only=True)
class Table:
    """The cells of one file, N rows.

    Attributes:
        path: where they came from.
        frame: the one-dimensional columns.
        arrays: `[N, …]` the columns of kind "array".
        typed: False where every cell was text (CSV).
        null_values: the texts, besides "", that mean an empty cell where `typed` is False.
        row_unit: what `row_number` counts, "line" or "row".
        row_number: the line or row (from 1) of row k of this table (from 0).
    """

    path: str
    frame: pl.DataFrame
    arrays: Mapping[str, NDArray[Any]]
    typed: bool = True
    null_values: tuple[str, ...] = ()
    row_unit: str = "row"
    row_number: Callable[[int], int] = lambda row: row + 1

    @property
    def rows(self) -> int:
        """N."""
        return len(next(iter(self.arrays.values()))) if self.arrays else self.frame.height

    def take(self, rows: NDArray[np.int64]) -> Table:
        """The table of the chosen rows; errors go on naming them by their place in the file."""
        original = self.row_number
        return Table(
            path=self.path,
            frame=self.frame[rows] if self.frame.width else self.frame,
            arrays={name: array[rows] for name, array in self.arrays.items()},
            typed=self.typed,
            null_values=self.null_values,
            row_unit=self.row_unit,
            row_number=lambda row: original(int(rows[row])),
        )

    def fault(self, expected: str, got: str, *, row: int, column: str) -> DataError:
        """The error of the cell in row `row` (from 0) of this table."""
        number, unit = self.row_number(row), self.row_unit
        return DataError(expected, got, path=self.path, row=number, column=column, unit=unit)
