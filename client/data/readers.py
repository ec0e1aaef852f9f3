"""Tables as they lie on disk: CSV (also .gz), Parquet and .npz, read as a schema says, in batches.

A reader checks what belongs to the file (there, whole, the columns of the schema and no others, no
more than there is room for) and hands the cells on unchanged; what they may contain is checked in
`parley.client.data.records`. Every fault is a `DataError` that names file, line or row, column,
what was
expected and what came. No file is held whole: a batch of a CSV is some MiB of text, a batch of a
Parquet file some ten thousand rows, and a .npz's arrays are measured before they are loaded.
"""

from __future__ import annotations

import math
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.columns import ArrayColumn
from parley.client.data.csv_text import csv_tables
from parley.client.data.frames import Frame
from parley.client.data.memory import Room, room_for
from parley.client.data.schema import Schema
from parley.client.data.sniffing import other_separator
from parley.client.data.table import DataError, Table

if TYPE_CHECKING:
    import polars as pl

_SUFFIXES = {
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


CheckNames = Callable[[str | Path, list[str], Schema], None]


def file_format(path: str | Path, schema: Schema | None = None) -> str:
    """ "csv", "parquet" or "npz": what the schema says, else the suffix.

    Raises:
        DataError: neither says.
    """
    if schema is not None and schema.file.format is not None:
        return schema.file.format
    name = Path(path).name.lower()
    for suffix, kind in _SUFFIXES.items():
        if name.endswith(suffix):
            return kind
    raise DataError(
        "a suffix .csv, .tsv, .txt, .csv.gz, .parquet or .npz (or file.format in the schema)",
        repr(Path(path).name),
        path=path,
    )


def read_tables(
    path: str | Path | Frame,
    schema: Schema,
    *,
    keep: str | None = None,
    sampled: bool = False,
    only: Sequence[str] | None = None,
) -> Iterator[Table]:
    """The columns of the file at `path` that the schema uses, and column `keep`, in batches.

    What is in memory is read alike; columns to ignore need not be there.

    There must be room for the features of all records or, if they are to be `sampled`, for the
    cells that the sample is drawn from. With `only`, these columns must be there, whatever else is,
    and batches come one by one, in any number.

    Raises:
        DataError: no such file, not whole, no rows, columns missing, twice or not in the schema,
            lines with too few or too many fields, more than there is room for.
    """
    if only is not None:
        wanted, check = list(only), _check_wanted(list(only))
    else:
        wanted = [n for n in schema.columns if n in schema.used or n == keep]
        check = _check_used if isinstance(path, Frame) else _check_names
        if keep is not None and isinstance(path, Frame) and keep not in path.columns:
            raise MissingColumns([keep], path=path.name)
    room = room_for(schema.file.max_gib)
    where = path.name if isinstance(path, Frame) else path
    room.check_left(where)
    if isinstance(path, Frame):
        tables = _frame_tables(path, schema, wanted, check)
    else:
        tables = _file_tables(path, schema, wanted, room, check, whole=not sampled and only is None)
    rows = size = 0
    for table in tables:
        room.check_left(where)
        rows += table.rows
        size += table.size
        if only is not None:
            room.check_records(table.rows, features=schema.dimension, path=where)
        elif sampled:
            room.check_bytes(size, path=where)
        else:
            room.check_records(rows, features=schema.dimension, path=where)
        yield table
    if not rows:
        raise DataError("at least one record", "none", path=where)


def _file_tables(
    path: str | Path,
    schema: Schema,
    wanted: list[str],
    room: Room,
    check: CheckNames,
    *,
    whole: bool,
) -> Iterator[Table]:
    match file_format(path, schema):
        case "csv":
            return _csv_tables(path, schema, wanted, check)
        case "parquet":
            return _parquet_tables(path, schema, wanted, room if whole else None, check)
        case _:
            return _npz_tables(path, schema, wanted, room, check)


def _frame_tables(
    frame: Frame, schema: Schema, wanted: list[str], check: CheckNames
) -> Iterator[Table]:
    check(frame.name, list(frame.columns), schema)
    table = table_of({name: frame.columns[name] for name in wanted}, schema, path=frame.name)
    for begin in range(0, table.rows, _ROWS):
        yield table.take(np.arange(begin, min(begin + _ROWS, table.rows)))


def _check_wanted(wanted: list[str]) -> CheckNames:
    """Whether a file has the columns that are wanted, whatever else it has."""

    def check(path: str | Path, names: list[str], schema: Schema) -> None:
        del schema
        _check_once(path, names)
        if missing := [name for name in wanted if name not in names]:
            raise MissingColumns(missing, path=path)

    return check


def _check_used(path: str | Path, names: list[str], schema: Schema) -> None:
    """As `_check_names`; what is ignored need not be there."""
    ignored = [n for n in schema.columns if n not in schema.used and n not in names]
    _check_names(path, [*names, *ignored], schema)


def _check_once(path: str | Path, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError("every column name once", f"{twice} more than once", path=path)


def _check_names(path: str | Path, names: list[str], schema: Schema) -> None:
    _check_once(path, names)
    missing = [name for name in schema.columns if name not in names]
    extra = [name for name in names if name not in schema.columns]
    if missing or extra:
        got = [f"no column {missing}"] if missing else []
        if extra:
            got.append(f'{extra}, not in the schema (kind = "ignore" leaves a column out)')
        raise DataError("the columns of the schema", " and ".join(got), path=path)


def _csv_tables(
    path: str | Path, schema: Schema, wanted: list[str], check: CheckNames
) -> Iterator[Table]:
    def choose(header: list[str] | None, width: int) -> list[str]:
        columns = list(schema.columns) if header is None else header
        if header is None and width == len(columns) - 1 and schema.label_column not in wanted:
            columns.remove(schema.label_column)
        # Uncut, and not by intent: of all that does not fit, this is what there is to say.
        fits = len(columns) == width and set(wanted) <= set(columns)
        if width == 1 and not fits and (fault := other_separator(path, schema.file)):
            raise fault
        if header is not None:
            check(path, header, schema)
        return columns

    for batch, frame in csv_tables(path, schema.file, choose):
        yield Table(
            path=str(path),
            frame=frame[wanted],  # by exact names, which `select` takes for patterns
            arrays={},
            typed=False,
            null_values=schema.file.null_values,
            decimal=schema.file.decimal,
            row_unit="line",
            row_number=batch.line_of,
        )


def _parquet_tables(
    path: str | Path, schema: Schema, wanted: list[str], room: Room | None, check: CheckNames
) -> Iterator[Table]:
    def choose(names: list[str], rows: int) -> list[str]:
        check(path, names, schema)
        if room is not None:
            room.check_records(rows, features=schema.dimension, path=path)
        return wanted

    for begin, frame in parquet_frames(path, choose):
        yield Table(
            path=str(path),
            frame=frame,
            arrays={},
            null_values=schema.file.null_values,
            row_number=_counted_from(begin),
        )


def _counted_from(begin: int) -> Callable[[int], int]:
    return lambda row: begin + row + 1


def parquet_frames(
    path: str | Path, choose: Callable[[list[str], int], list[str]]
) -> Iterator[tuple[int, pl.DataFrame]]:
    """Batches of a Parquet file: the first row's place (from 0) and the columns that are wanted.

    Args:
        path: of the file.
        choose: gives the wanted columns from the names of all and the number of rows, which the
            file's footer states.

    Raises:
        DataError: the file isn't there or isn't whole.
    """
    import polars as pl  # noqa: PLC0415 - start-up: `plan` reads no table (polars takes .11 s)

    if not Path(path).is_file():
        got = "Is a directory" if Path(path).is_dir() else "nothing there"
        raise DataError("a file", got, path=path)
    try:
        names = list(pl.read_parquet_schema(path))
        scan = pl.scan_parquet(path, glob=False)
        rows = int(scan.select(pl.len()).collect().item())
        wanted = pl.nth([names.index(name) for name in choose(names, rows)])  # as above
        for begin in range(0, rows, _ROWS):
            yield begin, scan.select(wanted).slice(begin, _ROWS).collect()
    # What polars raises on damaged input; PanicException is no Exception.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        got = (str(error).splitlines() or ["damaged data"])[0]
        raise DataError("a Parquet file", got, path=path) from error


def _npz_tables(
    path: str | Path, schema: Schema, wanted: list[str], room: Room, check: CheckNames
) -> Iterator[Table]:
    def choose(names: list[str]) -> list[str]:
        check(path, names, schema)
        return wanted

    table = table_of(read_arrays(path, choose, room), schema, path=path)
    for begin in range(0, table.rows, _ROWS):
        yield table.take(np.arange(begin, min(begin + _ROWS, table.rows)))


_ONE_HEADER = threading.Lock()
"""numpy parses headers by `ast`: before Python 3.11.8 threads disturb each other (gh-106905)."""


def read_arrays(
    path: str | Path, choose: Callable[[list[str]], list[str]], room: Room
) -> dict[str, NDArray[Any]]:
    """The arrays of a .npz file that `choose` picks from their names.

    Raises:
        DataError: not a .npz file, damaged, one of the arrays holds Python objects, or they take
            more memory than there is room for.
    """
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
    """Bytes of the array, as its header states them.

    Raises:
        ValueError: no such header, or Python objects.
    """
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
    """The table of columns that are in memory already, `[N]` each (`[N, …]` for kind "array").

    Raises:
        DataError: columns of different lengths or of a shape that the schema doesn't say; all
            are listed.
    """
    import polars as pl  # noqa: PLC0415 - start-up: `plan` reads no table (polars takes .11 s)

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
