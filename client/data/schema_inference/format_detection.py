"""Reading of files with unknown format: detection of the format, and all cells as one table.

Encoding and separator of a CSV are detected if they are not given. Several files become one table
if they have the same format and columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from parley.client.data.column_names import (
    check_unique_names,
    get_file_format,
    get_format,
    read_column_names,
)
from parley.client.data.csv_detection import check_first_line, guess_encoding, guess_separator
from parley.client.data.data_error import DataError
from parley.client.data.data_sources import MemoryTable, SqlQuery, TableSource, get_source_name
from parley.client.data.memory_limit import MemoryLimit
from parley.client.data.memory_table_format import to_series
from parley.client.data.npz_arrays import read_arrays
from parley.client.data.raw_table import RawTable
from parley.client.data.schema import FileFormat, Schema
from parley.client.data.schema_writing import format_toml_value
from parley.client.data.table_formats import FORMATS, ReadRequest

_MINIMAL_SCHEMA = (
    "[columns]\nx = { kind = 'numeric', range = [0, 1] }\ny = { kind = 'label', range = [0, 1] }"
)

Entry = dict[str, Any]


def detect_common_format(
    sources: Sequence[TableSource], header: bool, separator: str | None, encoding: str | None
) -> Entry:
    """Return the format of all files.

    Raises:
        DataError: the format of one file differs from the first one's.
    """
    formats = [_detect_format(source, header, separator, encoding) for source in sources]
    for source, file_format in zip(sources, formats, strict=True):
        for key, value in file_format.items():
            if value != (wanted := formats[0].get(key)):
                raise DataError(
                    f"{key} {wanted!r}, as in {get_source_name(sources[0])} (one schema reads "
                    "files that are written alike; --separator and --encoding overrule what "
                    "Parley finds; data.files lists files that are not)",
                    repr(value),
                    path=get_source_name(source),
                )
    return formats[0]


def join_tables(parts: Sequence[RawTable]) -> RawTable:
    """Join files of the same columns, or parties' frames, in the column order of the first."""
    first = parts[0]
    if len(parts) == 1:
        return first
    names = first.frame.columns
    for part in parts:
        part_columns = [*part.frame.columns, *part.arrays]
        odd = [f"no {n!r}" for n in [*names, *first.arrays] if n not in part_columns]
        odd += [f"also {n!r}" for n in part_columns if n not in names and n not in first.arrays]
        if odd or set(part.arrays) != set(first.arrays):
            wanted = f"the columns of {first.path} (one that not all have is left out of the files)"
            got = ", ".join(odd) or "arrays of other lengths"
            raise DataError(wanted, got, path=part.path)
    _check_alike(parts)
    try:
        joined = RawTable.concatenate(
            [replace(part, frame=_normalize_types(part.frame[names])) for part in parts]
        )
        arrays = {n: np.concatenate([part.arrays[n] for part in parts]) for n in first.arrays}
    except (pl.exceptions.PolarsError, ValueError) as error:
        expected = "columns of the same types and shapes in all files"
        raise DataError(expected, str(error), path=first.path) from error
    return replace(joined, arrays=arrays)


def _normalize_types(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame in types that join without rounding. A column without values has no type."""
    found = []
    for column in frame.get_columns():
        if column.null_count() == len(column) or _is_empty(column):
            found.append(pl.Series(column.name, [None] * len(column), dtype=pl.Null))
        else:
            # Joined with signed integers, polars converts these to floats.
            found.append(column.cast(pl.Int128) if column.dtype == pl.UInt64 else column)
    return pl.DataFrame(found)


def _is_empty(column: pl.Series) -> bool:
    return column.dtype == pl.String and bool((column.fill_null("") == "").all())


def _check_alike(parts: Sequence[RawTable]) -> None:
    """Raise DataError if a typed column is text in one table and numbers in another."""
    if not parts[0].typed:
        return
    for name in parts[0].frame.columns:
        kinds: dict[str, str] = {}
        for part in parts:
            column = part.get_column(name)
            if not (column.null_count() == len(column) or _is_empty(column)):
                kind = "text" if column.dtype == pl.String else "numbers"
                kinds.setdefault(kind, part.path)
        if len(kinds) > 1:
            others = f"numbers: {kinds['numbers']}"
            expected = f"one type in all ({others}; make it numbers here, or text there)"
            raise DataError(expected, "text", path=kinds["text"], column=name)


def _detect_format(
    path: TableSource, header: bool, separator: str | None, encoding: str | None
) -> Entry:
    """Return a file's format: as given, or detected. Other sources have none."""
    if not isinstance(path, str | Path):
        return {}
    kind = get_file_format(path, FileFormat())
    if kind != "csv":
        return {"format": kind}
    file_entry: Entry = {"format": kind, "header": header}
    requested = {"encoding": encoding, "separator": separator}
    given = {key: value for key, value in requested.items() if value is not None}
    build_file_schema(file_entry | given)
    file_entry["encoding"] = guess_encoding(path) if encoding is None else encoding
    file_entry["separator"] = separator or guess_separator(path, file_entry["encoding"])
    check_first_line(path, file_entry["encoding"], file_entry["separator"], header=header)
    return file_entry | {"decimal": "."}


def read_whole(
    source: TableSource, schema: Schema, label: str | None, memory_limit: MemoryLimit
) -> RawTable:
    """Return all cells of a source in the schema's file format; those of a CSV as text."""
    if isinstance(source, MemoryTable):
        return _build_array_table(dict(source.columns), label, source.name)
    file = schema.file
    if file.format == "npz" and not isinstance(source, SqlQuery):
        arrays = read_arrays(source, lambda names: names, memory_limit)
        return _build_array_table(arrays, label, source)
    names, where = read_column_names(source, file), get_source_name(source)
    check_unique_names(names, path=where)
    request = ReadRequest(schema=schema, names=names, wanted=names, memory_limit=memory_limit)
    parts, size = [], 0
    for table in FORMATS[get_format(source, file)].read_tables(source, request):
        size += 2 * table.size
        memory_limit.check_bytes(size, path=where)
        memory_limit.check_free_memory(where)
        parts.append(table)
    if not parts:
        raise DataError("at least one record", "none", path=where)
    return RawTable.concatenate(parts)


def _build_array_table(
    columns: dict[str, NDArray[Any]], label: str | None, path: str | Path
) -> RawTable:
    """Return a table of flat columns as long as the label, which is last, and all other arrays."""
    flat = {name: a for name, a in columns.items() if a.ndim == 1 and a.dtype.kind in "biufUO"}
    if label is None and flat:
        # If no label is given, it is the longest flat array with the length of another array.
        lengths = [len(array) for array in columns.values() if array.ndim > 1]
        fitting = [name for name in flat if len(flat[name]) in lengths]
        label = max(fitting, key=lambda name: len(flat[name]), default=list(flat)[-1])
    rows = len(flat[label]) if label in flat else -1
    names = [name for name in flat if name != label and len(flat[name]) == rows]
    names += [label] if label in flat else []
    return RawTable(
        path=str(path),
        frame=pl.DataFrame([to_series(name, flat[name]) for name in names]),
        arrays={name: array for name, array in columns.items() if name not in names},
    )


def build_file_schema(file_entry: Entry) -> Schema:
    """Return a schema of any columns in a file of this format.

    Raises:
        SchemaError: a separator or an encoding that a schema cannot name.
    """
    lines = [f"{key} = {format_toml_value(value)}" for key, value in file_entry.items()]
    text = "\n".join(["[file]", *lines, _MINIMAL_SCHEMA])
    return Schema.from_toml(text, source="--separator, --encoding")
