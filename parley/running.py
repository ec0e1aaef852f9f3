"""Running a job from the front door: simulate, then write the report."""

from __future__ import annotations

from pathlib import Path

from parley import __version__
from parley.server.jobs.file import load_job
from parley.server.jobs.job import Job, JobError
from parley.server.records.run import Run
from parley.server.records.run_folder import RunFolder
from parley.server.rounds.observer import Observer
from parley.simulations.engine.fast import simulate

__all__ = ["run"]


def run(
    job: Job | None = None,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    observer: Observer | None = None,
    canaries: int = 0,
) -> Run:
    """Runs a job (the default one for None) in the engine it names and writes its report.

    Args:
        out: the run folder to make; default a new one under `run.out`.
        resume: a run folder to continue; its own job is used.
        observer: is told of the start and of every round.
        canaries: extra records by which the run audits itself (engine fast).

    Raises:
        JobError: canaries in another engine.
        what `parley.simulations.engine.fast.simulate` raises, and ProcessError, PkiError of real
        processes.
    """

    job = job or load_job()
    out = None if out is None else Path(out)
    resume = None if resume is None else Path(resume)
    engine = (job if resume is None else RunFolder.open(resume)[1]).run.engine
    if engine == "fast":
        result = simulate(
            job if resume is None else None,
            out=out,
            resume=resume,
            observer=observer,
            version=__version__,
            canaries=canaries,
        )
    elif canaries:
        raise JobError(f"Expected run.engine = 'fast' with canaries, got {engine!r}.")
    else:
        from parley.deploy.engines import ENGINES  # noqa: PLC0415 - start-up: Flower takes a second

        result = ENGINES[engine](job, out=out, resume=resume, observer=observer)
    from parley.report.page import write_report  # noqa: PLC0415 - start-up: altair takes .5 s

    write_report(result.folder)
    return result
