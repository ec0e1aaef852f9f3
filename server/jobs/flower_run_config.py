"""Read a job from the run config of Flower, which has only numbers and texts as values."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from typing import Any

from parley.safe_io.toml_reading import parse_toml
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError

RUN_KEYS = {"run-folder": ""}
"""Keys of the run config that are not job keys, with their defaults.

`run-folder` names a run of the deployment to resume.
"""


@functools.cache
def _find_structured_keys() -> set[str]:
    """Return the dotted keys whose values are lists or tables."""
    return {
        f"{section}.{key}"
        for section, content in Job().to_values(every_form=True).items()
        for key, value in content.items()
        if isinstance(value, list | dict)
    }


def from_run_config(config: Mapping[str, Any]) -> Job:
    """Return the job of a run config; missing keys have their defaults. Raises JobError."""
    tree: dict[str, dict[str, Any]] = {}
    for name, value in config.items():
        if name in RUN_KEYS:
            continue
        section, dot, key = name.partition(".")
        if not dot:
            raise JobError(f"Unknown key {name}. Expected section.key or one of {[*RUN_KEYS]}.")
        parsed = _parse_value(value) if name in _find_structured_keys() else value
        tree.setdefault(section, {})[key] = parsed
    return load_job(values=tree)


def _parse_value(value: Any) -> Any:
    try:
        return parse_toml(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value
