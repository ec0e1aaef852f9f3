"""Files of which nothing is known: how they are written, and the cells of all of them as one table.

Encoding and separator of a CSV are found out where they are not given. Several files are one table
where they are written alike and have the same columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from parley.client.data.binary_files import parquet_tables, read_arrays
from parley.client.data.column_names import file_format, names_in
from parley.client.data.csv_guess import check_first_line, encoding_of, sniffed_separator
from parley.client.data.csv_text import csv_tables
from parley.client.data.data_sources import Frame, Source, SqlQuery, check_once, name_of, series_of
from parley.client.data.memory_limit import Room
from parley.client.data.raw_table import DataError, Table
from parley.client.data.schema import FileFormat, Schema
from parley.client.data.schema_messages import toml_value
from parley.client.data.table_readers import query_tables

_SMALLEST = (
    "[columns]\nx = { kind = 'numeric', range = [0, 1] }\ny = { kind = 'label', range = [0, 1] }"
)

Entry = dict[str, Any]


def written_alike(
    sources: Sequence[Source], header: bool, separator: str | None, encoding: str | None
) -> Entry:
    """How all files are written. Raises DataError where one is written otherwise than the first."""
    found = [
        _written(each, header, separator, encoding) if isinstance(each, str | Path) else {}
        for each in sources
    ]
    for source, own in zip(sources, found, strict=True):
        for key, value in own.items():
            if value != (wanted := found[0].get(key)):
                raise DataError(
                    f"{key} {wanted!r}, as in {name_of(sources[0])} (one schema reads files that "
                    "are written alike; --separator and --encoding overrule what Parley finds)",
                    repr(value),
                    path=name_of(source),
                )
    return found[0]


def together(parts: Sequence[Table]) -> Table:
    """Files of the same columns, or parties' frames, as one table; the first says their order."""
    first = parts[0]
    if len(parts) == 1:
        return first
    names = first.frame.columns
    for part in parts:
        own = [*part.frame.columns, *part.arrays]
        odd = [f"no {n!r}" for n in [*names, *first.arrays] if n not in own]
        odd += [f"also {n!r}" for n in own if n not in names and n not in first.arrays]
        if odd or set(part.arrays) != set(first.arrays):
            wanted = f"the columns of {first.path} (one that not all have is left out of the files)"
            got = ", ".join(odd) or "arrays of other lengths"
            raise DataError(wanted, got, path=part.path)
    _check_alike(parts)
    try:
        joined = Table.joined([replace(part, frame=_joinable(part.frame[names])) for part in parts])
        arrays = {n: np.concatenate([part.arrays[n] for part in parts]) for n in first.arrays}
    except (pl.exceptions.PolarsError, ValueError) as error:
        raise DataError(
            "columns of the same types and shapes in all files", str(error), path=first.path
        ) from error
    return replace(joined, arrays=arrays)


def _joinable(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame as types that others join without rounding; no values have no type."""
    found = []
    for column in frame.get_columns():
        if column.null_count() == len(column) or _is_empty(column):
            found.append(pl.Series(column.name, [None] * len(column), dtype=pl.Null))
        else:
            # Beside signed integers, polars makes floats of these.
            found.append(column.cast(pl.Int128) if column.dtype == pl.UInt64 else column)
    return pl.DataFrame(found)


def _is_empty(column: pl.Series) -> bool:
    return column.dtype == pl.String and bool((column.fill_null("") == "").all())


def _check_alike(parts: Sequence[Table]) -> None:
    """Raise DataError if a typed column is text in one table and numbers in another."""
    if not parts[0].typed:
        return
    for name in parts[0].frame.columns:
        kinds: dict[str, str] = {}
        for part in parts:
            column = part.column(name)
            if not (column.null_count() == len(column) or _is_empty(column)):
                kind = "text" if column.dtype == pl.String else "numbers"
                kinds.setdefault(kind, part.path)
        if len(kinds) > 1:
            others = f"numbers: {kinds['numbers']}"
            expected = f"one type in all ({others}; make it numbers here, or text there)"
            raise DataError(expected, "text", path=kinds["text"], column=name)


def _written(path: str | Path, header: bool, separator: str | None, encoding: str | None) -> Entry:
    """How a file is written: as given, or found out."""
    kind = file_format(path, FileFormat())
    if kind != "csv":
        return {"format": kind}
    given: Entry = {"format": kind, "header": header}
    said = {"encoding": encoding, "separator": separator}
    checked_format(given | {key: value for key, value in said.items() if value is not None})
    given["encoding"] = encoding_of(path) if encoding is None else encoding
    given["separator"] = separator or sniffed_separator(path, given["encoding"])
    check_first_line(path, given["encoding"], given["separator"], header=header)
    return given | {"decimal": "."}


def read_whole(source: Source, file: FileFormat, label: str | None, room: Room) -> Table:
    """All of the cells; text where the file is a CSV."""
    if isinstance(source, Frame):
        return _of_arrays(dict(source.columns), label, source.name)
    if file.format == "npz" and not isinstance(source, SqlQuery):
        return _of_arrays(read_arrays(source, lambda names: names, room), label, source)
    names, where = names_in(source, file), name_of(source)
    check_once(names, path=where)
    if isinstance(source, SqlQuery):
        tables = query_tables(source, file, names, names)
    elif file.format == "csv":
        tables = csv_tables(source, file, names, names)
    else:
        tables = parquet_tables(source, file, names, room)
    parts, size = [], 0
    for table in tables:
        size += 2 * table.size
        room.check_bytes(size, path=where)
        room.check_left(where)
        parts.append(table)
    if not parts:
        raise DataError("at least one record", "none", path=where)
    return Table.joined(parts)


def _of_arrays(found: dict[str, NDArray[Any]], label: str | None, path: str | Path) -> Table:
    """The flat columns that are as long as the label, which comes last, and all other arrays."""
    flat = {name: a for name, a in found.items() if a.ndim == 1 and a.dtype.kind in "biufUO"}
    if label is None and flat:
        # Without a word on it, the label is the longest flat array that goes with another array.
        lengths = [len(array) for array in found.values() if array.ndim > 1]
        fitting = [name for name in flat if len(flat[name]) in lengths]
        label = max(fitting, key=lambda name: len(flat[name]), default=list(flat)[-1])
    rows = len(flat[label]) if label in flat else -1
    names = [name for name in flat if name != label and len(flat[name]) == rows]
    names += [label] if label in flat else []
    return Table(
        path=str(path),
        frame=pl.DataFrame([series_of(name, flat[name]) for name in names]),
        arrays={name: array for name, array in found.items() if name not in names},
    )


def checked_format(given: Entry) -> FileFormat:
    """Raises SchemaError for a separator or an encoding that a schema can't name."""
    lines = ["[file]", *(f"{key} = {toml_value(value)}" for key, value in given.items())]
    return Schema.from_toml("\n".join([*lines, _SMALLEST]), source="--separator, --encoding").file
