"""Build the summary of a run from what its server knows; no function here reads a record.

A simulation adds what only a simulation may know. This includes the released fraction of clipped
gradients over a run (`clipped_fraction` of `summary.json`), and the result of the release after the
rounds: noisy counts, and the metrics from them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.registry import get_algorithm_spec
from parley.client.contract.feature_map import describe_feature_map
from parley.client.contract.release_plan import ReleasePlan
from parley.privacy.accounting.clipped_count_noise import compute_count_deviation
from parley.privacy.accounting.composition import Composition
from parley.privacy.ledger.account import BudgetAccount
from parley.privacy.ledger.hash_chain import ChainHead
from parley.privacy.sampling.random_stream import NoiseStream
from parley.safe_io.path_names import get_public_name
from parley.safe_io.plugin_table import load_attribute
from parley.server.jobs.job import Job
from parley.server.planning.run_stages import (
    COMPONENTS,
    EVALUATION,
    RunStage,
    get_rounds_stage,
    list_assumptions,
    list_extra_guarantees,
)
from parley.server.records.data_budgets import build_data_accounts
from parley.server.records.guarantees import build_guarantee_summaries, compute_record_bounds
from parley.server.records.run_folder import RunFolder
from parley.server.records.run_progress import RunProgress
from parley.server.records.run_summary import ClippedFraction, EvaluationSummary, RunSummary

if TYPE_CHECKING:
    from parley.client.algorithms.held_out_counts import HeldOutCounts


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


def compute_fraction_deviation(plan: ReleasePlan, *, parties: int) -> float | None:
    """Return the standard deviation of the noise on a round's fraction; None without one.

    It is at most that with uniform weights for parties of the minimum size.
    """
    steps = plan.primary.mechanism.training
    if steps is None or not steps.clipped_share:
        return None
    records = plan.mean_records if plan.weights == "size" else plan.min_records
    batches = steps.sampling_rate * records * steps.steps
    of_count = compute_count_deviation(steps.noise_multiplier, steps.clipped_share, steps.steps)
    return of_count / (2 * batches * math.sqrt(parties))


def build_clipped_fraction(plan: ReleasePlan, progress: RunProgress) -> ClippedFraction | None:
    """Return the last round's fraction and the mean over rounds, each with its noise; None without
    one.

    The variation between batches adds to it: at most ½√((1 − q)/(q·n·T)) per party and round.
    """
    totals = progress.totals
    measured = [
        (fraction, deviation)
        for fraction, summed in zip(totals.clipped_fractions, totals.summed, strict=True)
        if not math.isnan(fraction)
        and (deviation := compute_fraction_deviation(plan, parties=summed)) is not None
    ]
    if not measured:
        return None
    fractions, deviations = zip(*measured, strict=True)
    return ClippedFraction(
        last=fractions[-1],
        deviation=deviations[-1],
        mean=math.fsum(fractions) / len(measured),
        mean_deviation=math.hypot(*deviations) / len(measured),
    )


CONFIDENCE = 0.95
"""Confidence of intervals from the noise on held-out counts."""

_SAMPLES = 10_000


def bound_count_noise(plan: ReleasePlan) -> float:
    """Return a bound in records, at `CONFIDENCE`, on the noise of all counts for any set of
    survivors.
    """
    return plan.compute_noise_tail(1 - CONFIDENCE) / plan.encoding.scale


def estimate_count_noise(plan: ReleasePlan, contributions: int) -> float:
    """Return a bound in records, at `CONFIDENCE`, on the noise of one count for `contributions`
    parties.

    It is estimated from draws of the noise, which are not a release. It works for every
    distribution, in shares or not.
    """
    stream, count = NoiseStream.from_seed(0, "noise-on-a-count"), -(-_SAMPLES // plan.dimension)
    drawn = plan.draw_many(count, stream)
    if plan.shared_guarantee is not None:
        drawn = np.stack(
            [
                plan.encoding.decode(plan.add_central_noise(contributions, stream))
                for _ in range(count)
            ]
        )
    return float(np.quantile(np.abs(drawn), CONFIDENCE)) / plan.encoding.scale


def _build_evaluation(finished: FinishedRun) -> EvaluationSummary | None:
    """Return the evaluation of a run that ended; None if none was requested."""
    stage = next((each for each in finished.stages if each.name == EVALUATION), None)
    if stage is None:
        return None
    progress, reason = finished.progress, finished.evaluation_failure
    plan, released = stage.plan, progress.ahead.get(EVALUATION, {})
    summed = released.get("survivors", 0)
    within = estimate_count_noise(plan, summed or plan.parties)
    found: dict[str, Any] = {"reason": reason or "not all rounds ran"}
    if released:
        counted = cast("HeldOutCounts", stage.algorithm(progress.state))
        found = _evaluate_counts(counted, progress.state["counts"], within)
    spent = Composition.create_empty().add(plan.compute_event(plan.primary.unit))
    return EvaluationSummary(
        epsilon=spent.compute_lowest_epsilon(plan.primary.delta)[1],
        delta=plan.primary.delta,
        law=plan.primary.mechanism.law,
        scale=plan.primary.mechanism.scale / plan.primary.compute_unit_scale(plan.encoding.scale),
        within=within,
        confidence=CONFIDENCE,
        summed=summed,
        asked=plan.parties,
        **found,
    )


def _evaluate_counts(
    counted: HeldOutCounts, counts: NDArray[np.float64], within: float
) -> dict[str, Any]:
    """Return the release and its metrics; labels are numbered."""
    table, edges = counts.reshape(-1, counted.classes), counted.binary_edges
    labels = [str(label) for label in range(counted.classes)]
    evaluate_counts = load_attribute("parley.server.records.histogram_evaluation:evaluate_counts")
    judgement = evaluate_counts(
        table, labels=labels, edges=edges, within=within, proper=counted.has_probabilities
    )
    return {"counts": table.tolist(), "edges": edges, "judgement": judgement}


def with_label_names(
    evaluation: EvaluationSummary | None, labels: Sequence[str]
) -> EvaluationSummary | None:
    """Return the evaluation with class names, if known; a server knows only numbers."""
    found = evaluation and evaluation.judgement
    if evaluation is None or not found or len(found.labels) != len(labels):
        return evaluation
    by_label = [
        each.with_fields(label=name) for each, name in zip(found.by_label, labels, strict=False)
    ]
    named = found.with_fields(labels=tuple(labels), by_label=tuple(by_label))
    return evaluation.with_fields(judgement=named)


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
            plan,
            progress,
            engine=engine,
            extra_guarantees=list_extra_guarantees(finished.stages, progress.ahead),
            assumptions=list_assumptions(finished.stages, progress.ahead),
        ),
        "secure_aggregation": sums,
        "seconds": time.perf_counter() - began,
        "seconds_per_round": float(np.median(totals.seconds)) if totals.seconds else None,
        "deployment": deployment,
        "record_bounds": compute_record_bounds(plan, rounds=progress.done),
        "clipped_fraction": build_clipped_fraction(plan, progress),
        "components": ahead,
        "evaluation": with_label_names(_build_evaluation(finished), labels),
        "data_accounts": build_data_accounts(finished.totals, finished.stages) or None,
    }
    return RunSummary.model_validate(facts)


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
