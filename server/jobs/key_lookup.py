"""Look up keys of a job by name, and explain what is wrong with a job."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from parley.server.jobs.job_keys import list_keys, rename_job_key
from parley.server.jobs.section_base import JobError


def explain_invalid_job(error: ValidationError) -> str:
    """Return one sentence per problem of a job, with the key and the expected values."""
    lines: list[str] = []
    numbers: dict[str, str] = {}
    alternatives: dict[str, str] = {}
    given: dict[str, Any] = {}
    for problem in error.errors():
        place = problem["loc"]
        # pydantic appends the union's member to the field: keep only section.key.
        keys = [str(part) for part in place[:2]]
        name = ".".join(keys)
        if problem["type"] == "extra_forbidden":
            lines.append(_format_unknown_key(keys))
        elif problem["type"] == "value_error":
            where = f"In [{name}]: " if name else ""
            lines.append(f"{where}{problem['ctx']['error']}")
        elif place[2:] == ("literal['auto']",) or problem["type"] == "literal_error":
            # The union's other member describes the numbers; this one adds a word.
            alternatives.setdefault(name, problem["ctx"]["expected"])
            given[name] = problem["input"]
        else:
            numbers[name] = problem["msg"][0].lower() + problem["msg"][1:]
            given[name] = problem["input"]
    for name, value in given.items():
        expected = [numbers[name].removeprefix("input should be ")] if name in numbers else []
        expected += [alternatives[name]] if name in alternatives else []
        lines.append(f"Expected {name} to be {', or '.join(expected)}, got {value!r}.")
    return "\n".join(dict.fromkeys(lines))


def check_key(name: str, *, where: str) -> str:
    """Return a job's dotted key by its current name. Raises JobError if there is none."""
    name = rename_job_key(name, where)
    keys = name.split(".")
    if len(keys) != 2 or keys[1] not in list_keys().get(keys[0], {}):
        raise JobError(f"{where}: {_format_unknown_key(keys)}")
    return name


def _format_unknown_key(keys: Sequence[str]) -> str:
    return f"Unknown key {'.'.join(keys)}. {_format_nearest_key(keys)}"


def find_keys(word: str) -> list[str]:
    """Return the dotted keys with this name, from all sections.

    >>> find_keys("lambda")
    ['model.lambda']
    """
    return [f"{section}.{word}" for section, keys in list_keys().items() if word in keys]


def _format_nearest_key(keys: Sequence[str]) -> str:
    valid = {section: list(keys) for section, keys in list_keys().items()}
    everything = [*valid, *(f"{section}.{key}" for section in valid for key in valid[section])]
    name = ".".join(keys)
    near = difflib.get_close_matches(name, everything, n=1, cutoff=0.5)
    if not near and len(keys) == 2:
        near = find_keys(keys[1])[:1]
    if near:
        return f"Did you mean {near[0]}?"
    known = valid.get(keys[0], list(valid)) if len(keys) == 2 else list(valid)
    return f"Expected one of: {', '.join(known)}."
