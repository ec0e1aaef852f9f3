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

import math
import threading
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import add
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from parley.client.data.columns import ArrayColumn
from parley.client.data.csv_guess import other_separator
from parley.client.data.csv_text import csv_names, csv_tables
from parley.client.data.frames import Frame, Source, SqlQuery, name_of
from parley.client.data.memory import Room, room_for
from parley.client.data.schema import FileFormat, Schema
from parley.client.data.table import DataError, Table

_SUFFIXES: dict[str, Literal["csv", "parquet", "npz"]] = {
    **dict.fromkeys((".csv", ".tsv", ".txt", ".gz"), "csv"),
    ".parquet": "parquet",
    ".npz": "npz",
}

_ROWS = 65536
"""Rows of a batch of Parquet, .npz or memory."""


class MissingColumns(DataError):
    """Columns that a model reads and that are not there: `missing`."""

    def __init__(self, missing: Sequence[str], *, path: str | Path) -> None:
        super().__init__("the columns that the model reads", f"no column {missing}", path=path)
        self.missing = tuple(missing)


def file_format(path: str | Path, file: FileFormat) -> str:
    """What the schema says, else the suffix."""
    name = Path(path).name
    suffixed = [kind for suffix, kind in _SUFFIXES.items() if name.lower().endswith(suffix)]
    if file.format is None and not suffixed:
        raise DataError(
            "a suffix .csv, .tsv, .txt, .csv.gz, .parquet or .npz (or file.format in the schema)",
            repr(name),
            path=path,
        )
    return file.format or suffixed[0]


def names_in(source: Source, file: FileFormat) -> list[str]:
    """The names of all columns that are there, maybe one twice."""
    if isinstance(source, Frame):
        return list(source.columns)
    if isinstance(source, SqlQuery):
        from parley.client.data.sql import sql_names  # noqa: PLC0415 - start-up: files need no SQLAlchemy (.2 s)

        return sql_names(source)
    match file_format(source, file):
        case "csv":
            return csv_names(source, file)
        case "parquet":
            with _parquet(source) as polars:
                return list(polars.read_parquet_schema(source))
        case _:
            found: list[str] = []

            def note(names: list[str]) -> list[str]:
                found.extend(names)
                return []

            read_arrays(source, note, room_for(math.inf))
            return found


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
    wanted = [n for n in schema.columns if n in schema.used or n in keep]
    wanted = wanted if only is None else list(only)
    room = room_for(schema.file.max_gib)
    where = name_of(source)
    room.check_left(where)
    names = _checked_names(source, schema, wanted, keep=keep, all_used=only is None)
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
            return csv_tables(source, schema.file, names, wanted)
        case "parquet":
            return parquet_tables(source, schema.file, wanted, announced)
        case _:
            return _slices(read_arrays(source, lambda _: wanted, room), schema, source)


def query_tables(
    source: SqlQuery, file: FileFormat, names: list[str], wanted: list[str]
) -> Iterator[Table]:
    """Batches of a query's rows (`parley.client.data.sql.sql_tables`)."""
    from parley.client.data.sql import sql_tables  # noqa: PLC0415 - as in `names_in`

    return sql_tables(source, file, names, wanted)


def _slices(
    columns: Mapping[str, NDArray[Any]], schema: Schema, path: str | Path
) -> Iterator[Table]:
    table = table_of(columns, schema, path=path)
    for begin in range(0, table.rows, _ROWS):
        yield table.part(begin, _ROWS)


def _checked_names(
    source: Source,
    schema: Schema,
    wanted: list[str],
    *,
    keep: Collection[str],
    all_used: bool,
) -> list[str]:
    """The names of all columns that are there: of a CSV without a header by the schema's order."""
    names = names_in(source, schema.file)
    where, file = name_of(source), isinstance(source, str | Path)
    if not isinstance(source, str | Path):
        absent = [name for name in keep if name not in names]
        if all_used and absent:
            raise MissingColumns(absent, path=where)
    elif file_format(source, schema.file) == "csv":
        width = len(names)
        if not schema.file.header:
            names = list(schema.columns)
            if width == len(names) - 1 and schema.label_column not in wanted:
                names.remove(schema.label_column)
        # Uncut, and not by intent: of all that does not fit, this is what there is to say.
        fits = len(names) == width and set(wanted) <= set(names)
        if width == 1 and not fits and (fault := other_separator(source, schema.file)):
            raise fault
    check_once(names, path=where)
    if not all_used:
        if missing := [name for name in wanted if name not in names]:
            raise MissingColumns(missing, path=where)
        return names
    needed = schema.columns if file else schema.used
    got = []
    if missing := [name for name in needed if name not in names]:
        got.append(f"no column {missing}")
    if extra := [name for name in names if name not in schema.columns]:
        got.append(f'{extra}, not in the schema (kind = "ignore" leaves a column out)')
    if got:
        raise DataError("the columns of the schema", " and ".join(got), path=where)
    return names


def check_once(names: list[str], *, path: str | Path) -> None:
    """Raises DataError where a name stands twice."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        expected = "every column name once (in a query, AS gives one another name)"
        raise DataError(expected, f"{twice} more than once", path=path)


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
        got = (str(error).splitlines() or ["damaged data"])[0]
        raise DataError("a Parquet file", got, path=path) from error


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
        for begin in range(0, rows, _ROWS):
            yield Table(
                path=str(path),
                frame=scan.select(columns).slice(begin, _ROWS).collect(),
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
        elif values.dtype.kind not in "biufU":
            got = f"dtype {values.dtype}"
            faults.append(DataError("numbers or text", got, path=path, column=name))
        else:
            flat[name] = pl.Series(name, values)
    if faults:
        raise DataError.of(faults)
    return Table(
        path=str(path),
        frame=pl.DataFrame(flat),
        arrays=arrays,
        null_values=schema.file.null_values,
    )
