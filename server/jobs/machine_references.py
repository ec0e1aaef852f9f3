"""Find what a job refers to on the machine that runs it: files and code.

A job from another machine may name neither. A server that plans a foreign job has to know whether
it names code.

    >>> from parley.server.jobs.own_loss_models import OwnLossSection
    >>> find_machine_references(OwnLossSection(**{"kind": "own-loss", "loss": "/tmp/mine.py:f"}))
    [MachineReference(key='loss', value='/tmp/mine.py:f', what='code')]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from parley.server.jobs.external_references import CODE, find_reference_kinds
from parley.server.jobs.section_base import JobError


@dataclass(frozen=True)
class MachineReference:
    """A key's reference to something on the machine."""

    key: str
    value: Any
    what: str


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
