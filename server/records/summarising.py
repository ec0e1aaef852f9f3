"""The summary of a run as far as its server knows it: nothing here looks at a record.

A simulation adds what only a simulation may know.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from parley.client.algorithms.registry import kind_of
from parley.client.contract.feature_map import features_statement
from parley.client.contract.guarantee import Guarantee
from parley.client.contract.model_names import public_name
from parley.client.contract.plan import ReleasePlan
from parley.server.jobs.job import Job
from parley.server.records.clipped_fraction import clipped_facts
from parley.server.records.data_account import DataAccount
from parley.server.records.guarantees import guarantee_summaries, record_bounds
from parley.server.records.progress import Outcome
from parley.server.records.round_line import RoundLine
from parley.server.records.run_folder import RunFolder
from parley.server.records.summary import Evaluation, RunSummary


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
    model: Any = None,
    components: dict[str, Any] | None = None,
    deployment: str | None = None,
    data_accounts: Sequence[DataAccount] = (),
    evaluation: Evaluation | None = None,
    beside: Sequence[Guarantee] = (),
) -> RunSummary:
    """The summary of a run that ended, complete or not.

    Figures that would be releases are absent.

    Args:
        components: parties and traffic of the private components' release, if there was one.
        beside: the guarantees of the releases ahead of the rounds and after them that were made.
    """
    progress = outcome.progress
    seconds_by_round = [line.seconds for line in progress.lines]
    sums: dict[str, Any] = {
        **facts_of_rounds(progress.lines),
        "ring_bits": plan.encoding.ring_bits,
        "scale_bits": plan.encoding.scale_bits,
        "inflation": plan.inflation,
        "min_survivors": plan.min_survivors,
        **secure_sum,
    }
    ahead: dict[str, Any] | None = None
    if components:
        ahead = {**components, "noise_point": job.privacy.noise_point}
        for way in ("bytes_up", "bytes_down"):
            sums[way] += components.get(way, 0)
    facts: dict[str, Any] = {
        "format": 2,
        **facts_of_job(job),
        "algorithm_title": kind_of(job.algorithm.kind).title,
        "model_digest": getattr(model, "digest", None),
        "run_dir": str(folder.path),
        "run_id": folder.run_id,
        "ledger_head": ledger_head,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "parley_version": version,
        "engine": engine,
        "status": outcome.status,
        "reason": outcome.reason,
        "min_records": plan.min_records,
        "dimension": plan.parameters,
        "rounds_done": progress.done,
        "guarantees": guarantee_summaries(job, plan, progress, engine=engine, beside=beside),
        "secure_aggregation": sums,
        "seconds": seconds,
        "seconds_per_round": float(np.median(seconds_by_round)) if seconds_by_round else None,
        "deployment": deployment,
        "record_bounds": record_bounds(plan, rounds=progress.done),
        "clipped_fraction": clipped_facts(plan, progress),
        "components": ahead,
        "evaluation": evaluation,
        "data_accounts": tuple(data_accounts) or None,
    }
    return RunSummary.model_validate(facts)


def facts_of_job(job: Job) -> dict[str, Any]:
    """What a summary has from the job as it is."""
    return {
        "ledger": job.privacy.ledger,
        "algorithm": public_name(job.algorithm.kind),
        "model": public_name(job.model.kind),
        "metric": job.model.metric,
        "class_weights": job.model.weights_of_classes or None,
        "data": job.data.source,
        "features": features_statement(job.model.feature_map) or None,
        "parties": job.parties.count,
        "weights": job.parties.weights,
        "rounds": job.rounds if job.is_settled else 0,
    }


def facts_of_rounds(lines: Sequence[RoundLine]) -> dict[str, int]:
    """The traffic of all rounds."""
    return {
        "bytes_up": sum(line.bytes_up for line in lines),
        "bytes_down": sum(line.bytes_down for line in lines),
    }
