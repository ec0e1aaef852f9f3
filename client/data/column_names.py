"""Column names of a source, and their comparison with the schema's.

If one column is taken for another, every record is read by another public function. Each record
still contributes only its own cells, so no ε rests on names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from parley.client.data.data_error import DataError
from parley.client.data.data_sources import MemoryTable, SqlQuery, TableSource, get_source_name
from parley.client.data.party_file_pattern import SUFFIXES, refuse_folder
from parley.client.data.schema import FileFormat, Schema
from parley.client.data.table_formats import FORMATS


class MissingColumns(DataError):
    """Error for columns that a model reads and that do not exist, listed in `missing`."""

    def __init__(self, missing: Sequence[str], *, path: str | Path) -> None:
        super().__init__("the columns that the model reads", f"no column {missing}", path=path)
        self.missing = tuple(missing)


def get_file_format(path: str | Path, file: FileFormat) -> str:
    """Return the format that the suffix names, else the schema's.

    A schema that was drafted from a CSV also reads the same columns in Parquet. `.txt` names no
    format if the schema does.
    """
    name = Path(path).name
    refuse_folder(path)
    suffixed = [kind for suffix, kind in SUFFIXES.items() if name.lower().endswith(suffix)]
    if file.format is None and not suffixed:
        suffixes = "a suffix .csv, .tsv, .txt, .csv.gz, .parquet or .npz"
        raise DataError(f"{suffixes} (or file.format in the schema)", repr(name), path=path)
    if suffixed and not name.lower().endswith(".txt"):
        return suffixed[0]
    return file.format or suffixed[0]


def get_format(source: TableSource, file: FileFormat) -> str:
    """Return the name of a source's format, a key of `FORMATS`."""
    if isinstance(source, MemoryTable):
        return "memory"
    return "query" if isinstance(source, SqlQuery) else get_file_format(source, file)


def read_column_names(source: TableSource, file: FileFormat) -> list[str]:
    """Return the names of all columns. A name may occur twice."""
    return FORMATS[get_format(source, file)].read_names(source, file)


def check_column_names(
    source: TableSource, schema: Schema, wanted: list[str], *, keep: Collection[str], all_used: bool
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
        fault = None if fits or width > 1 else FORMATS["csv"].find_name_fault(source, schema.file)
        if fault:
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


def check_unique_names(
    names: Iterable[Any], *, path: str | Path, where: str = "in the file; in a query AS does"
) -> None:
    """Raise DataError if two columns have one name. Names are compared as text: 5 is "5".

    Args:
        where: where a name can be changed.
    """
    seen: dict[Any, list[Any]] = {}
    for name in names:
        # A frame also treats 1 and 1.0 as one name.
        key = str(int(name)) if isinstance(name, float) and name.is_integer() else str(name)
        seen.setdefault(key, []).append(name)
    twice = sorted(key for key, found in seen.items() if len(found) > 1)
    if not twice:
        return
    shown = [sorted(set(map(repr, seen[key]))) for key in twice]
    got = f"[{', '.join(' and '.join(spelt) for spelt in shown)}] more than once"
    expected = f"every column name once (rename one {where})"
    if any(len(spelt) > 1 for spelt in shown):
        expected = f"every column name once, as text (rename one {where})"
    raise DataError(expected, got, path=path)
