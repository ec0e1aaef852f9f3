"""The examination: whether a proposed run is what it says it is, and what this party accepts.

The server proposes a task and a release plan; the party trusts neither. Policy is compared, and
what can be derived is derived again, from the task and from the party's own number of records n:

| claim | holds where |
|---|---|
| G of the task | ≥ the loss's own bound, or the norm C that gradients are clipped to |
| Δ of the plan | ≥ the algorithm's sensitivity · (1 + n(n + d + 8)·2⁻⁵²), rounding included |
| Δ of the noise (on the server) | ≥ 2^s·Δ + √d grid units |
| noise inside the party | σ, C, q, steps, relation, count's share are its own training's |
| the encoding | holds the party's largest contribution, and m of them do not wrap around |

The event that is charged follows from the noise's own parameters, so that a plan that passes cannot
cost more than it says. Every failure is a `Declined` with one reason class; none depends on a
record (the number of records is public where it matters).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from client.algorithms import (
    FederatedAlgorithm,
    GradientPerturbation,
    OutputPerturbation,
    State,
)
from client.consent import Consent, Declined
from client.decoding import DecodingError
from client.party_level import PartyLevel
from client.plan import ReleasePlan
from client.roster import Deployment
from client.second_moments import SecondMoments, Triangle
from client.task import task_from
from client.wire import Reason
from privacy.guarantee import Neighbouring, NoisePoint, Unit
from privacy.party_steps import PartySteps
from secure_agg.encoding import RingTooSmall
from secure_agg.interface import RemoteProtocolError
from secure_agg.parameters import Policy, RunParameters

__all__ = ["Proposal", "check_components", "check_computation", "check_plan", "check_run"]
__all__ += ["check_state", "task_of"]

_EXACT = 1 - 1e-12
_LINEAR = ("logistic", "softmax", "ridge", "huber-svm")


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A run as a server proposes it to one party.

    Attributes:
        run_id: name of the run in the ledgers.
        dataset: which of the party's data sets.
        parameters: of secure aggregation.
        task: what the party would compute, as `client.task` describes it.
        plan: of every round (its `round_number` is the round's).
        rounds: T, how many releases the run is meant to make.
    """

    run_id: str
    dataset: str
    parameters: RunParameters
    task: Mapping[str, Any]
    plan: ReleasePlan
    rounds: int


def check_run(consent: Consent, deployment: Deployment, run: RunParameters) -> Policy:
    """The policy that the protocol's state machine is to hold, if the run's parameters satisfy it.

    Raises:
        Declined: wrong-run, cohort-too-small or protocol.
    """
    if run.parties != len(deployment.parties) or run.beacon != deployment.beacon:
        raise Declined(
            Reason.WRONG_RUN,
            f"Expected {len(deployment.parties)} parties and the beacon of deployment "
            f"{deployment.id}, got {run.parties} parties or another beacon.",
        )
    _at_least("minimum_survivors", consent.min_survivors, run.minimum_survivors)
    policy = Policy(
        identities=deployment.identities,
        minimum_survivors=consent.min_survivors,
        minimum_degree=consent.min_degree,
        minimum_threshold=consent.min_threshold,
        corrupt=consent.corrupt,
        active=consent.insist_on_confirmation,
        beacon=deployment.beacon,
    )
    try:
        policy.check(run)
    except RemoteProtocolError as error:
        raise Declined(Reason.PROTOCOL, str(error)) from error
    return policy


def _at_least(what: str, least: int, got: int) -> None:
    if got < least:
        raise Declined(Reason.COHORT_TOO_SMALL, f"Expected {what} >= {least}, got {got}.")


