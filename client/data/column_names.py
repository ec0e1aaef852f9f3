"""Column names of a source, and their comparison with the schema's.

If one column is taken for another, every record is read by another public function. Each record
still contributes only its own cells, so no ε rests on names.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

from parley.client.data.binary_files import read_arrays, read_parquet_names
from parley.client.data.csv_guess import find_separator_fault
from parley.client.data.csv_text import read_csv_names
from parley.client.data.data_sources import (
    MemoryTable,
    Source,
    SqlQuery,
    check_unique_names,
    get_source_name,
)
from parley.client.data.memory_limit import compute_memory_limit
from parley.client.data.raw_table import DataError
from parley.client.data.schema import FileFormat, Schema
from parley.client.data.sql_source import read_sql_names


class MissingColumns(DataError):
    """Error for columns that a model reads and that do not exist, listed in `missing`."""

    def __init__(self, missing: Sequence[str], *, path: str | Path) -> None:
        super().__init__("the columns that the model reads", f"no column {missing}", path=path)
        self.missing = tuple(missing)


_SUFFIXES: dict[str, Literal["csv", "parquet", "npz"]] = {
    **dict.fromkeys((".csv", ".tsv", ".txt", ".gz"), "csv"),
    ".parquet": "parquet",
    ".npz": "npz",
}


def get_file_format(path: str | Path, file: FileFormat) -> str:
    """Return the schema's file format, or the one that the suffix names."""
    name = Path(path).name
    suffixed = [kind for suffix, kind in _SUFFIXES.items() if name.lower().endswith(suffix)]
    if file.format is None and not suffixed:
        raise DataError(
            "a suffix .csv, .tsv, .txt, .csv.gz, .parquet or .npz (or file.format in the schema)",
            repr(name),
            path=path,
        )
    return file.format or suffixed[0]


def read_column_names(source: Source, file: FileFormat) -> list[str]:
    """Return the names of all columns. A name may occur twice."""
    if isinstance(source, MemoryTable):
        return list(source.columns)
    if isinstance(source, SqlQuery):
        return read_sql_names(source)
    match get_file_format(source, file):
        case "csv":
            return read_csv_names(source, file)
        case "parquet":
            return read_parquet_names(source)
        case _:
            found: list[str] = []

            def note(names: list[str]) -> list[str]:
                found.extend(names)
                return []

            read_arrays(source, note, compute_memory_limit(math.inf))
            return found


def check_column_names(
    source: Source,
    schema: Schema,
    wanted: list[str],
    *,
    keep: Collection[str],
    all_used: bool,
) -> list[str]:
    """Return the names of all columns that exist; without a CSV header, in the schema's order."""
    names = read_column_names(source, schema.file)
    where, file = get_source_name(source), isinstance(source, str | Path)
    if not isinstance(source, str | Path):
        absent = [name for name in keep if name not in names]
        if all_used and absent:
            raise MissingColumns(absent, path=where)
    elif get_file_format(source, schema.file) == "csv":
        width = len(names)
        if not schema.file.header:
            names = list(schema.columns)
            label = [name for name in schema.labels if name not in wanted]
            if width == len(names) - 1 and label:
                names.remove(label[0])
        # One wide column usually means a wrong separator. Report that instead of missing columns.
        fits = len(names) == width and set(wanted) <= set(names)
        if width == 1 and not fits and (fault := find_separator_fault(source, schema.file)):
            raise fault
    check_unique_names(names, path=where)
    if not all_used:
        there = set(names)
        if missing := [name for name in wanted if name not in there]:
            raise MissingColumns(missing, path=where)
        return names
    needed = schema.columns if file else schema.used
    got, there = [], set(names)
    if missing := [name for name in needed if name not in there]:
        got.append(f"no column {missing}")
    if extra := [name for name in names if name not in schema.columns]:
        got.append(f'{extra}, not in the schema (kind = "ignore" leaves a column out)')
    if got:
        raise DataError("the columns of the schema", " and ".join(got), path=where)
    return names
