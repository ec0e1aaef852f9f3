"""Selection of the records that are in the blocks to read."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from parley.client.data.block_selection import Division
from parley.client.data.cell_parsing import read_plain_texts
from parley.client.data.raw_table import RawTable
from parley.privacy.ledger.block_composition import compute_block_number


def find_blocks(division: Division, table: RawTable) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    """Return `[N]` ledger numbers of the rows' blocks, and the positions of rows to read."""
    texts = read_plain_texts(table, division.column)
    if (empty := (texts == "").to_numpy()).any():
        row = int(empty.argmax())
        raise table.build_fault(
            "a record's block", "an empty value", row=row, column=division.column
        )
    # A list, because an array of texts makes every text as long as the longest.
    names = texts.unique().to_list()
    block_numbers = [compute_block_number(name) for name in names]
    numbers = texts.replace_strict(names, block_numbers, return_dtype=pl.UInt64).to_numpy()
    is_read = texts.is_in(division.read).to_numpy() if division.read else np.ones(len(texts), bool)
    return numbers, np.flatnonzero(is_read).astype(np.int64)


def select_blocks(
    table: RawTable, division: Division | None
) -> tuple[NDArray[np.uint64] | None, NDArray[np.int64] | slice, RawTable]:
    """Return each row's block number, the positions of the rows to read, and those rows."""
    if division is None:
        return None, slice(None), table
    numbers, positions = find_blocks(division, table)
    return numbers, positions, table if len(positions) == len(numbers) else table.take(positions)
