"""What a plan claims, derived again from its task and from the party's own public facts.

n is the party's number of records, d the dimension of a contribution, s the grid's scale bits:

| claim | holds where |
|---|---|
| G of the task | ≥ the loss's own bound, or the norm C that gradients are clipped to |
| Δ of the plan | ≥ the algorithm's sensitivity · (1 + n(n + d + 8)·2⁻⁵²), rounding included |
| Δ of the noise (on the server) | ≥ 2^s·Δ + √d grid units |
| noise inside the party | σ, C, q, steps, relation, count's share are its own training's |
| the way that clips records | its sums agree with a loop over records (`dp_sgd.ways`) |
| the encoding | holds the party's largest contribution, and m of them do not wrap around |
| the grid | the finest that the ring holds, and fine enough (`parley.client.contract.grid`) |
| the task | contributes something (`parley.client.algorithms.degenerate`) |

The event that is charged follows from the noise's own parameters, so that a plan that passes cannot
cost more than it says.
"""

from __future__ import annotations

import math

import numpy as np

from parley.client.algorithms.degenerate import check_substance
from parley.client.algorithms.linear import (
    FederatedAlgorithm,
    GradientPerturbation,
    OutputPerturbation,
    State,
)
from parley.client.algorithms.second_moments import SecondMoments
from parley.client.contract.grid import check_grid, step_noise
from parley.client.contract.guarantee import PartyLevel
from parley.client.contract.plan import ReleasePlan
from parley.client.contract.protocol import Reason
from parley.client.party.consent import Consent, Declined
from parley.privacy.accounting.guarantee import Neighbouring, NoisePoint, Unit
from parley.privacy.mechanisms.dp_sgd import PartySteps
from parley.secure_agg.encoding import RingTooSmall

__all__ = ["check_computation", "check_state"]

_EXACT = 1 - 1e-12


def check_computation(
    consent: Consent,
    plan: ReleasePlan,
    algorithm: FederatedAlgorithm,
    *,
    features: int,
    classes: int,
    records: int,
) -> None:
    """Derives what the plan claims from the task and the party's public facts.

    Args:
        consent: the policy.
        plan: to be checked, with `check_plan` done.
        algorithm: from `task_of`.
        features: columns of the party's prepared rows.
        classes: K of its labels, 0 for −1/+1 and targets.
        records: n.

    Raises:
        Declined: model, algorithm, mechanism, too-few-records or sensitivity.
    """
    if plan.neighbouring is not Neighbouring.ADD_OR_REMOVE_ONE and records < plan.min_records:
        raise Declined(Reason.TOO_FEW_RECORDS, f"Expected {plan.min_records} records.")
    wanted = algorithm.model.features
    if wanted != features or plan.dimension != algorithm.dimension:
        raise Declined(
            Reason.MODEL,
            f"Expected {features} features and a plan of the task's dimension, got {wanted} and "
            f"{plan.dimension} for {algorithm.dimension}.",
        )
    if isinstance(algorithm, GradientPerturbation | OutputPerturbation):
        entry = _check_linear(plan, algorithm, classes)
        if isinstance(algorithm, OutputPerturbation):
            try:
                algorithm.check_certifiable(records)
            except ValueError as error:
                raise Declined(Reason.ALGORITHM, str(error)) from error
    elif isinstance(algorithm, SecondMoments):
        entry = _check_moments(plan, algorithm)
    else:
        entry = _check_network(consent, plan, algorithm, classes)
    required = _sensitivity(plan, algorithm)
    if isinstance(algorithm, GradientPerturbation):
        required *= 1 + records * (records + plan.dimension + 8) * 2.0**-52
    _sufficient("sensitivity", required, plan.sensitivity)
    _sufficient("lipschitz", algorithm.lipschitz, plan.lipschitz)
    if plan.noise_point is NoisePoint.SERVER:
        grid = plan.encoding.grid_sensitivity(max(required, plan.sensitivity), plan.dimension)
        _sufficient("the mechanism's sensitivity", grid, plan.mechanism.sensitivity)
    weight = records / plan.mean_records if plan.weights == "size" else 1.0
    _sufficient("the encoding's bound", entry * weight, plan.encoding.bound * (1 + 1e-9))
    try:
        # A sum that wraps around would move by 2^b where the noise covers Δ.
        plan.encoding.check_capacity(plan.parties, 0.0)
    except RingTooSmall as error:
        raise Declined(Reason.SENSITIVITY, str(error)) from error
    check_substance(plan, algorithm)
    check_grid(
        consent,
        plan,
        algorithm,
        entry=entry,
        sensitivity=_moved(plan, algorithm, records, required),
    )


def _sufficient(what: str, required: float, got: float) -> None:
    if not got >= required * _EXACT:  # NaN is not
        raise Declined(Reason.SENSITIVITY, f"Expected {what} >= {required:g}, got {got:g}.")


