"""Tables as they lie on disk or in memory, read as a schema says, in batches.

A file is CSV (also .gz), Parquet or .npz; a database's query is read alike. A reader checks what
belongs to the file (there, whole, the columns of the schema and no others, no more than there is
room for) and hands the cells on unchanged; what they may contain is checked in
`parley.client.data.records`. Every fault is a `DataError` that names file, line or row, column,
what was expected and what came. No file is held whole: a batch of a CSV is some MiB of text, a
batch of a Parquet file or a query some ten thousand rows, and a .npz's arrays are measured before
they are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from numpy.typing import NDArray

from parley.client.data.binary_files import ROWS, parquet_tables, read_arrays
from parley.client.data.column_names import checked_names, file_format
from parley.client.data.column_types import ArrayColumn
from parley.client.data.csv_guess import check_first_line
from parley.client.data.csv_text import csv_tables
from parley.client.data.data_sources import Frame, Source, SqlQuery, name_of, series_of
from parley.client.data.memory_limit import Room, room_for
from parley.client.data.raw_table import DataError, Table
from parley.client.data.schema import FileFormat, Schema
from parley.client.data.sql_source import sql_tables


def read_tables(
    source: Source,
    schema: Schema,
    *,
    keep: Collection[str] = (),
    sampled: bool = False,
    only: Sequence[str] | None = None,
) -> Iterator[Table]:
    """The columns of a file that the schema uses, and those to `keep`, in batches.

    What is in memory, or a query gives, is read alike; columns to ignore need not be there. There
    must be room for the features of all records or, if they are to be `sampled`, for the cells that
    the sample is drawn from. With `only`, these columns must be there, whatever else is, and
    batches come one by one, in any number.
    """
    used = schema.used
    wanted = [name for name in schema.columns if name in used or name in keep]
    wanted = wanted if only is None else list(only)
    room = room_for(schema.file.max_gib)
    where = name_of(source)
    room.check_left(where)
    names = checked_names(source, schema, wanted, keep=keep, all_used=only is None)
    fits = partial(room.check_records, features=schema.dimension, path=where)
    announced = fits if only is None and not sampled else None
    rows = size = 0
    for table in _tables(source, schema, names, wanted, room, announced):
        room.check_left(where)
        rows += table.rows
        size += table.size
        if sampled and only is None:
            room.check_bytes(size, path=where)
        else:
            fits(rows if only is None else table.rows)
        yield table
    if not rows:
        raise DataError("at least one record", "none", path=where)


def _tables(
    source: Source,
    schema: Schema,
    names: list[str],
    wanted: list[str],
    room: Room,
    announced: Callable[[int], None] | None,
) -> Iterator[Table]:
    if isinstance(source, Frame):
        return _slices({n: source.columns[n] for n in wanted}, schema, source.name)
    if isinstance(source, SqlQuery):
        return query_tables(source, schema.file, names, wanted)
    match file_format(source, schema.file):
        case "csv":
            return _csv_tables(source, schema.file, names, wanted)
        case "parquet":
            return parquet_tables(source, schema.file, wanted, room, announced)
        case _:
            return _slices(read_arrays(source, lambda _: wanted, room), schema, source)


def _csv_tables(
    source: str | Path, file: FileFormat, names: list[str], wanted: list[str]
) -> Iterator[Table]:
    """Batches of a CSV. A record of another width may be the header's fault."""
    try:
        yield from csv_tables(source, file, names, wanted)
    except DataError as error:
        if error.row and not error.column:
            check_first_line(source, file.encoding, file.separator, header=file.header)
        raise


def query_tables(
    source: SqlQuery, file: FileFormat, names: list[str], wanted: list[str]
) -> Iterator[Table]:
    """Batches of a query's rows (`parley.client.data.sql_source.sql_tables`)."""
    return sql_tables(source, file, names, wanted)


def _slices(
    columns: Mapping[str, NDArray[Any]], schema: Schema, path: str | Path
) -> Iterator[Table]:
    table = table_of(columns, schema, path=path)
    for begin in range(0, table.rows, ROWS):
        yield table.part(begin, ROWS)


def table_of(columns: Mapping[str, NDArray[Any]], schema: Schema, *, path: str | Path) -> Table:
    """The table of columns in memory, `[N]` each (`[N, …]` for kind "array")."""
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
            flat[name] = series_of(name, values)
    if faults:
        raise DataError.of(faults)
    return Table(
        path=str(path),
        frame=pl.DataFrame(flat),
        arrays=arrays,
        null_values=schema.file.null_values,
    )
