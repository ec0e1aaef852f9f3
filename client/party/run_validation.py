"""The examination: whether a proposed run is what it says it is, and what this party accepts.

The server proposes a task and a release plan; the party trusts neither. Here policy is compared;
what can be derived is derived again by `parley.client.party.plan_verification`. Every failure is a
`Declined` with one reason class; none depends on a record (the number of records is public where it
matters).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parley.client.algorithms.algorithm_spec import Kind, network_of
from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.own_algorithm import OwnAlgorithmError
from parley.client.algorithms.query_release import QueryRelease
from parley.client.algorithms.registry import kind_of, task_from
from parley.client.contract.agreement import MOST_ROUNDS, Agreement
from parley.client.contract.party_protocol import Declined, Reason
from parley.client.contract.roster import Deployment
from parley.client.contract.strict_decoding import DecodingError
from parley.client.features.base import FeatureError, FeatureMap
from parley.client.features.registry import build_map
from parley.client.party.dataset_config import DataSet
from parley.client.party.owner_policy import Consent
from parley.privacy.accounting.threat_model import Unit
from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.protocol_parameters import Policy, RunParameters


def check_run(consent: Consent, deployment: Deployment, run: RunParameters) -> Policy:
    """The policy that the protocol's state machine is to hold; the run has to satisfy it."""
    of_roster = f"the parties of deployment {deployment.id}"
    hold(Reason.WRONG_RUN, of_roster, len(deployment.parties), run.parties)
    least, got = consent.min_survivors, run.min_survivors
    hold(Reason.COHORT_TOO_SMALL, "min_survivors", f">= {least}", got, got >= least)
    policy = Policy(
        identities=deployment.identities,
        min_survivors=consent.min_survivors,
        minimum_degree=consent.min_degree,
        corrupt=consent.colluders_at_least,
        deployment=bytes.fromhex(deployment.id),
    )
    try:
        policy.check(run)
    except RemoteProtocolError as error:
        raise Declined(Reason.PROTOCOL, str(error)) from error
    return policy


def check_plan(consent: Consent, agreement: Agreement) -> None:
    """Holds the plan against the policy and the run; nothing of the data is needed."""
    plan = agreement.plan
    _check_run_of(consent, agreement)
    _check_guarantees(consent, agreement)
    _check_shares(agreement)
    try:
        for unit in plan.units:
            _ = plan.event(unit).exact_rho
            plan.facts(unit)
    except (ValueError, ArithmeticError) as error:
        raise Declined(Reason.MECHANISM, f"No event: {type(error).__name__}.") from error


def hold(
    reason: Reason, what: str, expected: object, got: object, holds: bool | None = None
) -> None:
    """Declines where something does not hold; None: what came is to equal what is expected."""
    if not (got == expected if holds is None else holds):
        raise Declined(reason, f"Expected {what}: {expected}, got {got!s:.200}.")


def _check_run_of(consent: Consent, agreement: Agreement) -> None:
    """What the plan says of run and parties."""
    plan, run = agreement.plan, agreement.parameters
    # The release ahead of the rounds is number 0, of which there is one; that after them has a
    # number after theirs, which is charged like any other.
    row = accepted_kind(consent, plan.algorithm)
    first, last = (0, 0) if row.ahead else (1, MOST_ROUNDS + 1 if row.after else agreement.rounds)
    hold(Reason.WRONG_RUN, "run", agreement.run_id, plan.run_id)
    hold(Reason.WRONG_RUN, "parties", run.parties, plan.parties)
    number = plan.round_number
    hold(Reason.WRONG_RUN, "the round", f"{first} to {last}", number, first <= number <= last)
    least, most, got = consent.min_survivors, run.min_survivors, plan.min_survivors
    within = f"{least} to {most}"
    hold(Reason.COHORT_TOO_SMALL, "min_survivors", within, got, least <= got <= most)
    dataset = consent.dataset(agreement.dataset)
    sizes = consent.discloses_size(dataset) or None
    hold(Reason.SIZES_NOT_DISCLOSED, "weights", "uniform", plan.weights, sizes)
    hold(Reason.ALGORITHM, "algorithm, as in the task", agreement.task.get("kind"), plan.algorithm)
    hold(Reason.PROTOCOL, "ring_bits", run.ring_bits, plan.encoding.ring_bits)


def _check_guarantees(consent: Consent, agreement: Agreement) -> None:
    """What the plan says of units, noise and how it is charged."""
    plan, dataset = agreement.plan, consent.dataset(agreement.dataset)
    own, all_of = plan.primary, plan.guarantees
    hold(Reason.UNIT, "unit", dataset.unit, own.unit)
    hold(Reason.UNIT, "units with a guarantee", sorted(dataset.totals), sorted(plan.units))
    charged = plan.charged_by(own.unit)
    hold(
        Reason.RECORD_BOUND,
        "records charged by",
        "noise that this party adds itself: privacy.record-bound = 'inner'",
        f"{charged.mechanism.law} at {charged.noise_point}",
        not consent.insist_on_inner or charged is own,
    )
    hold(Reason.NEIGHBOURING, "neighbours", dataset.neighbouring, own.neighbouring)
    points = [str(each.noise_point) for each in all_of]
    for reason, what, accepted, came in (
        (Reason.MECHANISM, "noise law", consent.laws, [g.mechanism.law for g in all_of]),
        (Reason.MECHANISM, "noise points", consent.noise_points, points),
        (Reason.CALIBRATION, "calibration", consent.calibrations, [g.calibration for g in all_of]),
    ):
        hold(reason, what, ", ".join(accepted), ", ".join(came), set(came) <= set(accepted))
    for unit in plan.units:
        # Else δ covers every release that the party is in, with noise or without.
        rare, p = dataset.totals[unit].delta, plan.charged_by(unit).attendance
        hold(
            Reason.DEGENERATE, "a coin that puts this party into a sum", f"> {rare:g}", p, p > rare
        )
    entropy = consent.allow_seeded_noise or not plan.seeded
    hold(Reason.SEEDED_NOISE, "noise", "from entropy", "noise from a seed", entropy)


