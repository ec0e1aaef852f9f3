"""Tables of columns in memory, in batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from numpy.typing import NDArray

from parley.client.data.column_types import ArrayColumn
from parley.client.data.data_error import DataError
from parley.client.data.raw_table import RawTable
from parley.client.data.schema import Schema
from parley.client.data.table_formats import ReadRequest, TableFormat

if TYPE_CHECKING:
    from parley.client.data.data_sources import Array, MemoryTable

BATCH_ROWS = 65536
"""Rows per batch of an .npz file or a table in memory."""

_SIGNED_64, _SIGNED_128 = 2**63, 2**127


def slice_columns(
    columns: Mapping[str, NDArray[Any]], schema: Schema, path: str | Path
) -> Iterator[RawTable]:
    """Yield columns in memory as tables, in batches."""
    table = build_table(columns, schema, path=path)
    for begin in range(0, table.rows, BATCH_ROWS):
        yield table.slice_rows(begin, BATCH_ROWS)


def build_table(columns: Mapping[str, NDArray[Any]], schema: Schema, path: str | Path) -> RawTable:
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
    frame, empty = pl.DataFrame(flat), schema.file.null_values
    return RawTable(path=str(path), frame=frame, arrays=arrays, null_values=empty)


def to_series(name: str, values: Array) -> pl.Series:
    """Return a column of a frame, `[N]`, as a series. Whole numbers keep all their digits."""
    if values.dtype.kind != "O":
        return pl.Series(name, values)
    cells = values.tolist()
    present = [value for value in cells if value is not None]
    if not all(math.isfinite(value) and value == int(value) for value in present):
        return pl.Series(name, [None if value is None else float(value) for value in cells])
    whole = [None if value is None else int(value) for value in cells]
    largest = max(map(abs, map(int, present)), default=0)
    if largest < _SIGNED_64:
        return pl.Series(name, whole, dtype=pl.Int64)
    if largest < _SIGNED_128:
        return pl.Series(name, whole, dtype=pl.Int128)
    return pl.Series(name, [None if value is None else str(value) for value in whole], pl.String)


def _read_memory_tables(source: MemoryTable, request: ReadRequest) -> Iterator[RawTable]:
    for label in request.schema.labels:
        if label in request.wanted:
            source.check_label(label)
    columns = {name: source.columns[name] for name in request.wanted}
    return slice_columns(columns, request.schema, source.name)


MEMORY_FORMAT = TableFormat(
    read_names=lambda source, _: list(source.columns), read_tables=_read_memory_tables
)
