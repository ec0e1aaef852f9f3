"""Runs whose parties are all arrays: in this process, or on workers of Ray."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.records.run_result import RunResult
from parley.simulations.data.experiment_loading import (
    build_experiment,
    load_experiment,
    prepare_data,
)
from parley.simulations.engine.fast_engine import simulate

if TYPE_CHECKING:
    from parley.simulations.data.source_records import InMemoryData


def run_in_process(job: Job | None, *, given: InMemoryData | None = None, **how: Any) -> RunResult:
    """Simulate with all parties in this process."""
    return simulate(job, load=partial(load_experiment, given=given), **how)


def run_on_ray(
    job: Job | None, *, resume: Path | None = None, given: InMemoryData | None = None, **how: Any
) -> RunResult:
    """Simulate with parties on workers of Ray."""
    from parley.deploy.ray_engine import open_ray_parties  # noqa: PLC0415 - start-up: an extra
    from parley.server.records.run_folder_opening import open_run_folder  # noqa: PLC0415 - spares its code in other engines

    known = job if job is not None else open_run_folder(resume or Path())[1]
    if how.get("canaries"):
        raise JobError(
            f"Expected run.engine = 'fast' with canaries, got {known.run.engine!r}: its workers "
            "read rows that are kept in files, without extra records."
        )
    with open_ray_parties(known, lambda: prepare_data(known, given)) as (adding, data):
        return simulate(
            job, resume=resume, adding=adding, load=lambda own: build_experiment(own, data), **how
        )
