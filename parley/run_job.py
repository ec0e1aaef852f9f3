"""Running a job from the front door: simulate, then write the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.client.data.schema import Schema
from parley.notebook_display import find_notebook_display
from parley.report.report_page import write_report
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.records.run_folder import RunFolder
from parley.server.records.run_result import RunResult
from parley.server.rounds.run_observer import Observer, tell_stage
from parley.simulations.data.experiment import build_experiment, load_experiment, prepare_data
from parley.simulations.data.record_reading import (
    InMemoryData,
    adapt_job_to_memory,
    build_in_memory_data,
)
from parley.simulations.engine.fast_engine import simulate
from parley.tracking.run_tracking import open_trackers
from parley.version import __version__

if TYPE_CHECKING:
    from parley.client.contract.release_plan import ReleasePlan
    from parley.server.records.round_line import RoundLine
    from parley.tracking.run_tracking import TrackingObserver


def run(
    job: Job | None = None,
    *,
    data: Any = None,
    schema: Schema | str | Path | None = None,
    label: str | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    observer: Observer | None = None,
    canaries: int = 0,
    track: Sequence[TrackingObserver | str] = (),
) -> RunResult:
    """Runs a job (the default one for None) in the engine it names and writes its report.

    Args:
        data: instead of the job's own: a polars or pandas frame, columns by name (`[N]` or
            `[N, …]`), arrays (X, y), a torch Dataset of pairs; or a list of these, one a party.
        schema: of such data, or its file; default the job's `data.schema`. Without any it is read
            off the data, which no ε covers; the summary says so.
        label: the label's column where the schema is read off the data; default the last.
        out: the run folder to make; default a new one under `run.out`.
        resume: a run folder to continue; its own job is used, data in memory are given again.
        observer: called at the start and after every round; default in a notebook: its display.
        track: trackers that follow the run, as "mlflow:URI" or "tensorboard:DIR".
        canaries: extra records by which the run audits itself (engine fast).

    Raises:
        JobError: canaries or data in another engine; a schema or label without data.
        DataError, SchemaError: data that are not what the schema says.
        what `parley.simulations.engine.fast_engine.simulate` raises, and ProcessError, PkiError of
        real processes.
    """
    out = None if out is None else Path(out)
    resume = None if resume is None else Path(resume)
    job = job or load_job() if resume is None else RunFolder.open(resume)[1]
    engine, given = job.run.engine, None
    observer = observer or find_notebook_display()
    trackers = _open_trackers(track)
    observer = _ObserverGroup(observer, trackers) if trackers else observer
    tell_stage(observer, "reading")
    if data is not None:
        given = build_in_memory_data(job, data, schema=schema, label=label)
        job = adapt_job_to_memory(job, given)
    elif schema is not None or label is not None:
        raise JobError("Expected data with schema or label, got none (a file's is data.schema).")
    if job.run.in_process:
        result = SIMULATIONS[engine](
            job if resume is None else None,
            out=out,
            resume=resume,
            observer=observer,
            version=__version__,
            canaries=canaries,
            given=given,
        )
    elif canaries:
        raise JobError(f"Expected run.engine = 'fast' with canaries, got {engine!r}.")
    else:
        from parley.deploy.process_engines import ENGINES  # noqa: PLC0415 - start-up: the fast engine needs no other (.13 s, with Flower a second)

        result = ENGINES[engine](job, out=out, resume=resume, observer=observer)
    tell_stage(observer, "report")
    write_report(result.folder)
    for tracker in trackers:
        tracker.report_end(result)
    return result


def _run_in_process(job: Job | None, *, given: InMemoryData | None = None, **how: Any) -> RunResult:
    """A simulation whose parties are all in this process."""
    return simulate(job, load=partial(load_experiment, given=given), **how)


def _run_on_ray(
    job: Job | None, *, resume: Path | None = None, given: InMemoryData | None = None, **how: Any
) -> RunResult:
    """A simulation whose parties are dealt to workers of Ray."""
    from parley.deploy.ray_engine import open_ray_parties  # noqa: PLC0415 - start-up: an extra

    known = job if job is not None else RunFolder.open(resume or Path())[1]
    if how.get("canaries"):
        raise JobError(
            f"Expected run.engine = 'fast' with canaries, got {known.run.engine!r}: its workers "
            "read rows that are kept in files, without extra records."
        )
    with open_ray_parties(known, lambda: prepare_data(known, given)) as (adding, data):
        return simulate(
            job, resume=resume, adding=adding, load=lambda own: build_experiment(own, data), **how
        )


SIMULATIONS: dict[str, Callable[..., RunResult]] = {"fast": _run_in_process, "ray": _run_on_ray}
"""Engines whose parties are arrays, by the name that --engine takes."""


def _open_trackers(specs: Sequence[TrackingObserver | str]) -> list[TrackingObserver]:
    if not specs:
        return []
    named = open_trackers([place for place in specs if isinstance(place, str)])
    return [*named, *(each for each in specs if not isinstance(each, str))]


class _ObserverGroup:
    """Observers that are called one after another."""

    def __init__(self, observer: Observer | None, trackers: Sequence[Observer]) -> None:
        self._observers = [*([] if observer is None else [observer]), *trackers]

    def started(self, job: Job, plan: ReleasePlan, folder: Path, done: int) -> None:
        """Passes it to each."""
        for each in self._observers:
            each.started(job, plan, folder, done)

    def stage(self, name: str) -> None:
        """Pass it to each that takes it."""
        for each in self._observers:
            tell_stage(each, name)

    def round_done(self, line: RoundLine) -> None:
        """Passes it to each."""
        for each in self._observers:
            each.round_done(line)
