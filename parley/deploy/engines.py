"""The engines that are real processes: `parley run --engine processes` and `--engine flower`.

All make the usual run folder and a folder for every party in it, have a server and the parties run
the installed Parley, follow the run folder, and end with everything ended (`parley.deploy.places`).
What differs is who carries the messages: `parley.deploy.stream`, or Flower in its simulation.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

from parley.deploy.flower_engine import run_simulation
from parley.deploy.follow import STALE
from parley.deploy.places import Place
from parley.deploy.processes import Supervisor
from parley.deploy.stream.engine import run_stream
from parley.errors import exit_status
from parley.server.jobs.job import Job
from parley.server.jobs.section import JobError
from parley.server.records.run import Run
from parley.server.records.run_folder import RunFolder, anchored
from parley.server.records.summary import RunSummary
from parley.server.rounds.observer import Observer

Launch = Callable[[Path, Supervisor], Callable[[Place, Job, Observer | None], RunSummary]]
"""A run's folder → what starts its processes and follows it to its end, once its data are there."""


def run_flower(
    job: Job | None,
    *,
    out: Path | None = None,
    resume: Path | None = None,
    observer: Observer | None = None,
) -> Run:
    """Runs a job in Flower's simulation runtime: every party a node, served by Ray workers.

    Raises:
        JobError: Ray is not installed; and what `parley.simulations.engine.fast.simulate` raises.
        ProcessError: Flower did not start, or lost the run.
    """
    if importlib.util.find_spec("ray") is None:
        raise JobError(
            "The flower engine needs Ray, which is not installed. Add it with: "
            'pip install "parley[ray]"'
        )
    return _run(job, run_simulation, out=out, resume=resume, observer=observer)


def run_processes(
    job: Job | None,
    *,
    out: Path | None = None,
    resume: Path | None = None,
    observer: Observer | None = None,
) -> Run:
    """Runs a job as a server's process and one process a party, on this machine, with TLS and keys.

    Raises:
        ProcessError: a process did not start, or ended by itself; and what
            `parley.simulations.engine.fast.simulate` raises.
    """
    return _run(job, run_stream, out=out, resume=resume, observer=observer)


ENGINES: dict[str, Callable[..., Run]] = {
    "flower": run_flower,
    "processes": run_processes,
}
"""Engines beside the fast one, by the name that --engine takes."""


def _run(
    job: Job | None,
    launch_of: Launch,
    *,
    out: Path | None,
    resume: Path | None,
    observer: Observer | None,
) -> Run:
    if resume is not None:
        folder, job = RunFolder.open(resume)
    elif job is None:
        raise JobError("Expected a job or a run to resume, got neither.")
    else:
        job = anchored(job)  # other processes start elsewhere
        folder = RunFolder.create(job, out)
    run = folder.path.resolve()
    for name in STALE:
        (run / name).unlink(missing_ok=True)
    place = Place(run=run)
    finished = False
    try:
        with Supervisor() as supervisor:
            launch = launch_of(run, supervisor)
            place.prepare(job)
            folder.keep_schema(place.experiment.schema)
            summary = launch(place, job, observer)
        finished = True
    except Exception as error:
        # As in the fast engine: a job that cannot run leaves nothing behind.
        if exit_status(error) in {2, 3} and not (run / "run-id").exists():
            shutil.rmtree(run, ignore_errors=True)
        raise
    finally:
        place.clean(finished=finished)
    model = place.model()
    summary = place.summary(summary, job=job, model=model)
    folder.write_summary(summary)
    return Run(summary=summary, folder=folder.path, theta=model["theta"])
