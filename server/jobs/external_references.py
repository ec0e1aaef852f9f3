"""Types of the texts of a job: a file, code, or no reference to the machine.

There is no list of the keys that name files or code: a test over all keys fails if a key's type is
none of these (`machine_references` finds what a job names).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from parley.client.own_code.own_code_names import resolve_path

Section = TypeVar("Section", bound=BaseModel)

CODE = "code"
MEMORY = ("memory", "memory-*")
"""Sources of records that the caller passes: one table, or one per party."""

_SQLITE = "sqlite:///"
_DATA_SUFFIXES = (".csv", ".tsv", ".txt", ".gz", ".parquet", ".npz")


@dataclass(frozen=True)
class ReferenceKind:
    """What the texts of a type refer to.

    Attributes:
        what: noun for messages; empty: nothing on the machine.
        locate: returns a text from a file in a folder as it reads from the working directory.
    """

    what: str
    matches: Callable[[str], bool]
    locate: Callable[[str, Path], str] = lambda text, _: text


def _locate_file(text: str, folder: Path) -> str:
    return str(folder / os.path.expanduser(text)) if text and "://" not in text else text


def _locate_records(text: str, folder: Path) -> str:
    """Return the location of records. A name without folder and suffix is a data set's name, unless
    it has a point and is a file there.
    """
    if text.startswith(_SQLITE):
        return f"{_SQLITE}{folder / text.removeprefix(_SQLITE)}"
    if text in MEMORY or ":" in text:
        return text
    if text.startswith("~"):
        return _locate_file(text, folder)
    if re.search(r"[/*?\[\]]", text) or text.endswith(_DATA_SUFFIXES):
        return str(folder / text)
    return str(folder / text) if "." in text and (folder / text).is_file() else text


_NO_REFERENCE = ReferenceKind("", lambda _: False)
_PLACE = "file, folder or address"

FilePath = Annotated[str, ReferenceKind(_PLACE, bool, _locate_file)]
"""A file, folder or URL of the machine that runs the job; empty for none."""

WorkingPath = Annotated[str, ReferenceKind(_PLACE, bool)]
"""A folder for results, which no file locates below itself; or an address."""

CodeReference = Annotated[str, ReferenceKind(CODE, lambda text: ":" in text, resolve_path)]
"""`file.py:name` or `module:name`, which is imported and run. Without a colon: a name in Parley."""

DataSource = Annotated[
    str,
    ReferenceKind(
        "file",
        lambda text: text in {".", ".."} or bool(re.search(r"[/\\*?\[\]:~]", text)),
        _locate_records,
    ),
]
"""Records: a data set's name, or a file's path."""

FileTables = Annotated[list[dict[str, Any]], ReferenceKind("file", bool, _locate_file)]
"""Tables that each name a file and how it is written."""

Text = Annotated[str, _NO_REFERENCE]
"""A name or text that Parley never opens, imports or connects to."""

TextSettings = Annotated[dict[str, Any], _NO_REFERENCE]
"""Settings, by name, of what another key names; none is opened or imported by itself."""


def find_reference_kinds(info: FieldInfo) -> Iterator[ReferenceKind]:
    """Yield the reference kinds in the types of a key's texts."""
    yield from (each for each in info.metadata if isinstance(each, ReferenceKind))
    yield from _find_in_annotation(info.annotation)


def _find_in_annotation(annotation: Any) -> Iterator[ReferenceKind]:
    for each in (*getattr(annotation, "__metadata__", ()), *get_args(annotation)):
        if isinstance(each, ReferenceKind):
            yield each
        else:
            yield from _find_in_annotation(each)


def locate_value(value: Any, info: FieldInfo, folder: Path) -> Any:
    """Return a key's value from a file in `folder`, with its relative paths below `folder`."""
    for kind in find_reference_kinds(info):
        if isinstance(value, str):
            value = kind.locate(value, folder)
        elif isinstance(value, list) and kind.what:
            value = [_locate_table(each, kind, folder) for each in value]
    return value


def _locate_table(table: Any, kind: ReferenceKind, folder: Path) -> Any:
    if isinstance(table, str):
        return kind.locate(table, folder)
    if not isinstance(table, Mapping) or not isinstance(table.get("path"), str):
        return table
    return {**table, "path": kind.locate(table["path"], folder)}


def locate_section(section: Section, folder: Path) -> Section:
    """Return the section with its relative paths below `folder`."""
    return section.model_copy(
        update={
            name: located
            for name, info in type(section).model_fields.items()
            if (located := locate_value(value := getattr(section, name), info, folder)) != value
        }
    )
