"""Reader of Parquet files, in batches of rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from parley.client.data.data_error import DataError
from parley.client.data.parquet_sizes import RowGroupSize, measure_row_groups
from parley.client.data.raw_table import RawTable
from parley.client.data.schema import FileFormat
from parley.client.data.table_formats import ReadRequest, TableFormat
from parley.safe_io.os_errors import describe_cause

BATCH_ROWS = 65536
"""Rows per batch of a Parquet file, an .npz file or a table in memory."""


@contextmanager
def _open_parquet(path: str | Path) -> Iterator[Any]:
    """Yield polars for reading a file that exists, and convert its errors to DataError."""
    if not Path(path).is_file():
        got = "Is a directory" if Path(path).is_dir() else "nothing there"
        raise DataError("a file", got, path=path)
    try:
        yield pl
    # Polars raises these on damaged input. PanicException is not an Exception.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        got = (describe_cause(error).splitlines() or ["damaged data"])[0]
        raise DataError("a Parquet file", got, path=path) from error


def _read_names(path: str | Path, _: FileFormat) -> list[str]:
    """Return the names of the file's columns."""
    with _open_parquet(path) as polars:
        return list(polars.read_parquet_schema(path))


def _read_tables(path: str | Path, request: ReadRequest) -> Iterator[RawTable]:
    """Yield batches of the wanted columns, if each batch's pages fit in the memory limit.

    `on_row_count` is called with the footer's number of rows before any row is read.
    """
    wanted = list(request.wanted)
    with _open_parquet(path) as polars:
        _check_types(polars.read_parquet_schema(path), wanted, path)
        try:
            groups = measure_row_groups(path, wanted)
        except ValueError as error:
            raise DataError("a Parquet file", str(error), path=path) from error
        scan = polars.scan_parquet(path, glob=False)
        rows = int(scan.select(polars.len()).collect().item())
        if request.on_row_count is not None:
            request.on_row_count(rows)
        names = list(polars.read_parquet_schema(path))
        columns = polars.nth([names.index(name) for name in wanted])  # `select` takes patterns
        for begin in range(0, rows, BATCH_ROWS):
            size = _compute_page_bytes(groups, begin, begin + BATCH_ROWS)
            request.memory_limit.check_bytes(size, path=path)
            frame = scan.select(columns).slice(begin, BATCH_ROWS).collect()
            for first, part in _split_by_size(frame, path):
                yield RawTable(
                    path=str(path),
                    frame=part,
                    null_values=request.schema.file.null_values,
                    row_number=partial(add, begin + first + 1),
                )


def _check_types(schema: Any, wanted: list[str], path: str | Path) -> None:
    for name in wanted:
        kind = schema[name]
        if kind.is_nested() or kind in (pl.Binary, pl.Object):
            expected = "numbers, text, truth values or dates"
            raise DataError(expected, f"type {kind}", path=path, column=name)


def _compute_page_bytes(groups: list[RowGroupSize], first: int, last: int) -> int:
    """Return the bytes of the pages of all row groups that have a row from `first` to `last` - 1.

    Row groups without rows count, too.
    """
    begin = total = 0
    for group in groups:
        if begin < last and begin + group.rows >= first:
            total += group.bytes
        begin += group.rows
    return total


def _split_by_size(frame: pl.DataFrame, path: str | Path) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield each part's first row and the part, with at most `_BATCH_TEXT_BYTES` of text each.

    A file stores a repeated text once, and so does a batch. The objects made of its cells do not
    share it.
    """
    sizes = np.zeros(frame.height, np.int64)
    for name in frame.columns:
        column = frame[name]
        if isinstance(column.dtype, pl.Categorical | pl.Enum):
            lengths = column.cat.len_bytes()
        elif column.dtype == pl.String:
            lengths = column.str.len_bytes()
        else:
            continue
        if (longest := int(lengths.cast(pl.Int64).max() or 0)) > _MAX_CELL_BYTES:  # type: ignore[arg-type]
            expected = f"texts of at most {_MAX_CELL_BYTES:,} bytes"
            raise DataError(expected, f"one of {longest:,}", path=path, column=name)
        sizes += lengths.fill_null(0).to_numpy()
    part = np.cumsum(sizes) // _BATCH_TEXT_BYTES
    begins = np.flatnonzero(np.diff(part, prepend=-1))
    for first, last in zip(begins, [*begins[1:], frame.height], strict=True):
        texts = pl.selectors.categorical() | pl.selectors.enum()
        rows = frame.slice(int(first), int(last - first))
        # As strings, so that each cell takes, and counts as, its whole text.
        yield int(first), rows.with_columns(texts.cast(pl.String))


_BATCH_TEXT_BYTES = 2**24
"""Maximum bytes of a batch's texts."""
_MAX_CELL_BYTES = 2**19
"""Maximum bytes of a cell: the most that 131,072 characters of a CSV can take."""


FORMAT = TableFormat(read_names=_read_names, read_tables=_read_tables)
