"""Tables as they lie on disk: CSV (also .gz), Parquet and .npz, read as a schema says.

A reader checks what belongs to the file (there, whole, the columns of the schema and no others)
and hands the cells on unchanged; what they may contain is checked in `client.records`. Every fault
is a `DataError` that names file, line or row, column, what was expected and what came.
"""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from client.columns import ArrayColumn, NumericColumn
from client.schema import Schema
from client.table import DataError, Table

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "file_format",
    "read_arrays",
    "read_bytes",
    "read_table",
    "table_of",
]

_SUFFIXES = {".csv": "csv", ".csv.gz": "csv", ".gz": "csv", ".parquet": "parquet", ".npz": "npz"}


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
        "a suffix .csv, .csv.gz, .parquet or .npz (or file.format in the schema)",
        repr(Path(path).name),
        path=path,
    )


def read_table(path: str | Path, schema: Schema, *, keep: str | None = None) -> Table:
    """The columns of the file at `path` that the schema uses, and column `keep`.

    Raises:
        DataError: no such file, not whole, no rows, columns missing, twice or not in the schema,
            lines with too few or too many fields.
    """
    wanted = [n for n, c in schema.columns.items() if c.kind != "ignore" or n == keep]
    match file_format(path, schema):
        case "csv":
            table = _read_csv(path, schema, wanted)
        case "parquet":
            table = _read_parquet(path, schema, wanted)
        case _:
            table = _read_npz(path, schema, wanted)
    if table.rows == 0:
        raise DataError("at least one record", "none", path=path)
    return table


def read_bytes(path: str | Path) -> bytes:
    """The file's content, decompressed where it is gzip.

    Raises:
        DataError: the file isn't there, can't be read, or its compressed data are damaged.
    """
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise DataError("a file", "nothing there", path=path) from None
    except OSError as error:
        raise DataError("a readable file", error.strerror, path=path) from error
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError("whole gzip data", str(error).rstrip("."), path=path) from error


def _check_names(path: str | Path, names: list[str], schema: Schema) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError("every column name once", f"{twice} more than once", path=path)
    missing = [name for name in schema.columns if name not in names]
    extra = [name for name in names if name not in schema.columns]
    if missing or extra:
        got = [f"no column {missing}"] if missing else []
        if extra:
            got.append(f'{extra}, not in the schema (kind = "ignore" leaves a column out)')
        raise DataError("the columns of the schema", " and ".join(got), path=path)


def _read_csv(path: str | Path, schema: Schema, wanted: list[str]) -> Table:
    import polars as pl

    content = read_bytes(path).rstrip(b"\r\n")
    if not content:
        raise DataError("at least one record", "an empty file", path=path)
    lines = CsvLines(content, schema.file.separator, header=schema.file.header)
    names = lines.header_names(path) if schema.file.header else list(schema.columns)
    if schema.file.header:
        _check_names(path, names, schema)

    def numbers(name: str) -> bool:
        return isinstance(schema.columns[name], NumericColumn)

    def parse(typed: bool) -> pl.DataFrame:
        dtypes = {n: pl.Float64 if typed and numbers(n) else pl.String for n in names}
        return pl.read_csv(
            content,
            has_header=schema.file.header,
            separator=schema.file.separator,
            schema=dtypes,
            truncate_ragged_lines=False,
            null_values=list(schema.file.null_values),
        )

    try:
        try:
            frame = parse(typed=True)
        except pl.exceptions.ComputeError:
            # Some cell is no number: read them as text, so that the cell can be named.
            frame = parse(typed=False)
    except pl.exceptions.PolarsError as error:
        lines.check_widths(path, len(names))
        raise DataError("CSV in UTF-8", str(error).splitlines()[0], path=path) from error
    # A line with too few fields reads as empty cells at its end.
    if frame[names[-1]].null_count():
        lines.check_widths(path, len(names))
    return Table(
        path=str(path),
        frame=frame.select(wanted),
        arrays={},
        typed=False,
        null_values=schema.file.null_values,
        row_unit="line",
        row_number=lines.line_of,
    )


