"""What the texts of a job name, said by their types: a file, code, or nothing of a machine.

A job from another machine may name neither a file nor code of the machine that it runs on, and
whoever plans a job that came from elsewhere wants to know whether it names code. Which keys could
is no list: a key whose type is none of these fails a test over all keys.

    >>> from parley.server.jobs.model import OwnLoss
    >>> named_here(OwnLoss(**{"kind": "own-loss", "loss": "/tmp/mine.py:f"}))
    [Named(key='loss', value='/tmp/mine.py:f', what='code')]
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
class Names:
    """What the texts of a type name.

    Attributes:
        what: in a message; empty: nothing of a machine.
    """

    what: str
    does: Callable[[str], bool]


_NOTHING = Names("", lambda _: False)

FilePath = Annotated[str, Names("file, folder or address", bool)]
"""A file, folder, URL or address of the machine that the job runs on; empty for none."""

CodeReference = Annotated[str, Names(CODE, lambda text: ":" in text)]
"""`file.py:name` or `module:name`, which is imported and run; no colon: a name of Parley's."""

DataSource = Annotated[
    str, Names("file", lambda text: text in {".", ".."} or bool(re.search(r"[/\\*?\[\]:~]", text)))
]
"""Records: a data set's name, or a file's path."""

Text = Annotated[str, _NOTHING]
"""A name or words that nobody opens, imports or connects to."""

TextSettings = Annotated[dict[str, Any], _NOTHING]
"""Settings of what another key names, by their names; none is opened or imported by itself."""


@dataclass(frozen=True)
class Named:
    """Something of the machine that a key names."""

    key: str
    value: Any
    what: str


def meanings(info: FieldInfo) -> Iterator[Names]:
    """What the types of a key's texts say that they name."""
    yield from (each for each in info.metadata if isinstance(each, Names))
    yield from _within(info.annotation)


def _within(annotation: Any) -> Iterator[Names]:
    for each in (*getattr(annotation, "__metadata__", ()), *get_args(annotation)):
        if isinstance(each, Names):
            yield each
        else:
            yield from _within(each)


def named_here(given: BaseModel) -> list[Named]:
    """What a job, a section or settings name of the machine, beside what the defaults do."""
    found = []
    for name, info in type(given).model_fields.items():
        key, value = info.alias or name, getattr(given, name)
        if isinstance(value, BaseModel):
            within = named_here(value)
            found += [Named(f"{key}.{each.key}", each.value, each.what) for each in within]
        elif value != info.default:
            texts = list(_texts(value))
            found += [
                Named(key, value, each.what)
                for each in meanings(info)
                if any(map(each.does, texts))
            ]
    return found


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def code_named_by(given: BaseModel) -> list[Named]:
    """The code that whoever runs it would run."""
    return [each for each in named_here(given) if each.what == CODE]


def check_from_elsewhere(given: BaseModel) -> None:
    """Refuses what comes from another machine and names something of this one. Raises JobError."""
    for each in named_here(given):
        raise JobError(
            f"Expected no {each.what} in {each.key} of a submission from another machine, got "
            f"{each.value!r:.200}: leave it out, or submit on the server's machine, from the "
            "server's folder."
        )
