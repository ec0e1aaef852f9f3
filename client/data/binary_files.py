"""Readers of Parquet and .npz files: Parquet in batches of rows, arrays measured before loading."""

from __future__ import annotations

import math
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from parley.client.data.memory_limit import MemoryLimit
from parley.client.data.parquet_sizes import RowGroupSize, measure_row_groups
from parley.client.data.raw_table import DataError, RawTable
from parley.client.data.schema import FileFormat
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


def read_parquet_names(path: str | Path) -> list[str]:
    """Return the names of the file's columns."""
    with _open_parquet(path) as polars:
        return list(polars.read_parquet_schema(path))


def read_parquet_tables(
    path: str | Path,
    file: FileFormat,
    wanted: list[str],
    memory_limit: MemoryLimit,
    on_row_count: Callable[[int], None] | None = None,
) -> Iterator[RawTable]:
    """Yield batches of the wanted columns, if each batch's pages fit in `memory_limit`.

    Args:
        on_row_count: called with the footer's number of rows before any row is read.
    """
    with _open_parquet(path) as polars:
        _check_types(polars.read_parquet_schema(path), wanted, path)
        groups = _measure_row_groups(path, wanted)
        scan = polars.scan_parquet(path, glob=False)
        rows = int(scan.select(polars.len()).collect().item())
        if on_row_count is not None:
            on_row_count(rows)
        names = list(polars.read_parquet_schema(path))
        columns = polars.nth([names.index(name) for name in wanted])  # `select` takes patterns
        for begin in range(0, rows, BATCH_ROWS):
            memory_limit.check_bytes(
                _compute_page_bytes(groups, begin, begin + BATCH_ROWS), path=path
            )
            frame = scan.select(columns).slice(begin, BATCH_ROWS).collect()
            for first, part in _split_by_text_size(frame, path):
                yield RawTable(
                    path=str(path),
                    frame=part,
                    arrays={},
                    null_values=file.null_values,
                    row_number=partial(add, begin + first + 1),
                )


def _check_types(schema: Any, wanted: list[str], path: str | Path) -> None:
    for name in wanted:
        kind = schema[name]
        if kind.is_nested() or kind in (pl.Binary, pl.Object):
            expected = "numbers, text, truth values or dates"
            raise DataError(expected, f"type {kind}", path=path, column=name)


def _measure_row_groups(path: str | Path, wanted: list[str]) -> list[RowGroupSize]:
    try:
        return measure_row_groups(path, wanted)
    except ValueError as error:
        raise DataError("a Parquet file", str(error), path=path) from error


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


def _split_by_text_size(
    frame: pl.DataFrame, path: str | Path
) -> Iterator[tuple[int, pl.DataFrame]]:
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
        yield (
            int(first),
            frame.slice(int(first), int(last - first)).with_columns(
                texts.cast(pl.String)  # so that each cell takes, and counts as, its whole text
            ),
        )


_BATCH_TEXT_BYTES = 2**24
"""Maximum bytes of a batch's texts."""
_MAX_CELL_BYTES = 2**19
"""Maximum bytes of a cell: the most that 131,072 characters of a CSV can take."""
_TEXT_OBJECT_BYTES = 64
"""Bytes of a short text as a Python object, including its slot in a list."""

_HEADER_LOCK = threading.Lock()
"""Lock for numpy's header parser, which uses `ast`. Before Python 3.11.8 threads disturb each other
there (gh-106905).
"""


def read_arrays(
    path: str | Path, choose: Callable[[list[str]], list[str]], memory_limit: MemoryLimit
) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file that `choose` picks from their names, if they fit."""
    if not Path(path).is_file():
        raise DataError("a file", "nothing there", path=path)
    try:
        with _HEADER_LOCK, zipfile.ZipFile(path) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
            if len(set(members)) < len(members):
                raise ValueError("two arrays of one name")
            wanted = choose([name.removesuffix(".npy") for name in members])
            # Sizes come from the headers, before anything is loaded: few bytes can expand to many.
            size = sum(_read_array_size(archive, f"{name}.npy") for name in wanted)
            memory_limit.check_bytes(size, path=path)
            # Read the members that were measured. By an array's name, numpy could open another one.
            return {name: _read_array(archive, f"{name}.npy") for name in wanted}
    except DataError:
        raise
    except Exception as error:
        # numpy parses a header as Python text; zipfile and zlib parse the rest. Their errors on
        # damaged input cannot be listed, and all mean the same.
        got = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError("a .npz file of plain arrays", got, path=path) from error


def _read_array(archive: zipfile.ZipFile, member: str) -> NDArray[Any]:
    with archive.open(member) as stream:
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def _read_array_size(archive: zipfile.ZipFile, member: str) -> int:
    """Return the bytes that the array takes while it is read, according to its header."""
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:
            raise ValueError(f"version {version} of the .npy format, which is none of 1.0 and 2.0")
        shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("Python objects, which are neither numbers nor text")
    if dtype.itemsize == 0 or min(shape, default=0) < 0:
        raise ValueError(f"values of no bytes: {dtype} of shape {shape}")
    # Text becomes one Python object per value on its way into a column.
    value_bytes = dtype.itemsize + (_TEXT_OBJECT_BYTES if dtype.kind == "U" else 0)
    return math.prod(shape) * value_bytes
