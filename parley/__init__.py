"""Parley: m parties learn one model together; nobody shows a record, the noise is accounted for.

import parley
job = parley.load_job("job.toml", overrides=["privacy.epsilon=2"])
outlook = parley.plan(job)      # what the budget buys; touches no data of a file
result = parley.run(job)        # the fast engine; result.summary, result.folder
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parley.planning import plan
    from parley.running import run
    from parley.server.jobs.file import load_job
    from parley.server.jobs.job import Job

__all__ = ["Job", "__version__", "load_job", "plan", "run"]

__version__ = "0.1.0"

_HOMES = {
    "Job": "parley.server.jobs.job",
    "load_job": "parley.server.jobs.file",
    "plan": "parley.planning",
    "run": "parley.running",
}


def __getattr__(name: str) -> Any:
    # `parley --help` imports this package: what costs time is imported when it is asked for.
    if name not in _HOMES:
        raise AttributeError(f"module 'parley' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
