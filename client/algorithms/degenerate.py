"""Tasks that say nothing: valid in every field, and what they ask for is zero or next to it.

Whoever contributes nothing hides nobody: in a sum with zeros a party is alone. Parties that were
told different tasks have masks that do not cancel (`parley.client.contract.agreement`); what is
refused here is a task at which all contribute nothing but the few whose data differ.
"""

from __future__ import annotations

from parley.client.algorithms.linear import (
    FederatedAlgorithm,
    GradientPerturbation,
    OutputPerturbation,
)
from parley.client.algorithms.second_moments import SecondMoments
from parley.client.contract.plan import ReleasePlan
from parley.client.contract.protocol import Reason
from parley.client.models.losses import SquaredLoss
from parley.client.party.consent import Declined
from parley.privacy.accounting.guarantee import Unit

__all__ = ["LARGEST_STEP", "LARGEST_TOLERANCE", "LEAST_LABEL", "LEAST_STEP", "check_substance"]

LEAST_STEP, LARGEST_STEP = 2.0**-30, 2.0**30
"""How far one training step may move a model, at the least and the most: rate times clip norm."""

LARGEST_TOLERANCE = 1.0
"""κ: beyond, θ = 0 is a certified optimum of many a party."""

LEAST_LABEL = 2.0**-20
"""Smallest bound on targets, as a fraction of the radius of the ball that models are kept in."""


def check_substance(plan: ReleasePlan, algorithm: FederatedAlgorithm) -> None:
    """Refuses a task at which parties contribute nothing.

    Raises:
        Declined: degenerate.
    """
    if isinstance(algorithm, GradientPerturbation | OutputPerturbation):
        loss = algorithm.model.kind
        if isinstance(loss, SquaredLoss) and loss.label_bound < LEAST_LABEL * loss.radius:
            raise _nothing(f"label_bound >= {LEAST_LABEL * loss.radius:g}", loss.label_bound)
        if isinstance(algorithm, OutputPerturbation) and algorithm.tolerance > LARGEST_TOLERANCE:
            raise _nothing(f"tolerance <= {LARGEST_TOLERANCE:g}", algorithm.tolerance)
        return
    if isinstance(algorithm, SecondMoments):
        return
    _check_training(plan, algorithm)


def _check_training(plan: ReleasePlan, algorithm: FederatedAlgorithm) -> None:
    # Imported here: networks need torch, linear models do not; torch is loaded by now.
    from parley.client.algorithms.federated_averaging import FederatedAveraging

    if not isinstance(algorithm, FederatedAveraging):
        raise Declined(Reason.ALGORITHM, f"Expected a known one, got {type(algorithm).__name__}.")
    training = algorithm.training
    step = training.learning_rate
    if training.optimiser == "sgd" and training.clip_norm is not None:
        step *= training.clip_norm
    if not LEAST_STEP <= step <= LARGEST_STEP:
        raise _nothing(f"steps of {LEAST_STEP:g} to {LARGEST_STEP:g}", step)
    if not 0 <= training.momentum < 1:
        raise _nothing("momentum in [0, 1)", training.momentum)
    # With noise inside the party an empty batch is noise; without, it is zero, and the sum would
    # be that of the few who drew a record.
    drawn = training.sampling_rate * plan.min_records * training.steps
    if algorithm.unit is Unit.PARTY and not drawn >= 1:
        raise _nothing("at least one record drawn in a round", drawn)


def _nothing(expected: str, got: float) -> Declined:
    return Declined(Reason.DEGENERATE, f"Expected {expected}, got {got:g}.")
