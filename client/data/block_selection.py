"""Selection of the records that a job reads, by blocks of a public column.

Only a record's own cell decides its block. A release on some blocks is therefore a function of only
their records (docs/privacy.md, section 15). The column is of kind ignore, so nothing is learned
from it. A row is recognised by its other cells, whatever its block.
"""

from __future__ import annotations

from dataclasses import dataclass

from parley.client.data.column_types import IgnoreColumn
from parley.client.data.schema import Schema, SchemaError
from parley.privacy.ledger.block_composition import Blocks


def check_ignored(schema: Schema, column: str, *, key: str, why: str) -> None:
    """Raise SchemaError unless the column named by `key` exists and is of kind ignore."""
    known = schema.columns.get(column)
    if not isinstance(known, IgnoreColumn):
        got = f"none {column!r}" if known is None else f"{column!r}, of kind {known.kind}"
        expected = f"Expected {key}, a column of kind ignore in the schema"
        raise SchemaError(f"{expected}, got {got}: {why}.")


@dataclass(frozen=True, kw_only=True)
class Division:
    """A column that divides records into blocks, and the blocks that are read; none named: all."""

    column: str
    read: Blocks = ()

    def check(self, schema: Schema) -> None:
        """Raise SchemaError unless the block column exists and nothing is learned from it."""
        why = "a block is public, and a row is recognised by its other cells"
        check_ignored(schema, self.column, key="block-column", why=why)
