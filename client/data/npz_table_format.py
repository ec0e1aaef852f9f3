"""The .npz format: arrays of a file as the columns of a table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from parley.client.data.memory_limit import compute_memory_limit
from parley.client.data.memory_table_format import slice_columns
from parley.client.data.npz_arrays import read_arrays
from parley.client.data.raw_table import RawTable
from parley.client.data.schema import FileFormat
from parley.client.data.table_formats import ReadRequest, TableFormat


def _read_names(source: str | Path, _: FileFormat) -> list[str]:
    found: list[str] = []

    def note(names: list[str]) -> list[str]:
        found.extend(names)
        return []

    read_arrays(source, note, compute_memory_limit(math.inf))
    return found


def _read_tables(source: str | Path, request: ReadRequest) -> Iterator[RawTable]:
    columns = read_arrays(source, lambda _: list(request.wanted), request.memory_limit)
    return slice_columns(columns, request.schema, source)


FORMAT = TableFormat(read_names=_read_names, read_tables=_read_tables)
