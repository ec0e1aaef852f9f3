"""Classify the texts of a job by type: a file, code, or no reference to the machine.

A job from another machine may name neither a file nor code of the machine that runs it. A server
that plans a foreign job has to know whether it names code. There is no list of such keys: a test
over all keys fails if a key's type is none of these.

    >>> from parley.server.jobs.own_loss_models import OwnLossSection
    >>> find_machine_references(OwnLossSection(**{"kind": "own-loss", "loss": "/tmp/mine.py:f"}))
    [MachineReference(key='loss', value='/tmp/mine.py:f', what='code')]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from parley.server.jobs.section_base import JobError

CODE = "code"


@dataclass(frozen=True)
class ReferenceKind:
    """What the texts of a type refer to.

    Attributes:
        what: noun for messages; empty: nothing on the machine.
    """

    what: str
    matches: Callable[[str], bool]


_NO_REFERENCE = ReferenceKind("", lambda _: False)

FilePath = Annotated[str, ReferenceKind("file, folder or address", bool)]
"""A file, folder, URL or address of the machine that runs the job; empty for none."""

CodeReference = Annotated[str, ReferenceKind(CODE, lambda text: ":" in text)]
"""`file.py:name` or `module:name`, which is imported and run. Without a colon: a name in Parley."""

DataSource = Annotated[
    str,
    ReferenceKind(
        "file", lambda text: text in {".", ".."} or bool(re.search(r"[/\\*?\[\]:~]", text))
    ),
]
"""Records: a data set's name, or a file's path."""

FileTables = Annotated[list[dict[str, Any]], ReferenceKind("file", bool)]
"""Tables that each name a file and how it is written."""

Text = Annotated[str, _NO_REFERENCE]
"""A name or text that Parley never opens, imports or connects to."""

TextSettings = Annotated[dict[str, Any], _NO_REFERENCE]
"""Settings, by name, of what another key names; none is opened or imported by itself."""


@dataclass(frozen=True)
class MachineReference:
    """A key's reference to something on the machine."""

    key: str
    value: Any
    what: str


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


def find_machine_references(section: BaseModel) -> list[MachineReference]:
    """Return a section's references to the machine, without those that are defaults."""
    found = []
    for name, info in type(section).model_fields.items():
        key, value = info.alias or name, getattr(section, name)
        if isinstance(value, BaseModel):
            within = find_machine_references(value)
            found += [
                MachineReference(f"{key}.{each.key}", each.value, each.what) for each in within
            ]
        elif value != info.default:
            texts = list(_iterate_texts(value))
            found += [
                MachineReference(key, value, each.what)
                for each in find_reference_kinds(info)
                if any(map(each.matches, texts))
            ]
    return found


def _iterate_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _iterate_texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _iterate_texts(each)


def find_code_references(section: BaseModel) -> list[MachineReference]:
    """Return the references to code, which a run would import and execute."""
    return [each for each in find_machine_references(section) if each.what == CODE]


def check_submission(section: BaseModel) -> None:
    """Refuse a section from another machine that names something on this one. Raises JobError."""
    for each in find_machine_references(section):
        raise JobError(
            f"Expected no {each.what} in {each.key} of a submission from another machine, got "
            f"{each.value!r:.200}. Remove it, or submit from the server's folder on the server's "
            "machine."
        )
