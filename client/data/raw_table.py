"""`RawTable`: a table as it was read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from parley.client.data.data_error import DataError

_MAX_SHOWN = 10
"""Maximum number of rows that an error names."""


def format_positions(unit: str, first: Sequence[int], count: int) -> str:
    """Format the first of `count` positions.

    >>> format_positions("line", [3, 8], 4)
    'lines 3, 8 and 2 more'
    """
    more = f" and {count - len(first):,} more" if count > len(first) else ""
    return f"{unit}{'s' if count > 1 else ''} {', '.join(map(str, first))}{more}"


@dataclass(frozen=True, kw_only=True, repr=False)
class RawTable:
    """The cells of one file, N rows.

    Attributes:
        arrays: `[N, …]` the columns of kind "array".
        typed: False if every cell was text (CSV) and numbers must be parsed from it.
        null_values: the texts, in addition to "", that mean an empty cell.
        row_unit: the unit of `row_number`, "line" or "row".
        row_number: function from row k of this table (from 0) to its line or row (from 1).
    """

    path: str
    frame: pl.DataFrame
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    typed: bool = True
    null_values: tuple[str, ...] = ()
    decimal: str = "."
    row_unit: str = "row"
    row_number: Callable[[int], int] = lambda row: row + 1

    @property
    def rows(self) -> int:
        """N, the number of rows."""
        return len(next(iter(self.arrays.values()))) if self.arrays else self.frame.height

    @property
    def size(self) -> int:
        """Approximate bytes of its cells, texts and arrays.

        A cell counts 16 bytes, for a text's position and length.
        """
        cells = 16 * self.frame.height * self.frame.width + int(self.frame.estimated_size())
        return cells + sum(array.nbytes for array in self.arrays.values())

    def get_column(self, name: str) -> pl.Series:
        """Return a column's cells without its name. Polars takes ^…$ and * as patterns of names."""
        return self.frame[name].alias("")

    def select_columns(self, names: Sequence[str]) -> RawTable:
        """Return the table of these columns."""
        arrays = {name: self.arrays[name] for name in names if name in self.arrays}
        return replace(self, frame=self.frame[[n for n in names if n not in arrays]], arrays=arrays)

    def slice_rows(self, first: int, rows: int) -> RawTable:
        """Return `rows` rows from `first` on. Errors still name the file's rows."""
        original = self.row_number
        return replace(
            self,
            frame=self.frame.slice(first, rows),
            arrays={name: array[first : first + rows] for name, array in self.arrays.items()},
            row_number=lambda row: original(first + row),
        )

    def take(self, rows: NDArray[np.int64]) -> RawTable:
        """Return the table of the chosen rows. Errors still name their rows in the file."""
        original = self.row_number
        return replace(
            self,
            frame=self.frame[rows] if self.frame.width else self.frame,
            arrays={name: array[rows] for name, array in self.arrays.items()},
            row_number=lambda row: original(int(rows[row])),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[RawTable]) -> RawTable:
        """Concatenate at least one table."""
        begins = list(accumulate((part.rows for part in parts), initial=0))
        numbers = [part.row_number for part in parts]

        def number(row: int) -> int:
            at = bisect_right(begins, row) - 1
            return numbers[at](row - begins[at])

        # Batches of a query may differ in type: some have no values, or only whole numbers.
        whole = pl.concat([part.frame for part in parts], how="vertical_relaxed", rechunk=True)
        arrays = {n: np.concatenate([part.arrays[n] for part in parts]) for n in parts[0].arrays}
        return replace(parts[0], frame=whole, arrays=arrays, row_number=number)

    def describe_rows(self, rows: NDArray[np.int64], max_shown: int) -> str:
        """Return the positions in the file of this table's rows (from 0), the first by number."""
        first = [self.row_number(int(row)) for row in rows[:max_shown]]
        return format_positions(self.row_unit, first, len(rows))

    def build_missing_error(
        self, expected: str, rows: NDArray[np.int64], *, column: str, remedy: str
    ) -> DataError:
        """Build the error of `rows` `[≥ 1]` (from 0) of this table without a value in `column`."""
        share = f"{len(rows)} of {self.rows} records"
        last = f"{self.row_unit} {self.row_number(self.rows - 1)}"
        got = f"none in {self.describe_rows(rows, _MAX_SHOWN)} ({share} up to {last})"
        return self.build_fault(f"{expected} ({remedy})", got, row=int(rows[0]), column=column)

    def build_fault(self, expected: str, got: str, *, row: int, column: str) -> DataError:
        """Build the error of the cell in row `row` (from 0) of this table."""
        number, unit = self.row_number(row), self.row_unit
        return DataError(expected, got, path=self.path, row=number, column=column, unit=unit)
