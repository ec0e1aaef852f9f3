"""Readers of tables on disk or in memory, in batches, in the format that a schema defines.

A file is CSV (also .gz), Parquet or .npz. A database query is read alike. A reader checks the
file's properties: it exists, is complete, has exactly the schema's columns, and fits into memory.
It passes the cells on unchanged; `parley.client.data.records` checks their contents. Every fault is
a `DataError` that names file, line or row, column, what was expected and what came. No file is held
whole. A batch of a CSV is some MiB of text, and a batch of a Parquet file or a query is some ten
thousand rows. An .npz file's arrays are measured before they are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from numpy.typing import NDArray

from parley.client.data.binary_files import BATCH_ROWS, read_arrays, read_parquet_tables
from parley.client.data.column_names import check_column_names, get_file_format
from parley.client.data.column_types import ArrayColumn
from parley.client.data.csv_guess import check_first_line
from parley.client.data.csv_text import read_csv_tables
from parley.client.data.data_sources import (
    MemoryTable,
    Source,
    SqlQuery,
    get_source_name,
    to_series,
)
from parley.client.data.memory_limit import MemoryLimit, compute_memory_limit
from parley.client.data.raw_table import DataError, RawTable
from parley.client.data.schema import FileFormat, Schema
from parley.client.data.sql_source import read_sql_tables


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
    used = schema.used
    wanted = [name for name in schema.columns if name in used or name in keep]
    wanted = wanted if only is None else list(only)
    memory_limit = compute_memory_limit(schema.file.max_gib)
    where = get_source_name(source)
    memory_limit.check_free_memory(where)
    names = check_column_names(source, schema, wanted, keep=keep, all_used=only is None)
    fits = partial(memory_limit.check_records, features=schema.dimension, path=where)
    on_row_count = fits if only is None and not sampled else None
    rows = size = 0
    for table in _open_tables(source, schema, names, wanted, memory_limit, on_row_count):
        memory_limit.check_free_memory(where)
        rows += table.rows
        size += table.size
        if sampled and only is None:
            memory_limit.check_bytes(size, path=where)
        else:
            fits(rows if only is None else table.rows)
        yield table
    if not rows:
        raise DataError("at least one record", "none", path=where)


def _open_tables(
    source: Source,
    schema: Schema,
    names: list[str],
    wanted: list[str],
    memory_limit: MemoryLimit,
    on_row_count: Callable[[int], None] | None,
) -> Iterator[RawTable]:
    if isinstance(source, MemoryTable):
        for label in schema.labels:
            if label in wanted:
                source.check_label(label)
        return _slice_columns({n: source.columns[n] for n in wanted}, schema, source.name)
    if isinstance(source, SqlQuery):
        return read_query_tables(source, schema.file, names, wanted)
    match get_file_format(source, schema.file):
        case "csv":
            return _read_csv_tables(source, schema.file, names, wanted)
        case "parquet":
            return read_parquet_tables(source, schema.file, wanted, memory_limit, on_row_count)
        case _:
            return _slice_columns(
                read_arrays(source, lambda _: wanted, memory_limit), schema, source
            )


def _read_csv_tables(
    source: str | Path, file: FileFormat, names: list[str], wanted: list[str]
) -> Iterator[RawTable]:
    """Yield the batches of a CSV. If a record has another width, check the header, too."""
    try:
        yield from read_csv_tables(source, file, names, wanted)
    except DataError as error:
        if error.row and not error.column:
            check_first_line(source, file.encoding, file.separator, header=file.header)
        raise


def read_query_tables(
    source: SqlQuery, file: FileFormat, names: list[str], wanted: list[str]
) -> Iterator[RawTable]:
    """Yield batches of a query's rows (`parley.client.data.sql_source.read_sql_tables`)."""
    return read_sql_tables(source, file, names, wanted)


def _slice_columns(
    columns: Mapping[str, NDArray[Any]], schema: Schema, path: str | Path
) -> Iterator[RawTable]:
    table = build_table(columns, schema, path=path)
    for begin in range(0, table.rows, BATCH_ROWS):
        yield table.slice_rows(begin, BATCH_ROWS)


def build_table(
    columns: Mapping[str, NDArray[Any]], schema: Schema, *, path: str | Path
) -> RawTable:
    """Build the table of columns in memory, `[N]` each (`[N, …]` for kind "array")."""
    rows = max((values.shape[0] for values in columns.values() if values.ndim), default=0)
    flat: dict[str, pl.Series] = {}
    arrays: dict[str, NDArray[Any]] = {}
    faults = []
    for name, values in columns.items():
        column = schema.columns[name]
        cell = column.shape if isinstance(column, ArrayColumn) else ()
        if values.shape != (rows, *cell):
            expected, got = f"an array of shape {(rows, *cell)}", f"shape {values.shape}"
            faults.append(DataError(expected, got, path=path, column=name))
        elif isinstance(column, ArrayColumn):
            arrays[name] = values
        elif values.dtype.kind not in "biufUO":
            got = f"dtype {values.dtype}"
            faults.append(DataError("numbers or text", got, path=path, column=name))
        else:
            flat[name] = to_series(name, values)
    if faults:
        raise DataError.combine(faults)
    return RawTable(
        path=str(path),
        frame=pl.DataFrame(flat),
        arrays=arrays,
        null_values=schema.file.null_values,
    )
