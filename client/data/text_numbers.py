"""Numbers written as text: their decimal points, and which of them are surely no codes."""

from __future__ import annotations

from typing import Final

import polars as pl

from parley.client.data.column_types import LONGEST_NUMBER
from parley.client.data.raw_table import RawTable


def normalize_decimal_points(texts: pl.Series, decimal: str) -> pl.Series:
    """Rewrite texts of numbers with a decimal point. With a decimal comma, a point is an error."""
    if decimal == ".":
        return texts
    points = texts.str.contains(".", literal=True).fill_null(False)
    return texts.set(points, "no number").str.replace(",", ".", literal=True)


def read_plain_numbers(table: RawTable, name: str) -> pl.Series:
    """Return `[N]` numbers of a text column, null for a cell that is not plainly a number.

    A cell is plainly a number if the text, as it is, is one with a decimal point, and if it is
    neither NaN, nor a null value, nor a whole number that may have 16 digits or more.
    """
    texts = table.get_column(name)
    if table.decimal != ".":
        return pl.Series(values=[None], dtype=pl.Float64).new_from_index(0, len(texts))
    numbers = texts.cast(pl.Float64, strict=False)
    may_be_code = (texts.str.len_bytes() > _LONGEST_PLAIN) & (numbers == numbers.floor())
    unclear = may_be_code | numbers.is_nan() | texts.is_in(sorted(table.null_values))
    return numbers.set(unclear.fill_null(True), None) if unclear.any() else numbers


_LONGEST_PLAIN: Final = 15
"""Maximum number of bytes of a text that is surely no code (`LONG_CODE`)."""


def has_codes(whole: pl.Series) -> bool:
    """Return whether a whole number of the column has 16 digits or more."""
    low, high = whole.min(), whole.max()
    return low is not None and max(int(high), -int(low)) > LONGEST_NUMBER  # type: ignore[arg-type]
