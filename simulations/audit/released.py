"""The audit of a job's released model, by attacks that train it many times over.

The records are synthetic, or the job's own: what an attack then says of them is computed from them,
and no ε covers it. Nothing else of the job is changed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parley.client.data.block import PartyBlock
from parley.server.jobs.federation import Federation
from parley.server.jobs.job import Job
from parley.simulations.audit.audited import as_it_runs
from parley.simulations.audit.measure import Effort, Rates, error_rates, report_of
from parley.simulations.audit.results import AuditReport, AuditResult
from parley.simulations.audit.shapes import AuditError
from parley.simulations.audit.trainings import TRAININGS, Trained, halved, train_and_attack
from parley.simulations.audit.worlds import Source
from parley.simulations.data.experiment import load_experiment

TRIALS = 400
"""Worlds with a canary, and as many without, unless the audit is asked for others."""

_METHODS = 2
"""Bounds that an attack gives at most."""


def audit_released(job: Job, effort: Effort, *, own_records: bool = False) -> AuditReport:
    """What readers of the job's model get, by the attacks of `effort`: names of `TRAININGS`.

    Args:
        own_records: train on the job's own, of which the scores then say something.

    Raises:
        AuditError: an attack of another kind, methods that are asked for, or a job that has no
            such model.
        JobError, DataError, CalibrationError, RingTooSmall: as running the job would.
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
    effort = replace(effort, trials=effort.trials or TRIALS)
    asked = job if own_records else _synthetic(job)
    experiment = load_experiment(asked)
    records = experiment.block
    block = PartyBlock(
        features=np.asarray(records.features),
        labels=np.asarray(records.labels),
        offsets=records.offsets,
    )
    comparisons = _METHODS * len(effort.attacks)
    results: list[AuditResult] = []
    roc: dict[str, Rates] = {}
    for name in effort.attacks:
        halves = name == "membership"
        given = as_it_runs(
            asked,
            model=experiment.model,
            federation=Federation.of_sizes(halved(block)) if halves else experiment.federation,
            features=block.features.shape[1],
            seed=effort.seed,
        )
        trained = Trained(
            audited=given,
            block=block,
            trials=effort.trials or TRIALS,
            alpha=(1 - effort.confidence) / comparisons,
            source=Source(seed=effort.seed, names=("released",)),
        )
        own, found = train_and_attack(trained, name, comparisons=comparisons)
        results += own
        roc[name] = error_rates(found.inside, found.outside)
    return report_of(given, effort, results, roc, own_records=own_records)


def _synthetic(job: Job) -> Job:
    plain = job.values()
    plain["data"] |= {
        "source": "synthetic",
        "schema": "",
        "partition": "iid",
        "test-source": "",
        "test-schema": "",
    }
    return Job.model_validate(plain)
