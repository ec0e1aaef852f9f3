"""Parley: several parties train one model; no party shows a record, and a ledger counts the cost.

    import parley
    run = parley.run(X, y, epsilon=1, parties=5)            # a frame with label=…, files, or a job
    run.model.predict(X), run.epsilon, run.metrics          # print(run) has the rest
    parley.plan(epsilon=1, parties=5)                       # what a budget buys; reads no data
    schema = {"age": (0, 120), "ward": ["a", "b"]}          # public ranges and categories
    with parley.Session(frame, schema=schema, epsilon=1) as s:  # statistics
        s.where(parley.col.age > 60).count(epsilon=0.1)
    model = parley.load_model(run.folder)                   # the same model, in another process

The command `parley` does the same in a terminal.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.safe_io.deprecations import rename_key
from parley.version import __version__ as __version__

if not (Path(__file__).parent / "client").exists():
    # A checkout: the packages that an install puts below this one lie beside it.
    __path__.append(str(Path(__file__).parents[1]))

if TYPE_CHECKING:
    from parley import audit_bounds as audit_bounds
    from parley.analytics.session import Session as Session
    from parley.client.data.schema import Schema as Schema
    from parley.client.queries.filters.expressions import col as col
    from parley.completed_run import Run as Run
    from parley.logistic_regression import LogisticRegression as LogisticRegression
    from parley.planning.plan_job import plan as plan
    from parley.prediction.model_loading import load_model as load_model
    from parley.run_api import run as run
    from parley.server.jobs.job import Job as Job
    from parley.server.jobs.job_file import load_job as load_job
    from parley.sweeps.sweep_api import sweep as sweep
    from parley.sweeps.sweep_runner import run_sweep as run_sweep

__all__ = [
    "Job", "LogisticRegression", "Run", "Schema", "Session", "__version__", "audit_bounds", "col",
    "load_job", "load_model", "plan", "run", "run_sweep", "sweep",
]  # fmt: skip

_HOMES = {
    "LogisticRegression": "parley.logistic_regression",
    "Run": "parley.completed_run",
    "Schema": "parley.client.data.schema",
    "Session": "parley.analytics.session",
    "col": "parley.client.queries.filters.expressions",
    "Job": "parley.server.jobs.job",
    "load_job": "parley.server.jobs.job_file",
    "load_model": "parley.prediction.model_loading",
    "plan": "parley.planning.plan_job",
    "run": "parley.run_api",
    "run_sweep": "parley.sweeps.sweep_runner",
    "sweep": "parley.sweeps.sweep_api",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name == "audit_bounds":
        return importlib.import_module("parley.audit_bounds")
    # `parley --help` imports this package: what costs time is imported when it is asked for.
    if name not in _HOMES:
        try:
            current = rename_key("python", name)
        except ValueError as error:
            raise AttributeError(str(error)) from error
        if current != name:
            return __getattr__(current)
        raise AttributeError(f"module 'parley' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
