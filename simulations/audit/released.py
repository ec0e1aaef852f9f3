"""The audit of a job's released model, by attacks that train it many times over."""

from __future__ import annotations

from dataclasses import replace

from parley.server.jobs.job import Job
from parley.simulations.audit.audited import as_it_runs
from parley.simulations.audit.measure import Effort, audit_by
from parley.simulations.audit.results import AuditReport
from parley.simulations.audit.shapes import AuditError
from parley.simulations.audit.trainings import TRAININGS
from parley.simulations.data.experiment import load_experiment

_TRIALS = 400
"""Worlds with a canary, and as many without, unless the audit is asked for others."""

_SYNTHETIC = {
    "source": "synthetic",
    "schema": "",
    "partition": "iid",
    "test-source": "",
    "test-schema": "",
}


def audit_released(job: Job, effort: Effort, *, own_records: bool = False) -> AuditReport:
    """What readers of the job's model get, by the attacks of `effort`: names of `TRAININGS`.

    Args:
        own_records: train on the job's own, of which the scores then say something.

    Raises:
        AuditError: an attack of another kind, methods that are asked for, or a job that has no
            such model.
    """
    wrong = [name for name in effort.attacks if name not in TRAININGS]
    if wrong or effort.methods or not effort.attacks:
        raise AuditError(
            f"Expected attacks on the released model alone ({', '.join(TRAININGS)}), by their own "
            f"methods, got {', '.join([*wrong, *effort.methods]) or 'none'}."
        )
    if not job.run.in_process:
        raise AuditError(
            f"Expected run.engine = 'fast', got {job.run.engine!r}: an audit is never part of a "
            "deployment."
        )
    if not own_records:
        plain = job.values()
        plain["data"] |= _SYNTHETIC
        job = Job.model_validate(plain)
    world = load_experiment(job)
    job = job.settled(world.federation, world.classes)
    targets = {
        name: as_it_runs(job, world, by_halves=name == "membership", seed=effort.seed)
        for name in effort.attacks
    }
    effort = replace(effort, trials=effort.trials or _TRIALS)
    return audit_by(targets, effort, own_records=own_records)
