"""What the texts of a job name, said by their types: a file, code, or nothing of a machine.

A job from another machine may name neither a file nor code of the machine that it runs on, and
whoever plans a job that came from elsewhere wants to know whether it names code. Which keys could
is no list: a key whose type is none of these fails a test over all keys.

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
    """What the texts of a type name.

    Attributes:
        what: in a message; empty: nothing of a machine.
    """

    what: str
    matches: Callable[[str], bool]


_NO_REFERENCE = ReferenceKind("", lambda _: False)

FilePath = Annotated[str, ReferenceKind("file, folder or address", bool)]
"""A file, folder, URL or address of the machine that the job runs on; empty for none."""

CodeReference = Annotated[str, ReferenceKind(CODE, lambda text: ":" in text)]
"""`file.py:name` or `module:name`, which is imported and run; no colon: a name of Parley's."""

DataSource = Annotated[
    str,
    ReferenceKind(
        "file", lambda text: text in {".", ".."} or bool(re.search(r"[/\\*?\[\]:~]", text))
    ),
]
"""Records: a data set's name, or a file's path."""

Text = Annotated[str, _NO_REFERENCE]
"""A name or words that nobody opens, imports or connects to."""

TextSettings = Annotated[dict[str, Any], _NO_REFERENCE]
"""Settings of what another key names, by their names; none is opened or imported by itself."""


@dataclass(frozen=True)
class MachineReference:
    """Something of the machine that a key names."""

    key: str
    value: Any
    what: str


def find_reference_kinds(info: FieldInfo) -> Iterator[ReferenceKind]:
    """What the types of a key's texts say that they name."""
    yield from (each for each in info.metadata if isinstance(each, ReferenceKind))
    yield from _find_in_annotation(info.annotation)


def _find_in_annotation(annotation: Any) -> Iterator[ReferenceKind]:
    for each in (*getattr(annotation, "__metadata__", ()), *get_args(annotation)):
        if isinstance(each, ReferenceKind):
            yield each
        else:
            yield from _find_in_annotation(each)


def find_machine_references(section: BaseModel) -> list[MachineReference]:
    """What a job, a section or settings name of the machine, beside what the defaults do."""
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
    """The code that whoever runs it would run."""
    return [each for each in find_machine_references(section) if each.what == CODE]


def check_submission(section: BaseModel) -> None:
    """Refuses what comes from another machine and names something of this one. Raises JobError."""
    for each in find_machine_references(section):
        raise JobError(
            f"Expected no {each.what} in {each.key} of a submission from another machine, got "
            f"{each.value!r:.200}: leave it out, or submit on the server's machine, from the "
            "server's folder."
        )
