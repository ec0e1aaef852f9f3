"""Summarise the release after the rounds: noisy held-out counts, and metrics from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.release_plan import ReleasePlan
from parley.module_loading.plugin_table import load_attribute
from parley.privacy.accounting.composition import Composition
from parley.privacy.sampling.random_stream import NoiseStream
from parley.server.planning.run_stages import EVALUATION, RunStage
from parley.server.records.run_progress import RunProgress
from parley.server.records.run_summary import EvaluationSummary

if TYPE_CHECKING:
    from parley.client.algorithms.held_out_histogram import HeldOutCounts

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


def build_evaluation(stage: RunStage, progress: RunProgress, reason: str) -> EvaluationSummary:
    """Return the evaluation of a run that ended, from its stage.

    Args:
        reason: why it is missing, if a release failed.
    """
    plan, released = stage.plan, progress.ahead.get(EVALUATION, {})
    summed = released.get("survivors", 0)
    within = estimate_count_noise(plan, summed or plan.parties)
    found: dict[str, Any] = {"reason": reason or "not all rounds ran"}
    if released:
        counted = cast("HeldOutCounts", stage.algorithm(progress.state))
        found = _evaluate_counts(counted, progress.state["counts"], within)
    spent = Composition().add(plan.compute_event(plan.primary.unit))
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
