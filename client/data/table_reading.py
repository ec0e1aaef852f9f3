"""Readers of tables on disk or in memory, in batches, in the format that a schema defines.

A file is CSV (also .gz), Parquet or .npz. A database query is read alike. A reader checks the
file's properties: it exists, is complete, has exactly the schema's columns, and fits into memory.
It passes the cells on unchanged; `parley.client.data.training_records` checks their contents. Every
fault is a `DataError` that names file, line or row, column, what was expected and what came. No
file is held whole. A batch of a CSV is some MiB of text, and a batch of a Parquet file or a query
is some ten thousand rows. An .npz file's arrays are measured before they are loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from parley.client.data.column_names import check_column_names, get_format
from parley.client.data.data_error import DataError
from parley.client.data.data_sources import FormattedFile, Source, get_source_name
from parley.client.data.memory_limit import compute_memory_limit
from parley.client.data.raw_table import RawTable
from parley.client.data.reading_progress import report_rows
from parley.client.data.schema import Schema
from parley.client.data.table_formats import FORMATS, ReadRequest
from parley.module_loading.plugin_table import load_attribute


def read_tables(
    source: Source,
    schema: Schema,
    *,
    keep: Collection[str] = (),
    sampled: bool = False,
    only: Sequence[str] | None = None,
) -> Iterator[RawTable]:
    """Yield the columns of a file that the schema uses, and those to `keep`, in batches.

    Data in memory and query results are read alike, but columns to ignore may be missing there. The
    features of all records must fit into memory. If they are to be `sampled`, the cells that the
    sample is drawn from must fit. With `only`, these columns must exist, and other columns may.
    Then only each single batch must fit.
    """
    if isinstance(source, FormattedFile):
        # Imported only for a file that differs from its schema.
        apply_format = load_attribute("parley.client.data.file_format_overrides:apply_format")
        source, schema = source.name, apply_format(source, schema)
    used = schema.used
    everything = (name for name in schema.columns if name in used or name in keep)
    wanted = list(everything if only is None else only)
    memory_limit = compute_memory_limit(schema.file.max_gib)
    where = get_source_name(source)
    memory_limit.check_free_memory(where)
    names = check_column_names(source, schema, wanted, keep=keep, all_used=only is None)
    fits = partial(memory_limit.check_records, features=schema.dimension, path=where)
    request = ReadRequest(
        schema=schema,
        names=names,
        wanted=wanted,
        memory_limit=memory_limit,
        on_row_count=fits if only is None and not sampled else None,
    )
    rows = size = 0
    for table in FORMATS[get_format(source, schema.file)].read_tables(source, request):
        memory_limit.check_free_memory(where)
        rows += table.rows
        size += table.size
        report_rows(str(where), rows)
        if sampled and only is None:
            memory_limit.check_bytes(size, path=where)
        else:
            fits(rows if only is None else table.rows)
        yield table
    if not rows:
        raise DataError("at least one record", "none", path=where)
