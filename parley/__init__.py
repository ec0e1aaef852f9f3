"""Parley: m parties learn one model together; nobody shows a record, the noise is accounted for.

import parley
job = parley.load_job("job.toml", overrides=["privacy.epsilon=2"])
outlook = parley.plan(job)      # what the budget buys; touches no data of a file
result = parley.run(job)        # the fast engine; result.summary, result.folder
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.shadows import refuse_shadows

if TYPE_CHECKING:
    from parley.planning import plan
    from parley.running import run
    from server.job import Job
    from server.job_file import load_job

__all__ = ["Job", "__version__", "load_job", "plan", "run"]

__version__ = "0.1.0"

try:
    refuse_shadows(Path(__file__).parent.parent)
except ImportError as error:
    if sys.argv[:1] != ["-m"]:
        raise
    # `python -m parley`: Python still looks for the module to run, and a message is all one needs.
    raise SystemExit(f"parley: {error}") from None

_HOMES = {
    "Job": "server.job",
    "load_job": "server.job_file",
    "plan": "parley.planning",
    "run": "parley.running",
}


def __getattr__(name: str) -> Any:
    # `parley --help` imports this package: what costs time is imported when it is asked for.
    if name not in _HOMES:
        raise AttributeError(f"module 'parley' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
