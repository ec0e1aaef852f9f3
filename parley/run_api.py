"""`parley.run`: train one model from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.client.data.schema import Schema
from parley.completed_run import Run
from parley.run_job import run_request
from parley.run_request import build_run_request
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.rounds.run_observer import Observer

if TYPE_CHECKING:
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
    return Run.of(
        run_request(
            request, out=out, resume=resume, observer=observer, canaries=canaries, track=track
        )
    )