def _sensitivity(plan: ReleasePlan, algorithm: FederatedAlgorithm) -> float:
    """The algorithm's own, of the sum, at the plan's public numbers."""
    total = round(plan.mean_records * plan.parties)
    # Weights are n/n̄ with n̄ as it stands in the plan: it must be N/m for a whole N.
    if total < 1 or abs(plan.mean_records * plan.parties - total) > total * 2.0**-50:
        raise Declined(Reason.SENSITIVITY, "Expected mean records of N/m for a whole N.")
    try:
        return algorithm.sensitivity(
            parties=plan.parties, min_records=plan.min_records, total_records=total
        )
    except (ValueError, ArithmeticError) as error:
        raise Declined(Reason.SENSITIVITY, f"No sensitivity: {type(error).__name__}.") from error


def _moved(
    plan: ReleasePlan, algorithm: FederatedAlgorithm, records: int, required: float
) -> float:
    """What rounding is counted against: Δ of the sum, or a step's noise where that is all."""
    if plan.party_level is not None:
        return 2 * algorithm.bound
    if plan.noise_point is NoisePoint.SERVER:
        return required
    # Imported here: networks need torch, linear models do not; torch is loaded by now.
    from parley.client.algorithms.federated_averaging import FederatedAveraging

    if not isinstance(algorithm, FederatedAveraging):
        raise Declined(Reason.ALGORITHM, f"Expected a known one, got {type(algorithm).__name__}.")
    private = plan.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE
    divisor = plan.min_records if private else records
    return math.sqrt(plan.dimension) * step_noise(algorithm.training, divisor)


def _check_linear(
    plan: ReleasePlan, algorithm: GradientPerturbation | OutputPerturbation, classes: int
) -> float:
    """Checks a linear model's task; the largest |entry| of its contribution."""
    loss = algorithm.model.kind
    if classes and loss.outputs != classes:
        raise Declined(Reason.MODEL, f"Expected {classes} classes, got {loss.outputs}.")
    # The theorems of `parley.privacy.calibration.sensitivity` are about one record of a mean over
    # n.
    if plan.unit is not Unit.RECORD:
        raise Declined(Reason.UNIT, "Expected unit record with a linear model, got another.")
    if plan.neighbouring is not Neighbouring.REPLACE_ONE:
        raise Declined(Reason.NEIGHBOURING, "Expected replace-one with a linear model.")
    if plan.noise_point is not NoisePoint.SERVER or isinstance(plan.mechanism, PartySteps):
        raise Declined(Reason.MECHANISM, "Expected noise on the sum with a linear model.")
    if plan.lambda_ != algorithm.lambda_ or plan.weights != algorithm.weights:
        raise Declined(Reason.ALGORITHM, "Expected λ and weights as in the task, got others.")
    longest = algorithm.model.lipschitz
    if isinstance(algorithm, OutputPerturbation):
        # A loss whose gradient is bounded on a ball only says nothing about its optimum.
        if not math.isinf(loss.theta_radius) or plan.clip_norm is not None:
            raise Declined(Reason.ALGORITHM, "Expected an unclipped loss bounded everywhere.")
        if algorithm.lambda_ <= 0 or algorithm.tolerance < 0 or plan.tolerance is None:
            raise Declined(Reason.ALGORITHM, "Expected λ > 0 and a tolerance, got others.")
        certified = algorithm.tolerance * algorithm.lipschitz
        # Nor tighter, however it is asked for: `check_certifiable` is about the task's.
        _sufficient("the task's tolerance", plan.tolerance, certified)
        _sufficient("the plan's tolerance", certified, plan.tolerance)
    elif plan.clip_norm is not None:
        if plan.clip_norm <= 0:
            raise Declined(Reason.ALGORITHM, f"Expected clip_norm > 0, got {plan.clip_norm}.")
        longest = min(longest, plan.clip_norm)
    _sufficient("the task's lipschitz", longest, algorithm.lipschitz)
    return algorithm.bound


def _check_moments(plan: ReleasePlan, algorithm: SecondMoments) -> float:
    """Checks the task of second moments; the largest |entry| of its contribution."""
    if plan.unit is not Unit.RECORD or plan.party_level is not None:
        raise Declined(Reason.UNIT, "Expected unit record with second moments, got another.")
    if plan.neighbouring is not algorithm.neighbouring:
        raise Declined(Reason.NEIGHBOURING, "Expected one relation in task and plan, got two.")
    if plan.noise_point is not NoisePoint.SERVER or isinstance(plan.mechanism, PartySteps):
        raise Declined(Reason.MECHANISM, "Expected noise on the sum with second moments.")
    if plan.weights != "uniform" or plan.clip_norm is not None:
        raise Declined(Reason.SENSITIVITY, "Expected uniform weights and no clipping.")
    return algorithm.bound


