"""Running a job from the front door: simulate, then write the report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.client.data.schema import Schema
from parley.prediction.own_code import is_object_name
from parley.presentation.run_page import write_report
from parley.run_request import RunRequest, build_run_request
from parley.safe_io.plugin_table import PluginTable
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.records.run_folder import RunFolder
from parley.server.records.run_result import RunResult
from parley.server.rounds.run_observer import Observer, tell_rows, tell_stage
from parley.version import __version__

if TYPE_CHECKING:
    from parley.client.contract.release_plan import ReleasePlan
    from parley.completed_run import Run
    from parley.server.records.round_line import RoundLine
    from parley.tracking.run_tracking import TrackingObserver


def run(
    what: Any = None,
    y: Any = None,
    *,
    job: Job | Mapping[str, Any] | str | Path | None = None,
    data: Any = None,
    schema: Schema | Mapping[str, Any] | str | Path | None = None,
    label: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    parties: int | None = None,
    unit: str | None = None,
    model: Any = None,
    algorithm: str | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    engine: str | None = None,
    baseline: bool | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    observer: Observer | None = None,
    canaries: int = 0,
    track: Sequence[TrackingObserver | str] = (),
) -> Run:
    """Train one model with all parties on this machine, with noise and a ledger.

        run = parley.run(frame, label="sick", epsilon=1, parties=5)
        run.model.predict(new_rows), run.epsilon, run.metrics

    Args:
        what: data, as `data`; or a job: a `Job`, a .toml file, or a dictionary of its keys.
        y: labels if `what` is X.
        job: keys that have no keyword here: a `Job`, its file, or a dictionary such as
            {"algorithm.clip-norm": 1}. A keyword wins over the same key in `job`.
        data: a polars or pandas frame, columns by name (`[N]` or `[N, …]`), arrays (X, y), a torch
            Dataset of pairs, or files; or a list of frames or pairs, one per party.
        schema: the columns' public ranges: a schema, its file, or a dictionary as `Schema.of` takes
            it. Without one it is read off the data, which no ε covers; a warning says so.
        label: name of the column to predict; default the last one.
        epsilon, delta, parties, unit, algorithm, rounds, seed, engine: keys of the job.
        model: a kind, such as "softmax" or "cnn"; a function (features, classes) that returns a
            `torch.nn.Module`; a class; or a module, whose weights are the public start.
        baseline: whether to train the non-private model, too, for comparison.
        out: the run folder to make; default a new one under `run.out`.
        resume: a run folder to continue. Its own job is used; pass data in memory again.
        observer: called at the start and after every round; default in a notebook: its display.
        canaries: number of extra records by which the run audits itself (engine fast).
        track: trackers that follow the run, as "mlflow:URI" or "tensorboard:DIR".

    Raises:
        JobError: keys that are unknown or contradict each other; data in another engine.
        DataError, SchemaError: data that are not what the schema says.
        what `parley.simulations.engine.fast_engine.simulate` raises, and ProcessError, PkiError of
        real processes.
    """
    request = build_run_request(
        what, y, job=job, data=data, schema=schema, label=label, model=model, epsilon=epsilon,
        delta=delta, parties=parties, unit=unit, algorithm=algorithm, rounds=rounds, seed=seed,
        engine=engine, baseline=baseline,
    )  # fmt: skip
    if resume is not None and (job is not None or (what is not None and request.data is None)):
        raise JobError("Expected resume without a job: the run continues with its own job.")
    from parley.completed_run import Run  # noqa: PLC0415 - the command line prints the result

    return Run.of(
        run_request(
            request, out=out, resume=resume, observer=observer, canaries=canaries, track=track
        )
    )


def run_request(
    request: RunRequest,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    observer: Observer | None = None,
    canaries: int = 0,
    track: Sequence[TrackingObserver | str] = (),
) -> RunResult:
    """Run what was requested and write the report. For the arguments see `run`."""
    job = request.job if resume is None else RunFolder.open(Path(resume))[1]
    observer = observer or _find_notebook_display()
    trackers = _open_trackers(track)
    observer = _ObserverGroup(observer, trackers) if trackers else observer
    tell_stage(observer, "reading")
    result = _run_engine(
        job,
        request,
        out=None if out is None else Path(out),
        resume=None if resume is None else Path(resume),
        observer=observer,
        canaries=canaries,
    )
    tell_stage(observer, "report")
    write_report(result.folder)
    for tracker in trackers:
        tracker.report_end(result)
    return result


def _find_notebook_display() -> Observer | None:
    if "IPython" not in sys.modules:
        return None
    from parley.notebook_display import find_notebook_display  # noqa: PLC0415 - only in a notebook

    return find_notebook_display()


def _run_engine(
    job: Job,
    request: RunRequest,
    *,
    out: Path | None,
    resume: Path | None,
    observer: Observer | None,
    canaries: int,
) -> RunResult:
    """Run the job in the engine that it names."""
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
        return SIMULATIONS[engine](
            job if resume is None else None,
            out=out,
            resume=resume,
            observer=observer,
            version=__version__,
            canaries=canaries,
            given=given,
        )
    if canaries:
        raise JobError(f"Expected run.engine = 'fast' with canaries, got {engine!r}.")
    if is_object_name(job.model.kind):
        raise JobError(
            f"Expected the network's name with run.engine = {engine!r}, got an object that only "
            'this process has. Write it in a file: model="file.py:function".'
        )
    from parley.deploy.process_engines import ENGINES  # noqa: PLC0415 - start-up: the fast engine needs no other (.13 s, with Flower a second)

    return ENGINES[engine](job, out=out, resume=resume, observer=observer)


SIMULATIONS = PluginTable[Callable[..., RunResult]](
    {
        "fast": "parley.simulated_run:run_in_process",
        "ray": "parley.simulated_run:run_on_ray",
    }
)
"""Engines whose parties are arrays, by the name that --engine takes."""


def _open_trackers(specs: Sequence[TrackingObserver | str]) -> list[TrackingObserver]:
    if not specs:
        return []
    from parley.tracking.run_tracking import open_trackers  # noqa: PLC0415 - a run without a tracker

    named = open_trackers([place for place in specs if isinstance(place, str)])
    return [*named, *(each for each in specs if not isinstance(each, str))]


class _ObserverGroup:
    """Observers that are called one after another."""

    def __init__(self, observer: Observer | None, trackers: Sequence[Observer]) -> None:
        self._observers = [*([] if observer is None else [observer]), *trackers]

    def started(self, job: Job, plan: ReleasePlan, folder: Path, done: int) -> None:
        """Pass it to each observer."""
        for each in self._observers:
            each.started(job, plan, folder, done)

    def stage(self, name: str) -> None:
        """Pass it to each that takes it."""
        for each in self._observers:
            tell_stage(each, name)

    def reading(self, source: str, rows: int) -> None:
        """Pass it to each that takes it."""
        for each in self._observers:
            tell_rows(each, source, rows)

    def round_done(self, line: RoundLine) -> None:
        """Pass it to each observer."""
        for each in self._observers:
            each.round_done(line)
