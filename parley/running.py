"""Running a job from the front door: simulate, then write the report."""

from __future__ import annotations

from pathlib import Path

from parley import __version__
from server.job import Job
from simulations.engine import Observer, Simulation, simulate

__all__ = ["run"]


def run(
    job: Job | None = None,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    observer: Observer | None = None,
) -> Simulation:
    """Runs a job (the default one for None) in the fast engine and writes its report.

    Args:
        out: the run folder to make; default a new one under `run.out`.
        resume: a run folder to continue; its own job is used.
        observer: is told of the start and of every round.

    Raises:
        what `simulations.engine.simulate` raises.
    """
    from server.job_file import load_job

    if job is None and resume is None:
        job = load_job()
    result = simulate(
        job,
        out=None if out is None else Path(out),
        resume=None if resume is None else Path(resume),
        observer=observer,
        version=__version__,
    )
    from parley.report import write_report

    write_report(result.folder)
    return result
