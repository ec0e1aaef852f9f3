"""Run what was requested in the engine that the job names, then write the report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.module_loading.plugin_table import PluginTable
from parley.presentation.run_page import write_report
from parley.run_request import RunRequest
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.records.run_result import RunResult
from parley.server.rounds.run_observer import Observer, tell_stage
from parley.version import __version__

if TYPE_CHECKING:
    from parley.tracking.run_tracking import TrackingObserver


def run_request(
    request: RunRequest,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    observer: Observer | None = None,
    canaries: int = 0,
    track: Sequence[TrackingObserver | str] = (),
) -> RunResult:
    """Run what was requested and write the report. For the arguments see `parley.run`."""
    job = request.job
    if resume is not None:
        from parley.server.records.run_folder_opening import open_run_folder  # noqa: PLC0415 - spares its code for a new run

        _, job = open_run_folder(Path(resume))
    observer = observer or _find_notebook_display()
    trackers: list[TrackingObserver] = []
    if track:
        from parley.tracking.run_tracking import ObserverGroup, open_trackers  # noqa: PLC0415 - a run without a tracker

        trackers = open_trackers(track)
        observer = ObserverGroup(observer, trackers)
    tell_stage(observer, "reading")
    out, resume = (None if each is None else Path(each) for each in (out, resume))
    how = {"out": out, "resume": resume, "observer": observer}
    result = _run_engine(job, request, how, canaries)
    tell_stage(observer, "report")
    write_report(result.folder)
    for tracker in trackers:
        tracker.report_end(result)
    return result


def _find_notebook_display() -> Observer | None:
    if "IPython" not in sys.modules:
        return None
    from parley.notebook_progress import find_notebook_display  # noqa: PLC0415 - only in a notebook

    return find_notebook_display()


def _run_engine(job: Job, request: RunRequest, how: dict[str, Any], canaries: int) -> RunResult:
    """Run the job in the engine that it names, with its `out`, `resume` and `observer`."""
    engine, given = job.run.engine, None
    if request.data is not None:
        from parley.simulations.data import in_memory_data  # noqa: PLC0415 - a file's job infers no schema

        given = in_memory_data.build_in_memory_data(
            job, request.data, schema=request.schema, label=request.label
        )
        job = in_memory_data.adapt_job_to_memory(job, given)
    elif request.schema is not None or request.label is not None:
        raise JobError("Expected data with schema or label, got none (a file's is data.schema).")
    if job.run.in_process:
        known = job if how["resume"] is None else None
        how |= {"version": __version__, "canaries": canaries, "given": given}
        return SIMULATIONS[engine](known, **how)
    if canaries:
        raise JobError(f"Expected run.engine = 'fast' with canaries, got {engine!r}.")
    from parley.deploy.process_engines import ENGINES  # noqa: PLC0415 - start-up: the fast engine needs no other (.13 s, with Flower a second)
    from parley.prediction.permitted_code import is_object_name  # noqa: PLC0415 - spares its code in the fast engine

    if is_object_name(job.model.kind):
        raise JobError(
            f"Expected the network's name with run.engine = {engine!r}, got an object that only "
            'this process has. Write it in a file: model="file.py:function".'
        )
    return ENGINES[engine](job, **how)


SIMULATIONS = PluginTable[Callable[..., RunResult]](
    {"fast": "parley.simulated_run:run_in_process", "ray": "parley.simulated_run:run_on_ray"}
)
"""Engines whose parties are arrays, by the name that --engine takes."""
