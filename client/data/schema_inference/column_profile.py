"""`ColumnProfile`: a column of unknown meaning as numbers, texts, missing values and odd cells.

A person checks the result of these rules. A column of text is read as numbers if at most 1 % of the
cells that are not missing are not numbers. Those cells are counted and shown by line, never left
out. `MISSING_TEXTS` mean a missing value. In a column of numbers, so do the marks of `_MARKS`, and
up to three words without a digit, in any language, if all other cells are numbers and these are
many.

    >>> import polars as pl
    >>> cells = read_column_profile(pl.Series(["5", "NA", "7.5", None]), decimal=".", texts=True)
    >>> cells.values.to_list(), cells.missing
    ([5.0, None, 7.5, None], {'NA': 1, '': 1})
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from parley.client.data.cell_parsing import canonicalize_texts
from parley.client.data.column_types import MISSING_TEXTS
from parley.client.data.schema_inference.text_columns import has_only_codes
from parley.client.data.text_numbers import has_codes, normalize_decimal_points

_MARKS = frozenset({"-", "--", ".", "*", "na", "n.a.", "N.A.", "none", "missing", "unknown"})
"""Marks for a missing number, which could be a category in a column of texts."""

_SHEET_ERRORS = frozenset(
    {"#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!", "#SPILL!", "#CALC!"}
)
"""Texts that a spreadsheet shows if a formula has no value."""

_MISSING = MISSING_TEXTS | _SHEET_ERRORS

_NINES = r"-9+|99+"
_ODD_SHARE = 0.01
_MAX_WORDS, _MIN_NUMBERS = 3, 10

_FIRST = 1000
"""Number of cells that are looked at first."""

_DECIMAL_COMMA = r"^[+-]?\d+,\d+$"


@dataclass(frozen=True, kw_only=True, repr=False)
class ColumnProfile:
    """A column's values, with its missing and odd cells.

    Attributes:
        values: `[N]` integers, floats, texts or truth values; null for a missing or odd cell.
        missing: count of each text that means a missing value; "" is an empty cell.
        odd: `[≥ 0]` positions (from 0) of the cells in a column of numbers that are not numbers.
        near: `[≥ 0]` the same, if they are too many to read the column as numbers.
    """

    values: pl.Series
    missing: dict[str, int]
    odd: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    near: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def present(self) -> pl.Series:
        """The values without the missing and odd cells."""
        return drop_missing(self.values)

    @property
    def missing_count(self) -> int:
        """Number of missing values."""
        return sum(self.missing.values())


@dataclass(frozen=True, kw_only=True)
class TextCells:
    """A column of text, as all columns of a frame are read at once.

    Attributes:
        present: `[N]` texts without white space at their ends, null for an empty cell.
        unmarked: `[N]` the same, null also for a text that may mean a missing value.
        marks: count of each text that may mean a missing value.
        numbers: `[N]` the numbers, null for other cells.
        canonical: `[N]` canonical texts, null for `MISSING_TEXTS`, if no cell is a number.
        has_points: whether a cell contains the decimal point or comma.
    """

    present: pl.Series
    unmarked: pl.Series
    marks: Mapping[str, int]
    numbers: pl.Series
    canonical: pl.Series | None
    has_points: bool


def read_text_cells(columns: Sequence[pl.Series], *, decimal: str) -> list[TextCells]:
    """Read columns of text with few calls for all of them: tables can have 50,000."""
    if not columns:
        return []
    frame = pl.DataFrame([column.alias(str(at)) for at, column in enumerate(columns)])
    every = pl.all()
    stripped = frame.select(every.str.strip_chars())
    present = stripped.select(pl.when(every != "").then(every).name.keep())
    points = present.select(every.str.contains(decimal, literal=True).any()).row(0)
    marks = sorted((_MISSING | _MARKS) - {""})
    has_marks = present.select(every.is_in(marks).any()).row(0)
    marked = [str(at) for at, has in enumerate(has_marks) if has]
    found = present[marked].select(every.is_in(marks).fill_null(False))
    unmarked = _remove_texts(present, marked, marks)
    numbers = unmarked.select(_normalize_points(decimal).cast(pl.Float64, strict=False))
    rows = frame.height
    counts = numbers.null_count().row(0)
    words = [str(at) for at, count in enumerate(counts) if count == rows]
    texts = _remove_texts(present[words], sorted({*words} & {*marked}), sorted(_MISSING))
    canonical = texts.select(canonicalize_texts(every))
    return [
        TextCells(
            present=present[name].alias(""),
            unmarked=unmarked[name].alias(""),
            marks=Counter(present[name].filter(found[name]).to_list()) if has_marks[at] else {},
            numbers=numbers[name].alias(""),
            canonical=canonical[name].alias("") if counts[at] == rows else None,
            has_points=bool(points[at]),
        )
        for at, name in enumerate(frame.columns)
    ]


def _remove_texts(frame: pl.DataFrame, names: Sequence[str], texts: Sequence[str]) -> pl.DataFrame:
    """Return the frame with null for some texts in the named columns."""
    columns = pl.col(names)
    return frame.with_columns(pl.when(~columns.is_in(texts)).then(columns).name.keep())


def _normalize_points(decimal: str) -> pl.Expr:
    """Return `normalize_decimal_points` of all columns."""
    texts = pl.all()
    if decimal == ".":
        return texts
    return (
        pl.when(texts.str.contains(".", literal=True))
        .then(pl.lit("no number"))
        .otherwise(texts.str.replace(",", ".", literal=True))
        .name.keep()
    )


def drop_missing(values: pl.Series) -> pl.Series:
    """Return the values that are not null, without a copy if all are."""
    return values.drop_nulls() if values.null_count() else values


def count_distinct(values: pl.Series, enough: int) -> int:
    """Return the number of different values, or some number from `enough` on."""
    first = values.head(_FIRST).n_unique()
    return first if first >= enough or len(values) <= _FIRST else values.n_unique()


def read_column_profile(
    series: pl.Series, *, decimal: str, texts: bool, cells: TextCells | None = None
) -> ColumnProfile:
    """Read a column as numbers if it is one of numbers, else as texts.

    Whole numbers of 16 digits and more are codes, and so are numbers with leading zeros. They are
    read as texts.

    Args:
        texts: whether numbers are written as text.
        cells: the same column, if its texts were read together with others.
    """
    if cells is not None and texts and (plain := _read_plain_profile(cells)):
        return plain
    if series.dtype in (pl.Categorical, pl.Enum):
        series = series.cast(pl.String)
    if series.dtype != pl.String:
        values, missing = _convert_numbers(series), {}
        if series.null_count() or values.null_count():
            missing = _sort_missing({}, int((series.is_null() | values.is_null()).sum()))
        return ColumnProfile(values=values, missing=missing)
    stripped = series.str.strip_chars()
    present, missing = _remove_missing(stripped, _MISSING)
    if not texts:
        return ColumnProfile(values=canonicalize_texts(present), missing=missing)
    unmarked, marked = _remove_missing(stripped, _MISSING | _MARKS)
    numbers = normalize_decimal_points(unmarked, decimal).cast(pl.Float64, strict=False)
    if words := _find_missing_words(numbers, unmarked):
        unmarked, marked = _remove_missing(stripped, _MISSING | _MARKS | words)
    there = len(series) - unmarked.null_count()
    odd = np.flatnonzero((numbers.is_null() & unmarked.is_not_null()).to_numpy())
    few_odd = there > 0 and len(odd) <= _ODD_SHARE * there
    if few_odd and has_only_codes(unmarked.filter(numbers.is_not_null())):
        return ColumnProfile(values=canonicalize_texts(unmarked), missing=marked)
    if few_odd:
        return ColumnProfile(values=_to_integers(numbers), missing=marked, odd=odd)
    near = odd if 2 * len(odd) < there else odd[:0]
    return ColumnProfile(values=canonicalize_texts(present), missing=missing, near=near)


def _read_plain_profile(cells: TextCells) -> ColumnProfile | None:
    """Return a column's profile, if all or none of its cells without marks are numbers."""
    empty = cells.present.null_count()
    if cells.canonical is not None:
        missing = {text: count for text, count in cells.marks.items() if text in _MISSING}
        return ColumnProfile(values=cells.canonical, missing=_sort_missing(missing, empty))
    if cells.numbers.null_count() > cells.unmarked.null_count():
        return None
    codes = has_only_codes(drop_missing(cells.unmarked))
    values = canonicalize_texts(cells.unmarked) if codes else _to_integers(cells.numbers)
    return ColumnProfile(values=values, missing=_sort_missing(cells.marks, empty))


