"""Files of records that are written differently than their schema says.

Several files of one schema may differ in separator, decimal mark or encoding. Each is a table of a
job's `data.files`: `path`, and keys of a schema's `[file]` section, which replace the schema's.

>>> south = parse_file_table({"path": "south.csv", "separator": ";", "decimal": ","})
>>> south.name, dict(south.keys)
('south.csv', {'separator': ';', 'decimal': ','})
>>> parse_file_table({"path": "south.csv", "seperator": ";"})
Traceback (most recent call last):
...
ValueError: south.csv: Expected one of the keys format, header, separator, encoding, decimal, \
null-values, max-gib; the nearest is 'separator', got seperator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from parley.client.data.data_error import DataError
from parley.client.data.data_sources import FormattedFile
from parley.client.data.party_file_pattern import SUFFIXES
from parley.client.data.schema import FileFormat, Schema
from parley.client.data.schema_error_texts import format_fault

_MAX_NAMED = 3


def parse_file_table(table: Any) -> FormattedFile:
    """Return the file of a path, or of a table with `path` and keys of `[file]`.

    Raises:
        ValueError: no such table, an unknown key, or a value that the key cannot have.
    """
    if isinstance(table, str | Path):
        table = {"path": table}
    if not isinstance(table, Mapping) or not isinstance(path := table.get("path"), str | Path):
        expected = 'Expected a table with path, such as { path = "south.csv", separator = ";" }'
        raise ValueError(f"{expected}, got {table!r:.100}.")
    if not str(path):
        raise ValueError("Expected path to name a file, got an empty text.")
    keys = {str(name): value for name, value in table.items() if name != "path"}
    # A decimal comma alone contradicts the default separator, but perhaps not the schema's.
    other = {"separator": ";"} if keys.get("decimal") == "," else {}
    _build_format(str(path), {**other, **keys})
    return FormattedFile(name=str(path), keys=keys)


def apply_format(file: FormattedFile, schema: Schema) -> Schema:
    """Return the schema with a file's format.

    Raises:
        DataError: the keys contradict those of the schema.
    """
    known = schema.file.model_dump(by_alias=True)
    suffixed = [kind for end, kind in SUFFIXES.items() if file.name.lower().endswith(end)]
    if suffixed:
        known["format"] = suffixed[0]
    try:
        format = _build_format(file.name, {**known, **file.keys})
    except ValueError as error:
        text = str(error).removeprefix(f"{file.name}: Expected ").removesuffix(".")
        expected = f"{text} (keys of data.files, then of [file] in the schema)"
        raise DataError(expected, path=file.name) from error
    return schema.model_copy(update={"file": format})


def _build_format(path: str, keys: Mapping[str, Any]) -> FileFormat:
    try:
        return FileFormat.model_validate(dict(keys))
    except ValidationError as error:
        faults = error.errors(include_url=False)
        said = [format_fault(fault, FileFormat, FileFormat, {}) for fault in faults]
        raise ValueError(f"{path}: {' '.join(said)}") from None


def is_file_list(data: Any) -> bool:
    """Return whether data are a list of files: paths, or tables with `path`."""
    return isinstance(data, list | tuple) and bool(data) and all(
        isinstance(each, str | Path)
        or (isinstance(each, Mapping) and isinstance(each.get("path"), str | Path))
        for each in data
    )  # fmt: skip


def list_files(data: Sequence[Any]) -> list[Path | FormattedFile]:
    """Return the files of a list of paths and tables.

    Raises:
        DataError: a table has a key or value that no file has.
    """
    return [Path(each) if isinstance(each, str | Path) else _build_file(each) for each in data]


def _build_file(table: Mapping[str, Any]) -> FormattedFile:
    try:
        return parse_file_table(table)
    except ValueError as error:
        path = str(table["path"])
        text = str(error).removeprefix(f"{path}: ").removeprefix("Expected ").removesuffix(".")
        raise DataError(text, path=path) from error


def name_files(tables: Sequence[Mapping[str, Any]]) -> str:
    """Return a name for several files: their paths, the first of many.

    >>> name_files([{"path": f"{at}.csv"} for at in range(5)])
    '0.csv, 1.csv, 2.csv and 2 more'
    """
    paths = [str(table["path"]) for table in tables]
    more = f" and {len(paths) - _MAX_NAMED} more" if len(paths) > _MAX_NAMED else ""
    return ", ".join(paths[:_MAX_NAMED]) + more
