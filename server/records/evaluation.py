"""What the release after the rounds came to: noisy counts, and between which ends accuracy lies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.held_out_counts import accuracy_interval
from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.composition import Composition
from parley.server.planning.stages import EVALUATION, Stage
from parley.server.records.progress import Outcome
from parley.server.records.summary import Counted, Evaluation

CONFIDENCE = 0.95
"""That the noise of no count is beyond `Evaluation.within`."""


def noise_on_counts(plan: ReleasePlan) -> float:
    """What the noise on no count exceeds at `CONFIDENCE`, whoever is in the sum; in records."""
    return plan.noise_tail(1 - CONFIDENCE) / plan.encoding.scale


def evaluation_facts(
    stages: Sequence[Stage], outcome: Outcome, *, unmeasured: str
) -> Evaluation | None:
    """The evaluation of a run that ended; None where none was asked for.

    Args:
        unmeasured: why it could not be made.
    """
    stage = next((each for each in stages if each.name == EVALUATION), None)
    if stage is None:
        return None
    plan, within = stage.plan, noise_on_counts(stage.plan)
    released = outcome.progress.ahead.get(EVALUATION, {})
    counts = outcome.progress.state["counts"] if released else None
    spent = Composition.empty().add(plan.event(plan.primary.unit))
    return Evaluation(
        epsilon=spent.epsilon(plan.primary.delta)[1],
        delta=plan.primary.delta,
        law=plan.primary.mechanism.law,
        scale=plan.primary.mechanism.scale / plan.primary.units(plan.encoding.scale),
        within=within,
        confidence=CONFIDENCE,
        summed=released.get("survivors", 0),
        asked=plan.parties,
        counted=() if counts is None else _counted(counts.reshape(-1, 2), within),
        reason="" if released else unmeasured or "the rounds did not all run",
    )


def with_names(evaluation: Evaluation | None, labels: Sequence[str]) -> Evaluation | None:
    """With the names of the classes, where those are known; a server has numbers alone."""
    if evaluation is None or len(evaluation.counted) != len(labels) + 1:
        return evaluation
    whole, *classes = evaluation.counted
    known = [each.adding(label=name) for each, name in zip(classes, labels, strict=True)]
    return evaluation.adding(counted=(whole, *known))


def _counted(counts: NDArray[np.float64], within: float) -> tuple[Counted, ...]:
    """All records, then each class by its number where there are counts of each."""
    # The noises of the classes' counts add up, each within its bound.
    whole = _one("", counts.sum(0), within * len(counts))
    if len(counts) == 1:
        return (whole,)
    return (whole, *(_one(str(number), own, within) for number, own in enumerate(counts)))


def _one(label: str, counts: NDArray[np.float64], within: float) -> Counted:
    accuracy, low, high = accuracy_interval(counts, within=within) or (None, None, None)
    right, wrong = map(float, counts)
    return Counted(label=label, right=right, wrong=wrong, accuracy=accuracy, low=low, high=high)