def _convert_numbers(series: pl.Series) -> pl.Series:
    """Return typed values: whole numbers as 64-bit integers, codes as texts."""
    if series.dtype.is_float():
        series = series.fill_nan(None)
        # If values are missing, libraries convert whole numbers to floats.
        return _to_integers(series.cast(pl.Float64)) if series.null_count() else series
    if series.dtype.is_decimal():
        floats = series.cast(pl.Float64)
        if not bool((floats == floats.floor()).all()):
            return floats
        series = series.cast(pl.Int128)
    if not series.dtype.is_integer():
        return series
    return series.cast(pl.String if has_codes(series) else pl.Int64)


def find_missing_mark(values: pl.Series) -> float | None:
    """Return a number like -99 or 9999 far from all others; None if there is none.

    It is farther from all others than those are from each other.
    """
    if not values.dtype.is_numeric():
        return None
    numbers = drop_missing(values).cast(pl.Float64).to_numpy()
    for end in (numbers.min(), numbers.max()) if len(numbers) else ():
        others = numbers[numbers != end]
        if len(others) and re.fullmatch(_NINES, f"{end:g}"):
            gap = min(abs(end - others.min()), abs(end - others.max()))
            if gap > others.max() - others.min() > 0:
                return float(end)
    return None


def _find_missing_words(numbers: pl.Series, cells: pl.Series) -> frozenset[str]:
    """Return words in a column that is mostly numbers; empty if they are many, or numbers few."""
    odd = cells.filter(numbers.is_null() & cells.is_not_null())
    there = len(cells) - cells.null_count()
    if not _ODD_SHARE * there < len(odd) < there / 2 or odd.str.contains(r"\d").any():
        return frozenset()
    words = frozenset(odd.unique().to_list())
    many = numbers.drop_nulls().n_unique() > _MIN_NUMBERS
    return words if many and len(words) <= _MAX_WORDS else frozenset()


