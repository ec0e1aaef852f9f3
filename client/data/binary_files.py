"""Parquet and .npz: in batches of rows, and as arrays that are measured before they are loaded."""

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

from parley.client.contract.os_errors import describe_cause
from parley.client.data.memory import Room
from parley.client.data.schema import FileFormat
from parley.client.data.table import DataError, Table

ROWS = 65536
"""Rows of a batch of Parquet, .npz or memory."""


@contextmanager
def _parquet(path: str | Path) -> Iterator[Any]:
    """Polars, to read a file that is there."""
    if not Path(path).is_file():
        got = "Is a directory" if Path(path).is_dir() else "nothing there"
        raise DataError("a file", got, path=path)
    try:
        yield pl
    # What polars raises on damaged input; PanicException is no Exception.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        got = (describe_cause(error).splitlines() or ["damaged data"])[0]
        raise DataError("a Parquet file", got, path=path) from error


def parquet_names(path: str | Path) -> list[str]:
    """The names of its columns."""
    with _parquet(path) as polars:
        return list(polars.read_parquet_schema(path))


def parquet_tables(
    path: str | Path,
    file: FileFormat,
    wanted: list[str],
    announced: Callable[[int], None] | None = None,
) -> Iterator[Table]:
    """Batches of the columns that are wanted; `announced` is told the footer's number of rows."""
    with _parquet(path) as polars:
        scan = polars.scan_parquet(path, glob=False)
        rows = int(scan.select(polars.len()).collect().item())
        if announced is not None:
            announced(rows)
        names = list(polars.read_parquet_schema(path))
        columns = polars.nth([names.index(name) for name in wanted])  # `select` takes patterns
        for begin in range(0, rows, ROWS):
            yield Table(
                path=str(path),
                frame=scan.select(columns).slice(begin, ROWS).collect(),
                arrays={},
                null_values=file.null_values,
                row_number=partial(add, begin + 1),
            )


_ONE_HEADER = threading.Lock()
"""numpy parses headers by `ast`: before Python 3.11.8 threads disturb each other (gh-106905)."""


def read_arrays(
    path: str | Path, choose: Callable[[list[str]], list[str]], room: Room
) -> dict[str, NDArray[Any]]:
    """The arrays of a .npz file that `choose` picks from their names, where there is room."""
    if not Path(path).is_file():
        raise DataError("a file", "nothing there", path=path)
    try:
        with _ONE_HEADER, zipfile.ZipFile(path) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
            wanted = choose([name.removesuffix(".npy") for name in members])
            # By the headers, before anything is loaded: few bytes can say many.
            size = sum(_array_size(archive, f"{name}.npy") for name in wanted)
        room.check_bytes(size, path=path)
        # From the file, not from its bytes in memory: a large archive would be held twice.
        with _ONE_HEADER, np.load(path, allow_pickle=False) as loaded:
            return {name: loaded[name] for name in wanted}
    except DataError:
        raise
    except Exception as error:
        # numpy parses a header as Python text, zipfile and zlib parse the rest: what they raise on
        # damaged input is no list that one could write down, and each of it means the same.
        got = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError("a .npz file of plain arrays", got, path=path) from error


def _array_size(archive: zipfile.ZipFile, member: str) -> int:
    """Bytes of the array, as its header states them."""
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:
            raise ValueError(f"Expected version 1.0 or 2.0 of the .npy format, got {version}.")
        shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("Expected numbers or text, got Python objects.")
    return math.prod(shape) * dtype.itemsize
