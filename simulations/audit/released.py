"""The audit of a job's released model, by attacks that train it many times over.

The records are synthetic, or the job's own: what an attack then says of them is computed from them,
and no ε covers it. Nothing else of the job is changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from parley.client.data.block import PartyBlock
from parley.server.jobs.job import Job
from parley.server.planning.federation import Federation
from parley.simulations.audit.audited import as_it_runs
from parley.simulations.audit.measure import (
    Effort,
    claim_of,
    claimed_rates,
    environment_of,
    error_rates,
)
from parley.simulations.audit.results import AuditReport, AuditResult
from parley.simulations.audit.smaller import AuditError
from parley.simulations.audit.trainings import TRAININGS, halved, train_and_attack
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
    if wrong or effort.methods:
        raise AuditError(
            f"Expected attacks on the released model alone ({', '.join(TRAININGS)}), by their own "
            f"methods, got {', '.join([*wrong, *effort.methods])}."
        )
    if not job.run.in_process:
        raise AuditError(
            f"Expected run.engine = 'fast', got {job.run.engine!r}: an audit is never part of a "
            "deployment."
        )
    asked = job if own_records else _synthetic(job)
    experiment = load_experiment(asked)
    block = _plain(experiment.block)
    comparisons = _METHODS * len(effort.attacks)
    results: list[AuditResult] = []
    roc: dict[str, tuple[tuple[float, float], ...]] = {}
    given = None
    for name in effort.attacks:
        federation = experiment.federation
        if name == "membership":
            federation = Federation.of_sizes(halved(block))
        given = as_it_runs(
            asked,
            model=experiment.model,
            federation=federation,
            features=block.features.shape[1],
            seed=effort.seed,
        )
        found = train_and_attack(
            given,
            block,
            name,
            trials=effort.trials,
            alpha=(1 - effort.confidence) / comparisons,
            comparisons=comparisons,
            source=Source(seed=effort.seed, names=("released",)),
        )
        results += found.results
        roc[name] = error_rates(found.inside, found.outside)
    if given is None:
        raise AuditError(f"Expected an attack of {', '.join(TRAININGS)}, got none.")
    environment: dict[str, Any] = {**environment_of(given, effort), "own_records": own_records}
    return AuditReport(
        claim=claim_of(given),
        results=tuple(results),
        environment=environment,
        confidence=effort.confidence,
        roc=roc,
        claimed_curve=claimed_rates(given),
    )


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


def _plain(block: PartyBlock) -> PartyBlock:
    return PartyBlock(
        features=np.asarray(block.features), labels=np.asarray(block.labels), offsets=block.offsets
    )