class CsvLines:
    """Lines of a CSV, looked up only when there is an error to report."""

    def __init__(self, content: bytes, separator: str, *, header: bool) -> None:
        self._content, self._separator, self._header = content, separator, header

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        text = io.TextIOWrapper(
            io.BytesIO(self._content), encoding="utf-8-sig", errors="replace", newline=""
        )
        reader = csv.reader(text, delimiter=self._separator)
        begin = 1
        for fields in reader:
            yield begin, fields
            begin = reader.line_num + 1

    def header_names(self, path: str | Path) -> list[str]:
        try:
            return next(self._records())[1]
        except csv.Error as error:
            raise DataError("a line of column names", str(error), path=path) from error

    def line_of(self, record: int) -> int:
        wanted = record + self._header
        try:
            lines = (line for k, (line, _) in enumerate(self._records()) if k == wanted)
            return next(lines, wanted + 1)
        except csv.Error:  # a cell too long for this reader: no quoted line breaks are counted
            return wanted + 1

    def check_widths(self, path: str | Path, width: int) -> None:
        try:
            for line, fields in self._records():
                if len(fields) != width:
                    got = "an empty line" if not fields else f"{len(fields)}"
                    raise DataError(f"{width} fields", got, path=path, row=line)
        except csv.Error as error:
            raise DataError("CSV", str(error), path=path) from error


def _read_parquet(path: str | Path, schema: Schema, wanted: list[str]) -> Table:
    import polars as pl

    content = io.BytesIO(read_bytes(path))
    try:
        names = list(pl.read_parquet_schema(content))
        _check_names(path, names, schema)
        content.seek(0)
        frame = pl.read_parquet(content, columns=wanted)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError("a Parquet file", str(error).splitlines()[0], path=path) from error
    return Table(path=str(path), frame=frame, arrays={})


def _read_npz(path: str | Path, schema: Schema, wanted: list[str]) -> Table:
    def choose(names: list[str]) -> list[str]:
        _check_names(path, names, schema)
        return wanted

    return table_of(read_arrays(path, choose), schema, path=path)


def read_arrays(
    path: str | Path, choose: Callable[[list[str]], list[str]]
) -> dict[str, NDArray[Any]]:
    """The arrays of a .npz file that `choose` picks from their names.

    Raises:
        DataError: not a .npz file, damaged, or one of the arrays holds Python objects.
    """
    if not Path(path).is_file():
        raise DataError("a file", "nothing there", path=path)
    try:
        # From the file, not from its bytes in memory: a large archive would be held twice.
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in choose(list(archive.files))}
    except DataError:
        raise
    # What numpy, zipfile and zlib raise on damaged input.
    except (
        ValueError,
        TypeError,
        OSError,
        EOFError,
        KeyError,
        NotImplementedError,
        zlib.error,
        zipfile.BadZipFile,
    ) as error:
        raise DataError("a .npz file of plain arrays", str(error), path=path) from error


def table_of(columns: Mapping[str, NDArray[Any]], schema: Schema, *, path: str | Path) -> Table:
    """The table of columns that are in memory already, `[N]` each (`[N, …]` for kind "array").

    Raises:
        DataError: columns of different lengths or of a shape that the schema doesn't say.
    """
    import polars as pl

    rows = max((values.shape[0] for values in columns.values() if values.ndim), default=0)
    flat: dict[str, pl.Series] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name, values in columns.items():
        column = schema.columns[name]
        cell = column.shape if isinstance(column, ArrayColumn) else ()
        if values.shape != (rows, *cell):
            expected = f"an array of shape {(rows, *cell)}"
            raise DataError(expected, f"shape {values.shape}", path=path, column=name)
        if isinstance(column, ArrayColumn):
            arrays[name] = values
        elif values.dtype.kind not in "biufU":
            raise DataError("numbers or text", f"dtype {values.dtype}", path=path, column=name)
        else:
            flat[name] = pl.Series(name, values)
    return Table(path=str(path), frame=pl.DataFrame(flat), arrays=arrays)
