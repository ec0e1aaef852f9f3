"""Digests of tables as they were read, of the columns that a schema learns from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from parley.client.data.cell_parsing import map_distinct, read_plain_texts
from parley.client.data.column_types import LONG_CODE
from parley.client.data.multiset_digest import ContentDigest, digest_columns, hash_texts, to_bits
from parley.client.data.raw_table import RawTable
from parley.client.data.schema import Schema
from parley.client.data.text_numbers import has_codes, normalize_decimal_points, read_plain_numbers


def digest_table(
    table: RawTable, schema: Schema, blocks: NDArray[np.uint64] | None = None
) -> ContentDigest:
    """Return the contents of the columns that the schema learns from.

    Args:
        blocks: `[N]` block numbers of the rows.
    """
    used = sorted(schema.used)
    kinds = [(name, schema.columns[name].kind) for name in used]
    arrays = table.arrays
    columns = [to_bits(arrays[n]) if n in arrays else encode_cells(table, n) for n in used]
    return digest_columns(columns, table.rows, description=repr(kinds), blocks=blocks)


def compute_row_order(
    digests: Sequence[NDArray[np.uint64]], ties: Sequence[NDArray[np.uint64]] = ()
) -> NDArray[np.int64]:
    """Return `[N]` an order of the rows that does not depend on the order in which they came.

    Args:
        digests: `[n, 3]` per batch.
        ties: `[n]` per batch: further values that distinguish its rows.
    """
    all_digests = np.concatenate(digests) if digests else np.empty((0, 3), np.uint64)
    keys = [np.concatenate(ties)] if ties else []
    return np.lexsort([*keys, *all_digests.T[::-1]]).astype(np.int64, copy=False)


def encode_cells(table: RawTable, name: str) -> NDArray[np.uint64]:
    """Return `[N]` cells: a number as its value, any other cell as its text.

    A whole number of 16 digits or more counts as a text: as doubles, two codes may be equal.
    """
    series: pl.Series = table.get_column(name)
    if series.dtype.is_numeric() and not (series.dtype.is_integer() and has_codes(series)):
        return to_bits(series.cast(pl.Float64).fill_null(np.nan).to_numpy())
    if series.dtype != pl.String:
        return _encode_texts(read_plain_texts(table, name), table.decimal).to_numpy()
    numbers = read_plain_numbers(table, name)
    bits = to_bits(numbers.fill_null(np.nan).to_numpy())
    if numbers.null_count():
        # Only the distinct other cells are read as texts.
        others = numbers.is_null()
        bits[others.to_numpy()] = map_distinct(
            series.filter(others), partial(_encode_other_cells, table), pl.UInt64
        ).to_numpy()
    return bits


def _encode_other_cells(table: RawTable, cells: pl.Series) -> pl.Series:
    """Return `[n]` cells of text that are not plainly numbers."""
    texts = read_plain_texts(replace(table, frame=cells.alias("cell").to_frame()), "cell")
    return _encode_texts(texts, table.decimal)


def _encode_texts(texts: pl.Series, decimal: str) -> pl.Series:
    """Return `[n]` canonical texts: a number as its value, any other text as its digest."""
    parsed = normalize_decimal_points(texts, decimal).cast(pl.Float64, strict=False)
    bits = to_bits(parsed.fill_null(np.nan).to_numpy())
    is_text = (parsed.is_null() | parsed.is_nan() | texts.str.contains(LONG_CODE)).to_numpy()
    bits[is_text] = hash_texts(texts.filter(pl.Series(is_text)).to_list())
    return pl.Series(bits)
