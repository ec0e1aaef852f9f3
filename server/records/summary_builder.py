"""Build the summary of a run from what its server knows; no function here reads a record.

A simulation adds what only a simulation may know.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.registry import get_algorithm_spec
from parley.client.own_code.own_code_names import get_public_name
from parley.privacy.ledger.account import BudgetAccount
from parley.privacy.ledger.hash_chain import ChainHead
from parley.server.jobs.job import Job
from parley.server.planning.run_stages import COMPONENTS, EVALUATION, RunStage, get_rounds_stage
from parley.server.records.guarantee_costs import build_guarantee_summaries, compute_record_bounds
from parley.server.records.model_metadata import describe_feature_map
from parley.server.records.run_folder import RunFolder
from parley.server.records.run_progress import RunProgress
from parley.server.records.run_summary import RunSummary


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run that ended, with its stages.

    Attributes:
        evaluation_failure: why a requested evaluation is missing; else empty.
        totals: accounts of the data's budgets, if runs share the ledger.
    """

    stages: tuple[RunStage, ...]
    progress: RunProgress
    algorithm: FederatedAlgorithm
    theta: NDArray[np.float64]
    evaluation_failure: str
    head: ChainHead
    totals: tuple[BudgetAccount, ...]


def build_run_summary(
    finished: FinishedRun,
    *,
    job: Job,
    folder: RunFolder,
    secure_sum: dict[str, Any],
    began: float,
    engine: str,
    version: str,
    deployment: str | None = None,
    labels: Sequence[str] = (),
) -> RunSummary:
    """Build the summary of a run that ended, complete or not.

    Numbers that would be releases are absent.

    Args:
        secure_sum: what is known of the protocol in addition to its traffic.
        began: start time, by `time.perf_counter`.
    """
    progress = finished.progress
    plan, totals = get_rounds_stage(finished.stages).plan, progress.totals
    components = progress.ahead.get(COMPONENTS)
    sums: dict[str, Any] = {
        "bytes_up": totals.bytes_up,
        "bytes_down": totals.bytes_down,
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
        **build_job_fields(job),
        "algorithm_title": get_algorithm_spec(job.algorithm.kind).title,
        "model_digest": getattr(finished.algorithm.model, "digest", None),
        "run_dir": str(folder.path),
        "run_id": folder.run_id,
        "ledger_head": finished.head.to_json(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "parley_version": version,
        "engine": engine,
        "status": progress.status,
        "reason": progress.reason,
        "min_records": None if job.algorithm.data_reading else plan.min_records,
        "dimension": plan.parameters,
        "rounds_done": progress.done,
        "guarantees": build_guarantee_summaries(
            job,
            finished.stages,
            engine=engine,
            contributions=totals.summed,
            released=progress.ahead,
        ),
        "secure_aggregation": sums,
        "seconds": time.perf_counter() - began,
        "seconds_per_round": float(np.median(totals.seconds)) if totals.seconds else None,
        "deployment": deployment,
        "record_bounds": compute_record_bounds(plan, rounds=progress.done),
        "components": ahead,
        **_summarise_extras(finished, labels),
    }
    return RunSummary.model_validate(facts)


def _summarise_extras(finished: FinishedRun, labels: Sequence[str]) -> dict[str, Any]:
    """Return the fields that only some runs have. Only their code is imported."""
    stages, progress = finished.stages, finished.progress
    plan, facts = get_rounds_stage(stages).plan, dict[str, Any]()
    if plan.primary.mechanism.training is not None:
        from parley.server.records.clipped_fraction import build_clipped_fraction  # noqa: PLC0415 - likewise

        facts["clipped_fraction"] = build_clipped_fraction(plan, progress)
    for stage in stages:
        if stage.name == EVALUATION:
            from parley.server.records.evaluation_summary import build_evaluation, with_label_names  # noqa: PLC0415 - likewise

            evaluation = build_evaluation(stage, progress, finished.evaluation_failure)
            facts["evaluation"] = with_label_names(evaluation, labels)
    if finished.totals:
        from parley.server.records.data_budgets import build_data_accounts  # noqa: PLC0415 - likewise

        facts["data_accounts"] = build_data_accounts(finished.totals, stages) or None
    return facts


def build_job_fields(job: Job) -> dict[str, Any]:
    """Return the fields of a summary that come from the job unchanged."""
    known = job.is_resolved
    return {
        "ledger": job.privacy.ledger,
        "algorithm": get_public_name(job.algorithm.kind),
        "model": get_public_name(job.model.kind),
        "metric": job.model.metric,
        "class_weights": job.model.label_weights or None,
        "data": job.data.name,
        "features": describe_feature_map(job.model.feature_map) or None if known else None,
        "parties": job.parties.count,
        "weights": job.parties.weights,
        "rounds": job.rounds if known else 0,
    }
