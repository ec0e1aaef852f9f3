"""A job from Flower's run config: dotted keys, plain values.

Flower's configuration holds numbers, booleans and strings; a list travels as its TOML text.

    >>> job = from_run_config({"privacy.epsilon": 2.0, "data.sizes": "[300, 269]"})
    >>> job.privacy.epsilon, job.data.sizes
    (2.0, [300, 269])
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from parley.client.contract.toml_reading import parse_toml
from parley.server.jobs.file import load_job
from parley.server.jobs.job import Job
from parley.server.jobs.section import JobError

RUN_KEYS = {
    "run-folder": "",
}
"""Keys of the run config that are not the job's, with their defaults.

`run-folder` names one of a deployment's runs, to go on with it.
"""

_LISTS = {
    f"{section}.{key}"
    for section, content in Job().values().items()
    for key, value in content.items()
    if isinstance(value, list | dict)
}


def from_run_config(config: Mapping[str, Any]) -> Job:
    """The job of a run config; keys it does not have keep their defaults. Raises JobError."""
    tree: dict[str, dict[str, Any]] = {}
    for name, value in config.items():
        if name in RUN_KEYS:
            continue
        section, dot, key = name.partition(".")
        if not dot:
            raise JobError(f"Unknown key {name}: expected section.key or one of {[*RUN_KEYS]}.")
        tree.setdefault(section, {})[key] = _parse(value) if name in _LISTS else value
    return load_job(values=tree)


def _parse(value: Any) -> Any:
    try:
        return parse_toml(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value