def _remove_missing(stripped: pl.Series, marks: frozenset[str]) -> tuple[pl.Series, dict[str, int]]:
    """Return texts with null for the missing ones, and the counts of those."""
    found = stripped.is_in(sorted(marks))
    # Not counted by polars: its column of counts could have the name of the file's column.
    counts = Counter(stripped.filter(found & (stripped != "")).to_list())
    missing = _sort_missing(counts, int((stripped.is_null() | (stripped == "")).sum()))
    return stripped.set(found.fill_null(False), None), missing


def _sort_missing(texts: Mapping[str, int], empty: int) -> dict[str, int]:
    """Return the counts of texts, the most frequent first, then that of empty cells."""
    counted = dict(sorted(texts.items(), key=lambda entry: (-entry[1], entry[0])))
    return counted | ({"": empty} if empty else {})


def _to_integers(numbers: pl.Series) -> pl.Series:
    """Return the numbers as integers if all are whole, else unchanged."""
    return numbers.cast(pl.Int64) if are_whole(numbers) else numbers


def are_whole(numbers: pl.Series) -> bool:
    """Return whether all numbers are whole and exact, apart from missing ones."""
    values = drop_missing(numbers).to_numpy()
    return bool(((values == np.floor(values)) & (np.abs(values) < 2**53)).all())


def find_decimal_mark(columns: Sequence[pl.Series]) -> str:
    """Return "," if all cells of a column are numbers with a decimal comma, else "."."""
    for series in columns:
        there = series.str.strip_chars()
        there = there.filter(~there.is_in(sorted(MISSING_TEXTS | _MARKS)))
        if len(there) and bool((there.str.contains(_DECIMAL_COMMA)).any()):
            numbers = normalize_decimal_points(there, ",").cast(pl.Float64, strict=False)
            if numbers.null_count() <= _ODD_SHARE * len(there):
                return ","
    return "."
