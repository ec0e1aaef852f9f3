"""Parley: m parties learn one model together; nobody shows a record, the noise is accounted for.

import parley
job = parley.load_job("job.toml", overrides=["privacy.epsilon=2"])
summary = parley.plan(job)      # a PlanSummary: what the budget buys; touches no data of a file
result = parley.run(job)        # the fast engine; result.summary, result.folder
result = parley.run(job, data=frame, schema="schema.toml")  # or (X, y), a Dataset, one a party
with parley.Session("party-*.csv", schema="schema.toml", epsilon=1) as s:   # statistics
    s.where(parley.col.age > 60).count(epsilon=.1)
swept = parley.run_sweep("sweep.toml")      # swept.rows, swept.folder, swept.page
model = parley.load_model(result.folder)    # model.predict(frame), model.predict_proba(frame)
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.version import __version__ as __version__

if not (Path(__file__).parent / "client").exists():
    # A checkout: the packages that an install puts below this one lie beside it.
    __path__.append(str(Path(__file__).parents[1]))

if TYPE_CHECKING:
    from parley import audit_bounds as audit_bounds
    from parley.analytics.session import Session as Session
    from parley.client.queries.filters.expressions import col as col
    from parley.planning.plan_job import plan as plan
    from parley.prediction.model_loading import load_model as load_model
    from parley.run_job import run as run
    from parley.server.jobs.job import Job as Job
    from parley.server.jobs.job_file import load_job as load_job
    from parley.sweep.sweep_runner import run_sweep as run_sweep

_HOMES = {
    "Session": "parley.analytics.session",
    "col": "parley.client.queries.filters.expressions",
    "Job": "parley.server.jobs.job",
    "load_job": "parley.server.jobs.job_file",
    "load_model": "parley.prediction.model_loading",
    "plan": "parley.planning.plan_job",
    "run": "parley.run_job",
    "run_sweep": "parley.sweep.sweep_runner",
}


def __getattr__(name: str) -> Any:
    if name == "audit_bounds":
        return importlib.import_module("parley.audit_bounds")
    # `parley --help` imports this package: what costs time is imported when it is asked for.
    if name not in _HOMES:
        raise AttributeError(f"module 'parley' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
