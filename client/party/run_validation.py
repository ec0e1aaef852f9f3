"""Validation of a proposed run: its plan must be consistent and accepted by this party's policy.

The server proposes a task and a release plan, and the party trusts neither. This module compares
them with the policy. `parley.client.party.plan_verification` derives again what can be derived.
Every failure is a `Declined` with one reason class. None depends on a record (the number of records
is public if it matters).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parley.client.algorithms.algorithm_spec import AlgorithmSpec, get_network_shape
from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.registry import get_algorithm_spec
from parley.client.algorithms.task_codec import decode_task
from parley.client.contract.agreement import MAX_ROUNDS, Agreement
from parley.client.contract.refusals import Declined, Reason, decline_errors
from parley.client.contract.roster import Deployment
from parley.client.contract.strict_decoding import DecodingError
from parley.client.features.feature_error import FeatureError
from parley.client.own_code.own_code_errors import OwnCodeError
from parley.client.party.dataset_config import DatasetConfig
from parley.client.party.owner_policy import OwnerPolicy
from parley.privacy.accounting.rounding import format_exact
from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.protocol_parameters import ProtocolRequirements, RunParameters

if TYPE_CHECKING:
    from parley.client.features.base import FeatureMap


def check_run(
    policy: OwnerPolicy, deployment: Deployment, run: RunParameters
) -> ProtocolRequirements:
    """Check the run's parameters and return the requirements that the masking protocol enforces.

    Raises:
        Declined: the parameters contradict the deployment or the policy.
    """
    roster_text = f"the parties of deployment {deployment.id}"
    require(Reason.WRONG_RUN, roster_text, len(deployment.parties), run.parties)
    min_survivors, proposed = policy.min_survivors, run.min_survivors
    is_enough = proposed >= min_survivors
    require(Reason.COHORT_TOO_SMALL, "min_survivors", f">= {min_survivors}", proposed, is_enough)
    requirements = ProtocolRequirements(
        identities=deployment.identities,
        min_survivors=policy.min_survivors,
        minimum_degree=policy.min_degree,
        corrupt=policy.colluders_at_least,
        deployment=bytes.fromhex(deployment.id),
    )
    with decline_errors(Reason.PROTOCOL, RemoteProtocolError):
        requirements.check(run)
    return requirements


def check_plan(policy: OwnerPolicy, agreement: Agreement) -> None:
    """Check the plan against the policy and the run, without any data.

    Raises:
        Declined: the plan contradicts the policy or the run.
    """
    plan = agreement.plan
    _check_run_fields(policy, agreement)
    _check_guarantees(policy, agreement)
    _check_shares(agreement)
    try:
        for unit in plan.units:
            _ = plan.compute_event(unit).exact_rho
            plan.to_ledger_facts(unit)
    except (ValueError, ArithmeticError) as error:
        raise Declined(Reason.MECHANISM, f"No event: {type(error).__name__}.") from error


def require(
    reason: Reason, subject: str, expected: object, got: object, condition: bool | None = None
) -> None:
    """Raise `Declined` unless a condition holds; without a condition, unless `got == expected`."""
    if not (got == expected if condition is None else condition):
        raise Declined(reason, f"Expected {subject}: {expected}, got {got!s:.200}.")


def require_at_most(reason: Reason, subject: str, limit: int, got: int) -> None:
    """Raise `Declined` if a number is above its limit."""
    require(reason, subject, f"<= {limit}", got, got <= limit)


def require_subset(reason: Reason, what: str, accepted: Sequence[str], got: Sequence[str]) -> None:
    """Raise `Declined` unless all names are accepted ones."""
    require(reason, what, ", ".join(accepted), ", ".join(got), set(got) <= set(accepted))


def _check_run_fields(policy: OwnerPolicy, agreement: Agreement) -> None:
    """Check what the plan states about run and parties."""
    plan, run = agreement.plan, agreement.parameters
    # The single release before the rounds has number 0. The release after them has a number after
    # theirs, and is charged like any other.
    kind = get_accepted_kind(policy, plan.algorithm)
    last = MAX_ROUNDS + 1 if kind.after_rounds else agreement.rounds
    first, last = (0, 0) if kind.before_rounds else (1, last)
    require(Reason.WRONG_RUN, "run", agreement.run_id, plan.run_id)
    require(Reason.WRONG_RUN, "parties", run.parties, plan.parties)
    number = plan.round_number
    require(Reason.WRONG_RUN, "the round", f"{first} to {last}", number, first <= number <= last)
    lower, upper, proposed = policy.min_survivors, run.min_survivors, plan.min_survivors
    allowed = f"{lower} to {upper}"
    require(Reason.COHORT_TOO_SMALL, "min_survivors", allowed, proposed, lower <= proposed <= upper)
    dataset = policy.get_dataset(agreement.dataset)
    sizes = policy.is_size_disclosed(dataset) or None
    require(Reason.SIZES_NOT_DISCLOSED, "weights", "uniform", plan.weights, sizes)
    kind_name = agreement.task.get("kind")
    require(Reason.ALGORITHM, "algorithm, as in the task", kind_name, plan.algorithm)
    require(Reason.PROTOCOL, "ring_bits", run.ring_bits, plan.encoding.ring_bits)


def _check_guarantees(policy: OwnerPolicy, agreement: Agreement) -> None:
    """Check what the plan states about units, noise and charges."""
    plan, dataset = agreement.plan, policy.get_dataset(agreement.dataset)
    primary, guarantees = plan.primary, plan.guarantees
    require(Reason.UNIT, "unit", dataset.unit, primary.unit)
    require(Reason.UNIT, "units with a guarantee", sorted(dataset.totals), sorted(plan.units))
    charged = plan.get_charging_guarantee(primary.unit)
    require(
        Reason.RECORD_BOUND,
        "records charged by",
        "noise that this party adds itself: privacy.record-bound = 'inner'",
        f"{charged.mechanism.law} at {charged.noise_point}",
        not policy.insist_on_inner or charged is primary,
    )
    require(Reason.NEIGHBOURING, "neighbours", dataset.neighbouring, primary.neighbouring)
    laws = [guarantee.mechanism.law for guarantee in guarantees]
    require_subset(Reason.MECHANISM, "noise law", policy.laws, laws)
    points = [str(guarantee.noise_point) for guarantee in guarantees]
    require_subset(Reason.MECHANISM, "noise points", policy.noise_points, points)
    calibrations = [guarantee.calibration for guarantee in guarantees]
    require_subset(Reason.CALIBRATION, "calibration", policy.calibrations, calibrations)
    for unit in plan.units:
        # Otherwise δ covers every release that the party is in, with noise or without.
        delta = dataset.totals[unit].delta
        probability = plan.get_charging_guarantee(unit).party_sampling_rate
        subject, expected = "a coin that puts this party into a sum", f"> {format_exact(delta)}"
        require(Reason.DEGENERATE, subject, expected, probability, probability > delta)
    entropy = policy.allow_seeded_noise or not plan.seeded
    require(Reason.SEEDED_NOISE, "noise", "from entropy", "noise from a seed", entropy)


def _check_shares(agreement: Agreement) -> None:
    """Check that noise in shares has exactly this run's m, c and t.

    `check_run` compares c with the policy, as part of the run's parameters. The conditions on a
    share by itself are in `parley.privacy.mechanisms.noise_shares.Shares`, which every plan checks.
    """
    plan, run = agreement.plan, agreement.parameters
    for guarantee in plan.guarantees:
        shares = guarantee.shares
        if shares is None:
            continue
        require(Reason.MECHANISM, "parties of the shares", run.parties, shares.parties)
        least, point = plan.min_survivors, guarantee.noise_point
        min_holders, colluders = point.split(least=least, colluders=run.corrupt)
        require(Reason.MECHANISM, "colluders of the shares", colluders, shares.colluders)
        require(Reason.MECHANISM, "k + c of the shares", min_holders, shares.min_contributions)


def build_accepted_algorithm(policy: OwnerPolicy, task: Mapping[str, Any]) -> FederatedAlgorithm:
    """Build the algorithm that the task describes, if its kind, model and size are accepted.

    Names are compared with the policy before anything is built, because building a model of your
    own code imports and runs it.

    Raises:
        Declined: the task is malformed or not accepted.
    """
    kind = get_accepted_kind(policy, task.get("kind"))
    with decline_errors(Reason.PROTOCOL, DecodingError):
        name, size = kind.parse_size(task)
    accepted_models = policy.get_accepted("models")
    if name and name not in accepted_models:
        raise _build_unlisted_error("one", "models", accepted_models)
    require_at_most(Reason.MODEL, "parameters", policy.largest_model, size)
    with decline_errors(Reason.PROTOCOL, DecodingError):
        return decode_task(
            task,
            device=policy.device,
            own_models=policy.get_own_code("models"),
            own_algorithms=policy.get_own_code("algorithms"),
        )


def _build_unlisted_error(subject: str, key: str, accepted: Iterable[str]) -> Declined:
    return Declined(
        Reason.MODEL,
        f"Expected {subject} of {', '.join(accepted)}: a party runs only its own code. To accept a "
        f"file of yours, put it into this folder and list it in {key} of party.toml.",
    )


def build_feature_map(
    policy: OwnerPolicy, dataset: DatasetConfig, features: Mapping[str, Any]
) -> FeatureMap | None:
    """Build the public map that a run requests. A name that the policy lacks is never built.

    Raises:
        Declined: model, if the policy does not accept the map.
    """
    if bool(features) != bool(dataset.map) and dataset.prepared:
        wanted = "with their map of features" if dataset.map else "without a map of features"
        raise Declined(Reason.MODEL, f"Expected the job to use prepared rows {wanted}.")
    if not features or dataset.prepared:
        return None
    name = features["name"]
    accepted_maps = policy.get_accepted("features")
    if name not in accepted_maps:
        raise _build_unlisted_error("features", "features", accepted_maps)
    from parley.client.features.map_building import build_map  # noqa: PLC0415 - a run without a map of features needs none

    with decline_errors(Reason.MODEL, FeatureError):
        return build_map(name, features["settings"], own_maps=accepted_maps)


def get_accepted_kind(policy: OwnerPolicy, name: object) -> AlgorithmSpec:
    """Return the row of an algorithm. A name that the policy lacks is never imported.

    Raises:
        Declined: algorithm, if the policy does not accept its name.
    """
    accepted_algorithms = policy.get_accepted("algorithms")
    if not isinstance(name, str) or name not in accepted_algorithms:
        raise Declined(Reason.ALGORITHM, f"Expected one of {', '.join(accepted_algorithms)}.")
    with decline_errors(Reason.ALGORITHM, OwnCodeError):
        return get_algorithm_spec(accepted_algorithms[name])


def check_components(task: Mapping[str, Any], *, has_components: bool) -> None:
    """Require components for a model that is made for them, and refuse them for any other.

    Their values affect no guarantee: gradients are clipped whatever the rows.

    Raises:
        Declined: model.
    """
    if has_components != get_network_shape(task.get("learner", task)).projected:
        raise Declined(Reason.MODEL, "Expected components with pca-mlp, and with no other model.")
