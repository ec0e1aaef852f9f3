"""Running a job from the front door: simulate, then write the report."""

from __future__ import annotations

from pathlib import Path

from parley import __version__
from server.job import Job, JobError
from simulations.engine import Observer, Simulation, simulate

__all__ = ["run"]


def run(
    job: Job | None = None,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    observer: Observer | None = None,
    engine: str = "fast",
) -> Simulation:
    """Runs a job (the default one for None) and writes its report.

    Args:
        engine: fast (all parties in this process), flower (Flower's simulation, needs
            `parley[ray]`) or processes (a real server and a real process a party, with TLS). A run
            that is resumed keeps its own.
        out: the run folder to make; default a new one under `run.out`.
        resume: a run folder to continue; its own job is used.
        observer: is told of the start and of every round.

    Raises:
        what `simulations.engine.simulate` raises, and ProcessError, PkiError of real processes.
    """
    from server.job_file import load_job

    if job is None and resume is None:
        job = load_job()
    out = None if out is None else Path(out)
    resume = None if resume is None else Path(resume)
    if resume is not None and (resume / "engine").exists():
        engine = (resume / "engine").read_text(encoding="utf-8").strip()
    if engine == "fast":
        result = simulate(job, out=out, resume=resume, observer=observer, version=__version__)
    else:
        from parley.deploy.engines import ENGINES

        if engine not in ENGINES:
            raise JobError(f"Expected engine fast, {' or '.join(ENGINES)}, got {engine}.")
        result = ENGINES[engine](job, out=out, resume=resume, observer=observer)
    from parley.report import write_report

    write_report(result.folder)
    return result
