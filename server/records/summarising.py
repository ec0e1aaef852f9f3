"""The summary of a run as far as its server knows it: nothing here looks at a record.

A simulation adds what only a simulation may know.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from parley.client.algorithms.registry import kind_of
from parley.client.contract.feature_map import features_statement
from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.guarantee import Adversary
from parley.server.jobs.job import Job
from parley.server.planning.release import account, averaged
from parley.server.records.accounts import accounts_of
from parley.server.records.clipped_fraction import clipped_facts
from parley.server.records.noise_shares import shares_of
from parley.server.records.progress import Outcome, Progress
from parley.server.records.run_folder import RunFolder
from parley.server.records.summary import RunSummary
from parley.server.records.two_units import party_level, record_bounds

__all__ = ["run_summary"]

_UNKNOWN = (
    "loss",
    "baseline_loss",
    "excess_loss",
    "accuracy",
    "baseline_accuracy",
    "majority_accuracy",
)
"""Figures that would each be a release of its own."""


def _ahead(job: Job) -> Adversary:
    """Whom the release of components holds against: its noise is on the sum."""
    trusting = job.privacy.noise_point == "server"
    return Adversary.READERS if trusting else Adversary.COLLUDERS


def _before(plan: ReleasePlan, progress: Progress) -> Composition:
    """What the primary unit was charged ahead of the rounds."""
    spent, event = progress.spent[plan.primary.unit], plan.event(plan.primary.unit)
    for _ in range(progress.done):
        spent = spent.remove(event)
    return spent


def run_summary(
    *,
    job: Job,
    plan: ReleasePlan,
    outcome: Outcome,
    secure_sum: dict[str, Any],
    folder: RunFolder,
    ledger_head: dict[str, Any],
    version: str,
    seconds: float,
    engine: str,
    components: dict[str, Any] | None = None,
    deployment: str | None = None,
) -> RunSummary:
    """The summary of a run that ended, complete or not.

    ε and δ are what was spent, by the lowest proved conversion. Figures that would be releases are
    None.

    Args:
        components: parties and traffic of the private components' release, if there was one.
        deployment: id of the parties' roster, if they are real.
    """
    progress = outcome.progress
    spent = account(progress.spent[plan.primary.unit], plan.primary.delta)
    noise = averaged(job, plan)
    seconds_by_round = [line.seconds for line in progress.lines]
    facts: dict[str, Any] = {
        "run_dir": str(folder.path),
        "run_id": folder.run_id,
        "ledger": job.privacy.ledger,
        "ledger_head": ledger_head,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "parley_version": version,
        "engine": engine,
        "status": outcome.status,
        "reason": outcome.reason,
        "algorithm": plan.algorithm,
        "algorithm_title": kind_of(job.algorithm.kind).title,
        "model": job.model.kind,
        "metric": job.model.metric,
        "data": job.data.source,
        "features": features_statement(job.model.feature_map) or None,
        "parties": plan.parties,
        "records_by_party": (),
        "min_records": plan.min_records,
        "weights": plan.weights,
        "dimension": plan.parameters,
        "rounds": job.rounds,
        "rounds_done": progress.done,
        "epsilon": spent["epsilon_charged"],
        "delta": plan.primary.delta,
        "epsilon_budget": job.privacy.epsilon,
        "delta_budget": job.privacy.delta,
        "rho": spent["rho"],
        "accounts": accounts_of(
            plan,
            plan.primary.unit,
            epsilon=spent["epsilon_charged"],
            delta=plan.primary.delta,
            summed=[line.parties.summed for line in progress.lines],
            before=_before(plan, progress),
            ahead=None if components is None else _ahead(job),
        ),
        "epsilon_by_conversion": spent["epsilon"],
        "conversion": spent["conversion"],
        "unit": str(plan.primary.unit),
        "neighbouring": str(plan.primary.neighbouring),
        "calibration": plan.primary.calibration,
        "noise": {
            "law": plan.primary.mechanism.law,
            "scale": noise.scale,
            "scale_of_sum": noise.scale
            * (plan.parties if plan.primary in plan.on_sum and not plan.sampled else 1),
            "expected_norm": noise.expected_norm() * plan.primary.noise_growth,
            "sensitivity": noise.sensitivity,
            "point": str(plan.primary.noise_point),
            "seeded": job.seed is not None,
            "shares": shares_of(job, plan, plan.primary, engine=engine),
        },
        "secure_aggregation": {
            "ring_bits": plan.encoding.ring_bits,
            "scale_bits": plan.encoding.scale_bits,
            "inflation": plan.inflation,
            "min_survivors": plan.min_survivors,
            "bytes_up": sum(line.bytes_up for line in progress.lines),
            "bytes_down": sum(line.bytes_down for line in progress.lines),
            **secure_sum,
        },
        **dict.fromkeys(_UNKNOWN),
        "seconds": seconds,
        "seconds_per_round": float(np.median(seconds_by_round)) if seconds_by_round else None,
        "simulation_only": (),
        "advice": (),
        "deployment": deployment,
        "party_level": party_level(job, plan, progress),
        "record_bounds": record_bounds(plan, rounds=progress.done),
        "clipped_fraction": clipped_facts(plan, progress),
    }
    if components:
        for way in ("bytes_up", "bytes_down"):
            facts["secure_aggregation"][way] += components.get(way, 0)
        facts["components"] = {**components, "noise_point": job.privacy.noise_point}
    return RunSummary.model_validate(facts)
