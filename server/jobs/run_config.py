"""A job as Flower's run config, and back: dotted keys, plain values.

Flower's configuration holds numbers, booleans and strings; a list travels as its TOML text.

    >>> from parley.server.jobs.file import load_job
    >>> job = load_job(overrides=["privacy.epsilon=2", "data.sizes=[300, 269]"])
    >>> config = to_run_config(job)
    >>> config["privacy.epsilon"], config["data.sizes"], config["secure-aggregation.backend"]
    (2.0, '[300, 269]', 'ideal')
    >>> from_run_config(config) == job
    True
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from parley.client.contract.toml_reading import parse_toml
from parley.client.contract.toml_text import literal
from parley.server.jobs.file import load_job
from parley.server.jobs.job import Job
from parley.server.jobs.section import JobError

RUN_KEYS = {
    "run-folder": "",
}
"""Keys of the run config that are not the job's, with their defaults.

`run-folder` names a folder that `parley submit` made among the server's runs.
"""

_LARGEST = 2**63
_LISTS = {
    f"{section}.{key}"
    for section, content in Job().values().items()
    for key, value in content.items()
    if isinstance(value, list | dict)
}


def to_run_config(job: Job) -> dict[str, bool | int | float | str]:
    """Every key of a job, dotted."""
    config: dict[str, bool | int | float | str] = {}
    for section, content in job.values().items():
        for key, value in content.items():
            plain = isinstance(value, bool | float | str) or (
                isinstance(value, int) and -_LARGEST <= value < _LARGEST
            )
            config[f"{section}.{key}"] = value if plain else literal(value)
    return config


def from_run_config(config: Mapping[str, Any]) -> Job:
    """The job of a run config; keys it does not have keep their defaults.

    Raises:
        JobError: a key is unknown or a value is out of range.
    """
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