def _check_network(
    consent: Consent, plan: ReleasePlan, algorithm: FederatedAlgorithm, classes: int
) -> float:
    """Checks federated averaging's task; the largest |entry| of its contribution."""
    # Imported here: networks need torch, linear models do not; torch is loaded by now.
    from parley.client.algorithms.federated_averaging import FederatedAveraging
    from parley.client.dp_sgd.ways import WayError, check_way

    if not isinstance(algorithm, FederatedAveraging):
        raise Declined(Reason.ALGORITHM, f"Expected a known one, got {type(algorithm).__name__}.")
    training, mechanism = algorithm.training, plan.mechanism
    if algorithm.model.classes != (classes or 2):
        raise Declined(Reason.MODEL, f"Expected {classes or 2} classes.")
    if algorithm.seed is not None and not consent.allow_seeded_noise:
        raise Declined(Reason.SEEDED_NOISE, "Expected noise from entropy, got a seed.")
    if algorithm.unit is not plan.unit:
        raise Declined(Reason.UNIT, "Expected one unit in task and plan, got two.")
    if algorithm.neighbouring is not plan.neighbouring:
        raise Declined(Reason.NEIGHBOURING, "Expected one relation in task and plan, got two.")
    if training.steps > consent.most_steps:
        raise Declined(Reason.ALGORITHM, f"Expected at most {consent.most_steps} steps.")
    if not 0 < algorithm.update_bound < math.inf:
        raise Declined(Reason.SENSITIVITY, "Expected a bound on updates > 0, got another.")
    if algorithm.unit is Unit.PARTY:
        if plan.noise_point is not NoisePoint.SERVER or isinstance(mechanism, PartySteps):
            raise Declined(Reason.MECHANISM, "Expected noise on the sum with unit party.")
        if plan.weights != "uniform" or plan.neighbouring is not Neighbouring.REPLACE_ONE:
            raise Declined(Reason.SENSITIVITY, "Expected uniform weights, replace-one parties.")
        return algorithm.update_bound
    if plan.noise_point is not NoisePoint.PARTY or not isinstance(mechanism, PartySteps):
        raise Declined(Reason.MECHANISM, "Expected noise inside the party with unit record.")
    same = (
        mechanism.clip_norm == training.clip_norm
        and mechanism.noise_multiplier == training.noise_multiplier
        and mechanism.sampling_rate == training.sampling_rate
        and mechanism.steps == training.steps
        and mechanism.neighbouring == str(plan.neighbouring)
        and mechanism.clipped_share == training.clipped_share
    )
    if not same:
        raise Declined(Reason.MECHANISM, "Expected the noise of the task's own training.")
    try:
        # A way that does not fit the network clips something else than this party's records.
        check_way(algorithm.model, training.per_example_method)
    except WayError as error:
        raise Declined(Reason.ALGORITHM, f"{training.per_example_method}: {error}") from error
    if algorithm.both != (plan.party_level is not None):
        raise Declined(Reason.UNIT, "Expected both guarantees in task and plan, or one in both.")
    if plan.party_level is not None:
        _check_party_level(plan, plan.party_level, algorithm.update_bound)
        return algorithm.update_bound
    return algorithm.coordinate_bound


def _check_party_level(plan: ReleasePlan, level: PartyLevel, bound: float) -> None:
    """The noise on the sum covers any update of the task's norm: it may be what is charged."""
    if plan.weights != "uniform":
        raise Declined(Reason.SENSITIVITY, "Expected uniform weights with both guarantees.")
    _sufficient("the update's norm", bound, level.clip_norm)
    _sufficient("the party's sensitivity", 2 * bound, level.sensitivity)
    grid = plan.encoding.grid_sensitivity(max(2 * bound, level.sensitivity), plan.dimension)
    _sufficient("the sensitivity of the noise on the sum", grid, level.mechanism.sensitivity)


def check_state(algorithm: FederatedAlgorithm, state: State) -> None:
    """Refuses a model at which the plan's G does not hold: ridge's is proved for ‖θ‖ ≤ R.

    Raises:
        Declined: sensitivity.
    """
    if not isinstance(algorithm, GradientPerturbation | OutputPerturbation):
        return
    radius, theta = algorithm.model.kind.theta_radius, state["theta"]
    # A projection ends within rounding of the ball; the plan's rounding margin covers that.
    allowed = radius * (1 + (theta.size + 8) * 2.0**-52)
    if not float(np.sqrt(np.vecdot(theta, theta))) <= allowed:
        raise Declined(Reason.SENSITIVITY, f"Expected ‖θ‖ <= {radius:g}, got a longer one.")
