"""Selection of the records that a job reads, by blocks of a public column.

Only a record's own cell decides its block. A release on some blocks is therefore a function of only
their records (docs/privacy.md, section 15). The column is of kind ignore, so nothing is learned
from it. A row is recognised by its other cells, whatever its block.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from parley.client.data.cell_parsing import read_plain_texts
from parley.client.data.column_types import IgnoreColumn
from parley.client.data.raw_table import DataError, RawTable
from parley.client.data.schema import Schema, SchemaError
from parley.privacy.ledger.block_composition import Blocks, compute_block_number


class NoRecords(DataError):
    """Error if there is no record in the blocks that are read."""

    def __init__(self, blocks: Blocks, *, path: str | Path) -> None:
        super().__init__(f"at least one record in blocks {', '.join(blocks)}", "none", path=path)


def check_ignored(schema: Schema, column: str, *, key: str, why: str) -> None:
    """Raise SchemaError unless the column named by `key` exists and is of kind ignore."""
    known = schema.columns.get(column)
    if not isinstance(known, IgnoreColumn):
        got = f"none {column!r}" if known is None else f"{column!r}, of kind {known.kind}"
        raise SchemaError(
            f"Expected {key}, a column of kind ignore in the schema, got {got}: {why}."
        )


@dataclass(frozen=True, kw_only=True)
class Division:
    """A column that divides records into blocks, and the blocks that are read; none named: all."""

    column: str
    read: Blocks = ()

    def check(self, schema: Schema) -> None:
        """Raise SchemaError unless the block column exists and nothing is learned from it."""
        why = "a block is public, and a row is known again by its other cells"
        check_ignored(schema, self.column, key="block-column", why=why)

    def find_blocks(self, table: RawTable) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return `[N]` ledger numbers of the rows' blocks, and the positions of rows to read."""
        texts = read_plain_texts(table, self.column)
        if (empty := (texts == "").to_numpy()).any():
            raise table.build_fault(
                "a record's block", "an empty value", row=int(empty.argmax()), column=self.column
            )
        names = (
            texts.unique().to_list()
        )  # a list, because an array of texts makes every text as long as the longest
        block_numbers = [compute_block_number(name) for name in names]
        numbers = texts.replace_strict(names, block_numbers, return_dtype=pl.UInt64).to_numpy()
        is_read = texts.is_in(self.read).to_numpy() if self.read else np.ones(len(texts), bool)
        return numbers, np.flatnonzero(is_read).astype(np.int64)


def select_blocks(
    table: RawTable, division: Division | None
) -> tuple[NDArray[np.uint64] | None, NDArray[np.int64] | slice, RawTable]:
    """Return each row's block number, the positions of the rows to read, and those rows."""
    if division is None:
        return None, slice(None), table
    numbers, positions = division.find_blocks(table)
    return numbers, positions, table if len(positions) == len(numbers) else table.take(positions)