def _check_shares(agreement: Agreement) -> None:
    """What noise in shares has to be of this run: its m, c and t, the very same numbers.

    c is held against the policy with the run's parameters (`check_run`). What a share has to be by
    itself stands in `parley.privacy.mechanisms.noise_shares.Shares`, which no plan is without.
    """
    plan, run = agreement.plan, agreement.parameters
    for each in plan.guarantees:
        shares = each.shares
        if shares is None:
            continue
        hold(Reason.MECHANISM, "parties of the shares", run.parties, shares.parties)
        least, colluders = each.noise_point.split(least=plan.min_survivors, colluders=run.corrupt)
        hold(Reason.MECHANISM, "colluders of the shares", colluders, shares.colluders)
        hold(Reason.MECHANISM, "k + c of the shares", least, shares.least)


def task_of(consent: Consent, task: Mapping[str, Any]) -> FederatedAlgorithm:
    """The algorithm that the task describes, if its kind, model and size are accepted.

    Names are held against the policy before anything is built: naming a model of your own code
    would import and run it.
    """
    row = accepted_kind(consent, task.get("kind"))
    try:
        name, size = row.size(task)
    except DecodingError as error:
        raise Declined(Reason.PROTOCOL, str(error)) from error
    accepted = consent.accepted("models")
    if name and name not in accepted:
        raise Declined(
            Reason.MODEL,
            f"Expected one of {', '.join(accepted)}: a party runs no code but its "
            "own; your own file is accepted when it is in this folder and listed in models of "
            "party.toml.",
        )
    largest = consent.largest_model
    hold(Reason.MODEL, "parameters", f"<= {largest}", size, size <= largest)
    try:
        return task_from(
            task,
            device=consent.device,
            own_models=consent.own("models"),
            own_algorithms=consent.own("algorithms"),
        )
    except DecodingError as error:
        raise Declined(Reason.PROTOCOL, str(error)) from error


def map_of(consent: Consent, dataset: DataSet, features: Mapping[str, Any]) -> FeatureMap | None:
    """The public map that a run asks for, if the policy accepts its name: no other is ever made."""
    if bool(features) != bool(dataset.map) and dataset.prepared:
        raise Declined(
            Reason.MODEL,
            "Expected rows as they were prepared: "
            + ("with the features of its map." if dataset.map else "without a map of features."),
        )
    if not features or dataset.prepared:
        return None
    name = features["name"]
    accepted = consent.accepted("features")
    if name not in accepted:
        raise Declined(
            Reason.MODEL,
            f"Expected features of {', '.join(accepted)}: a party runs no code but its own; your "
            "own file is accepted when it is in this folder and listed in features of party.toml.",
        )
    try:
        return build_map(name, features["settings"], own=accepted)
    except FeatureError as error:
        raise Declined(Reason.MODEL, str(error)) from error


def accepted_kind(consent: Consent, name: object) -> Kind:
    """The row of an algorithm, if the policy accepts its name: nothing else is ever imported."""
    accepted = consent.accepted("algorithms")
    if not isinstance(name, str) or name not in accepted:
        raise Declined(Reason.ALGORITHM, f"Expected one of {', '.join(accepted)}.")
    try:
        return kind_of(accepted[name])
    except OwnAlgorithmError as error:
        raise Declined(Reason.ALGORITHM, str(error)) from error


def check_components(task: Mapping[str, Any], *, given: bool) -> None:
    """Refuses components for anything but the model that is made for them, and that one without.

    What they are matters to no guarantee: gradients are clipped whatever the rows.
    """
    if given != network_of(task.get("learner", task)).projected:
        raise Declined(Reason.MODEL, "Expected components with pca-mlp, and only there.")


def check_queries(consent: Consent, dataset: DataSet, algorithm: FederatedAlgorithm) -> None:
    """Holds a batch of queries against the policy; anything else passes.

    To a party it is a job of one round: `epsilon-per-job` bounds each of them.
    """
    if not isinstance(algorithm, QueryRelease):
        return
    batch, own = algorithm.batch, algorithm.counting
    kinds = {query.kind for query in batch.queries}
    known = kinds <= set(consent.queries)
    hold(Reason.ALGORITHM, "queries", ", ".join(consent.queries), sorted(kinds), known)
    allowed = consent.query_columns
    if allowed is not None:
        told = batch.columns <= set(allowed)
        hold(Reason.ALGORITHM, "columns", ", ".join(allowed), sorted(batch.columns), told)
    if own.unit is Unit.PERSON:
        hold(Reason.UNIT, "records of a person", dataset.records_per_id, own.most)
    alone = consent.by_party or not own.parties
    hold(Reason.ALGORITHM, "an answer", "of all parties", "one by party", alone)
    cells, most = algorithm.dimension, consent.most_cells
    hold(Reason.ALGORITHM, "cells", f"<= {most}", cells, cells <= most)
