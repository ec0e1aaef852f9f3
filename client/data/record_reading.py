"""Records of files, queries and tables in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from parley.client.data.block_row_selection import select_blocks
from parley.client.data.block_selection import Division
from parley.client.data.cell_parsing import select_labelled
from parley.client.data.data_error import DataError, NoRecords
from parley.client.data.data_sources import Source, SqlQuery, get_source_name
from parley.client.data.multiset_digest import ContentDigest, sum_contents
from parley.client.data.raw_table import RawTable
from parley.client.data.record_concatenation import join_records
from parley.client.data.schema import Schema, check_label
from parley.client.data.table_digest import compute_row_order, digest_table, encode_cells
from parley.client.data.table_reading import read_tables
from parley.client.data.training_records import Records, encode_records
from parley.module_loading.plugin_table import load_attribute

if TYPE_CHECKING:
    from parley.client.data.sparse_rows import RowStorage

_FAULTS = "parley.client.data.encoding_remedy"
"""Imported only after an error."""


def read_records(
    paths: Source | Sequence[Source],
    schema: Schema,
    model_kind: str,
    *,
    group_column: str | None = None,
    sample: int | None = None,
    rng: np.random.Generator | None = None,
    division: Division | None = None,
    storage: RowStorage | None = None,
) -> Records:
    """Read the records of one file, or of several files one after another.

    Args:
        group_column: a column of the schema (of any kind) that is returned as text in `groups`.
        sample: number of rows to draw without replacement, in the order of the files, by `rng`. The
            rows of a query are ordered by their contents, in whatever order the database sends
            them.
        division: the division into blocks, and the blocks that are read.
        storage: of rows that may be sparse; None: they are dense.

    Raises:
        DataError: the data do not fit the schema. It names file, line or row, column, what was
            expected and what came.
        SchemaError: the schema's label has no reading for `model_kind`.
    """
    check_label(schema, model_kind)
    if group_column is not None and group_column not in schema.columns:
        raise ValueError(f"Expected a group column of the schema, got {group_column!r}.")
    keep = [] if group_column is None else [group_column]
    if division is not None:
        division.check(schema)
        keep.append(division.column)
    several = [paths] if isinstance(paths, Source) else list(paths)
    if not several:
        raise ValueError("Expected at least one file, got none.")

    def encode(table: RawTable) -> Records:
        return encode_records(table, schema, model_kind, group_column, storage)

    contents: list[ContentDigest] = []
    digests: list[NDArray[np.uint64]] = []
    ties: list[NDArray[np.uint64]] = []
    drawn_from: list[RawTable] = []
    parts: list[Records] = []
    with _explain_faults(several, schema):
        for path in several:
            for labelled in _read_labelled_tables(path, schema, keep, sampled=sample is not None):
                blocks, positions, table = select_blocks(labelled, division)
                contents.append(digest_table(labelled, schema, blocks))
                if not table.rows:
                    continue
                digests.append(contents[-1].digests[positions])
                if group_column is not None and isinstance(path, SqlQuery):
                    ties.append(encode_cells(table, group_column))
                if sample is None:
                    parts.append(encode(table))
                else:
                    drawn_from.append(table)
        if division is not None and not (parts or drawn_from):
            raise NoRecords(division.read, path=get_source_name(several[0]))
        order = compute_row_order(digests, ties) if isinstance(several[0], SqlQuery) else None
        if sample is not None:
            order, sampled_tables = _draw(drawn_from, sample, rng, order)
            parts = [encode(table) for table in sampled_tables]
        joined = join_records(parts, order, storage)
        return replace(joined, contents=sum_contents(contents))


@contextmanager
def _explain_faults(sources: Sequence[Source], schema: Schema) -> Iterator[None]:
    """Add the likely cause to an error of reading; raise DataError if memory does not suffice."""
    try:
        yield
    except DataError as error:
        load_attribute(f"{_FAULTS}:add_encoding_remedy")(error, sources, schema)
        raise
    except MemoryError as error:
        name = get_source_name(sources[0])
        raise DataError("records that fit into memory", "more", path=name) from error


def _read_labelled_tables(
    path: Source, schema: Schema, keep: Collection[str], *, sampled: bool
) -> Iterator[RawTable]:
    """Yield the file's batches without the records that the schema's rule on labels leaves out."""
    found = False
    for table in read_tables(path, schema, keep=keep, sampled=sampled):
        kept = select_labelled(table, schema)
        if kept.rows:
            found = True
            yield kept
    if not found:
        raise DataError("at least one record with a label", "none", path=get_source_name(path))


def _draw(
    tables: list[RawTable],
    sample: int,
    rng: np.random.Generator | None,
    order: NDArray[np.int64] | None,
) -> tuple[NDArray[np.int64] | None, list[RawTable]]:
    """Return the order of the drawn rows, if the rows have one, and the rows as they came."""
    if rng is None:
        raise ValueError("Expected rng beside sample, got None.")
    ends = np.cumsum([0] + [table.rows for table in tables])
    if not 1 <= sample <= ends[-1]:
        raise ValueError(f"Expected a sample of 1 to {ends[-1]} records, got {sample}.")
    chosen = np.sort(rng.choice(ends[-1], sample, replace=False))
    # The sample is of the ordered rows, so that it does not depend on the database's order.
    if order is not None:
        sampled_rows = order[chosen]
        chosen, order = np.sort(sampled_rows), np.argsort(np.argsort(sampled_rows))
    places = np.split(chosen, np.searchsorted(chosen, ends[1:-1]))
    sampled = zip(tables, places, ends[:-1], strict=True)
    return order, [table.take(rows - begin) for table, rows, begin in sampled if len(rows)]