def check_plan(consent: Consent, proposal: Proposal) -> None:
    """Holds the plan against the policy and the run; nothing of the data is needed.

    Raises:
        Declined: the first thing that is not accepted.
    """
    plan, run, dataset = proposal.plan, proposal.parameters, consent.dataset(proposal.dataset)
    weighted = plan.weights == "size"
    private_size = dataset.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE
    laws, accepted = {plan.mechanism.law}, consent.laws
    # The release ahead of the rounds is number 0, of which there is one.
    first, last = (0, 0) if plan.algorithm == "second-moments" else (1, proposal.rounds)
    if plan.party_level is not None:
        laws |= {plan.party_level.mechanism.law}
    claims = (
        (Reason.WRONG_RUN, "run", proposal.run_id, plan.run_id == proposal.run_id),
        (Reason.WRONG_RUN, "parties", run.parties, plan.parties == run.parties),
        (Reason.WRONG_RUN, "the round", f"{first} to {last}", first <= plan.round_number <= last),
        (Reason.UNIT, "unit", dataset.unit, plan.unit is dataset.unit),
        (
            Reason.UNIT,
            "a guarantee for the whole party",
            "with party-epsilon, and only there",
            (plan.party_level is None) == (dataset.party_epsilon is None),
        ),
        (
            Reason.NEIGHBOURING,
            "neighbours",
            dataset.neighbouring,
            plan.neighbouring is dataset.neighbouring,
        ),
        (
            Reason.COHORT_TOO_SMALL,
            "min_survivors",
            f"{consent.min_survivors} to {run.minimum_survivors}",
            consent.min_survivors <= plan.min_survivors <= run.minimum_survivors,
        ),
        (Reason.MECHANISM, "noise law", ", ".join(accepted), laws <= set(accepted)),
        (
            Reason.CALIBRATION,
            "calibration",
            ", ".join(consent.calibrations),
            plan.calibration in consent.calibrations,
        ),
        (
            Reason.SEEDED_NOISE,
            "noise",
            "from entropy",
            consent.allow_seeded_noise or not plan.seeded,
        ),
        (
            Reason.SIZES_NOT_DISCLOSED,
            "weights",
            "uniform",
            not weighted or (consent.disclose_size and not private_size),
        ),
        (
            Reason.ALGORITHM,
            "algorithm",
            "that of the task",
            plan.algorithm == proposal.task.get("kind"),
        ),
        (
            Reason.PROTOCOL,
            "ring_bits",
            run.ring_bits,
            plan.encoding.ring_bits == run.ring_bits,
        ),
    )
    for reason, what, expected, holds in claims:
        if not holds:
            raise Declined(reason, f"Expected {what}: {expected}, got another in the plan.")
    try:
        plan.event.exact_rho()
        plan.facts()
    except (ValueError, ArithmeticError) as error:
        raise Declined(Reason.MECHANISM, f"No event: {type(error).__name__}.") from error


def task_of(consent: Consent, task: Mapping[str, Any]) -> FederatedAlgorithm:
    """The algorithm that the task describes, if its kind, model and size are accepted.

    Names are held against the policy before anything is built: naming a model of one's own code
    would import and run it.

    Raises:
        Declined: algorithm, model or protocol.
    """
    if task.get("kind") not in consent.algorithms:
        raise Declined(Reason.ALGORITHM, f"Expected one of {', '.join(consent.algorithms)}.")
    name, size = _model_of(task)
    if name not in consent.models:
        raise Declined(Reason.MODEL, f"Expected one of {', '.join(consent.models)}.")
    if size > consent.largest_model:
        raise Declined(
            Reason.MODEL, f"Expected at most {consent.largest_model} parameters, got {size}."
        )
    try:
        return task_from(task, device=consent.device, own_models=consent.own_models)
    except DecodingError as error:
        raise Declined(Reason.PROTOCOL, str(error)) from error


def _model_of(task: Mapping[str, Any]) -> tuple[str, int]:
    """Name of the task's model, and a lower bound on its parameters, from the description alone."""
    features = task.get("features")
    if task.get("kind") == "second-moments" and type(features) is int and 0 < features < 2**40:
        return "pca-mlp", Triangle(features=features).dimension
    model = task.get("network", task.get("model"))
    if isinstance(model, Mapping):
        loss = model.get("loss")
        name = loss.get("kind") if isinstance(loss, Mapping) else model.get("kind")
        classes = loss.get("classes", 1) if isinstance(loss, Mapping) else model.get("classes")
        hidden = model.get("hidden", [])
        if isinstance(hidden, list) and isinstance(name, str):
            widths = [model.get("features"), *hidden, classes]
            if all(type(width) is int and 0 < width < 2**40 for width in widths):
                # Of a convolutional network, or one's own code, sizes alone bound little.
                layered = name in {"mlp", "pca-mlp"} or isinstance(loss, Mapping)
                return name, sum(a * b for a, b in pairwise(widths)) if layered else max(widths)
    raise Declined(Reason.PROTOCOL, "Expected a model with a kind and whole sizes, got another.")


def check_components(task: Mapping[str, Any], *, given: bool) -> None:
    """Refuses components for anything but the model that is made for them, and that one without.

    What they are matters to no guarantee: gradients are clipped whatever the rows.

    Raises:
        Declined: model.
    """
    needed = task.get("kind") == "fedavg" and _model_of(task)[0] == "pca-mlp"
    if given != needed:
        raise Declined(Reason.MODEL, "Expected components with pca-mlp, and only there.")


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


def _check_linear(
    plan: ReleasePlan, algorithm: GradientPerturbation | OutputPerturbation, classes: int
) -> float:
    """Checks a linear model's task; the largest |entry| of its contribution."""
    loss = algorithm.model.kind
    if classes and loss.outputs != classes:
        raise Declined(Reason.MODEL, f"Expected {classes} classes, got {loss.outputs}.")
    # The theorems of `privacy.sensitivity` are about one record of a mean over n.
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
        _sufficient("the task's tolerance", plan.tolerance, certified)
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
    from client.federated import FederatedAveraging
    from client.per_record import WAYS

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
    if training.steps > consent.most_steps or training.way not in WAYS:
        raise Declined(Reason.ALGORITHM, f"Expected at most {consent.most_steps} known steps.")
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
