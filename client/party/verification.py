"""What a plan claims, derived again from its task and from the party's own public facts.

The algorithm's `claim` (`parley.client.algorithms.base`) is the very function that the server plans
from; here it is called with this party's facts, and the plan has to cover the answer. n is the
party's number of records (where that is private, the plan's: `ReleasePlan.private_sizes`), d the
dimension of a contribution, s the grid's scale bits:

| the plan's | covers the claim where |
|---|---|
| unit, relation, weights, λ, κG, clip | they are the claim's |
| noise point | inside the training where the claim's is, else on the sum: whoever adds it |
| G | ≥ the claim's |
| Δ | ≥ the claim's, rounding in double precision included |
| Δ of the noise on the sum | ≥ 2^s·Δ + √d grid units (shares: 2^(s+h)·Δ + √d fine ones) |
| the same, of whole numbers | ≥ 2^s·Δ; Δ₁ likewise, where the noise is scaled to it |
| shares of the noise | enough for the law, above their floor (`Shares.check`), and they fit |
| noise inside the party | it is that of the task's own training, a party's coin included |
| noise on sampled sums | rate, steps and a party's coin are the task's (`Guarantee`: by unit) |
| encoding | holds the party's largest contribution, and m of them do not wrap around |
| grid | the finest that the ring holds, and fine enough (`parley.client.contract.grid`) |

The event that is charged follows from the noise's own parameters, so that a plan that passes cannot
cost more than it says. What an algorithm refuses beside its claim stands in its row of
`parley.client.algorithms.registry.ALGORITHMS`.
"""

from __future__ import annotations

import math

from parley.client.algorithms.base import Claim, FederatedAlgorithm, PublicFacts
from parley.client.algorithms.kind import Kind
from parley.client.contract.grid import TAIL_PROBABILITY, check_grid
from parley.client.contract.guarantee import Guarantee
from parley.client.contract.plan import ReleasePlan
from parley.client.contract.protocol import Declined, Reason
from parley.client.dp_sgd.layout import MOST_RECORDS as MOST_IN_A_BATCH
from parley.client.party.consent import Consent
from parley.client.party.dataset import Facts
from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.secure_agg.encoding import RingTooSmall

_EXACT = 1 - 1e-12


def check_computation(
    consent: Consent,
    plan: ReleasePlan,
    algorithm: FederatedAlgorithm,
    kind: Kind,
    own: Facts,
) -> None:
    """Derives what the plan claims from the task and the party's public facts."""
    # Where sizes are private the plan's number bounds none, and stands for all of them.
    records = plan.min_records if own.records is None else own.records
    if records < plan.min_records:
        raise Declined(Reason.TOO_FEW_RECORDS, f"Expected {plan.min_records} records.")
    facts = _facts(plan, records)
    wanted = algorithm.model.features
    if wanted != own.width or plan.dimension != algorithm.dimension:
        raise Declined(
            Reason.MODEL,
            f"Expected {own.width} features and a plan of the task's dimension, got {wanted} and "
            f"{plan.dimension} for {algorithm.dimension}.",
        )
    if kind.trains and own.records is None and own.most > MOST_IN_A_BATCH:
        raise Declined(
            Reason.ALGORITHM,
            f"Expected at most {MOST_IN_A_BATCH} records for DP-SGD, got up to {own.most}: where "
            "their number is private, most-records says how many there may be.",
        )
    if plan.parameters > consent.largest_model:
        raise Declined(
            Reason.MODEL,
            f"Expected at most {consent.largest_model} parameters, got {plan.parameters}.",
        )
    try:
        claim = algorithm.claim(facts)
    except (ValueError, ArithmeticError) as error:
        raise Declined(Reason.ALGORITHM, f"No claim: {error}") from error
    known = (own.classes,) if own.classes else (1, 2)
    if claim.classes is not None and claim.classes not in known:
        raise Declined(Reason.MODEL, f"Expected {own.classes or 2} classes, got {claim.classes}.")
    if claim.work > consent.most_steps:
        raise Declined(Reason.ALGORITHM, f"Expected at most {consent.most_steps} steps.")
    _check_covers(plan, claim)
    weight = records / plan.mean_records if plan.weights == "size" else 1.0
    sufficient("the encoding's bound", claim.bound * weight, plan.encoding.bound * (1 + 1e-9))
    kind.check(algorithm, plan)
    if consent.insist_on_fine_grid and not claim.whole:  # whole numbers are on any grid
        length = claim.covered if claim.grid_length is None else claim.grid_length
        check_grid(plan, entry=claim.bound, sensitivity=length, scale_bits=claim.scale_bits)


def sufficient(what: str, required: float, got: float) -> None:
    """Refuses less than what is required, but for rounding."""
    if not got >= required * _EXACT:  # NaN is not
        raise Declined(Reason.SENSITIVITY, f"Expected {what} >= {required:g}, got {got:g}.")


def _facts(plan: ReleasePlan, records: int) -> PublicFacts:
    """The plan's public numbers, and the party's own."""
    total = round(plan.mean_records * plan.parties)
    # Weights are n/n̄ with n̄ as it stands in the plan: it must be N/m for a whole N.
    if total < 1 or abs(plan.mean_records * plan.parties - total) > total * 2.0**-50:
        raise Declined(Reason.SENSITIVITY, "Expected mean records of N/m for a whole N.")
    return PublicFacts(
        parties=plan.parties,
        min_records=plan.min_records,
        total_records=total,
        max_records=records,
        weights="size" if plan.weights == "size" else "uniform",
    )


def _check_covers(plan: ReleasePlan, claim: Claim) -> None:
    """Refuses a plan that covers less than the claim, or something else."""
    second = next((each for each in plan.guarantees[1:]), None)
    for reason, what, expected, got, holds in (
        (Reason.UNIT, "unit", claim.unit, plan.primary.unit, plan.primary.unit is claim.unit),
        (
            Reason.UNIT,
            "guarantees of unit party",
            claim.party_norm is not None,
            second is not None,
            (second is None) == (claim.party_norm is None),
        ),
        (
            Reason.NEIGHBOURING,
            "neighbours",
            claim.neighbouring,
            plan.primary.neighbouring,
            plan.primary.neighbouring is claim.neighbouring,
        ),
        (
            Reason.MECHANISM,
            "noise inside the parties",
            claim.inside,
            f"{plan.primary.mechanism.law} at {plan.primary.noise_point}",
            plan.primary.mechanism.inside == (claim.steps is not None)
            and (plan.primary.noise_point.private_alone or not claim.inside),
        ),
        (Reason.ALGORITHM, "λ", claim.lambda_, plan.lambda_, plan.lambda_ == claim.lambda_),
        (Reason.SENSITIVITY, "weights", claim.weights, plan.weights, plan.weights == claim.weights),
        (
            Reason.SENSITIVITY,
            "clip_norm",
            claim.clip_norm,
            plan.primary.clip_norm,
            plan.primary.clip_norm == claim.clip_norm,
        ),
        (
            Reason.ALGORITHM,
            "a tolerance",
            claim.gradient_tolerance,
            plan.gradient_tolerance,
            (plan.gradient_tolerance is None) == (claim.gradient_tolerance is None),
        ),
    ):
        if not holds:
            raise Declined(reason, f"Expected {what} of the task: {expected}, got {got}.")
    if claim.gradient_tolerance is not None and plan.gradient_tolerance is not None:
        # Nor tighter, however it is asked for: whether it can be certified is about the task's.
        sufficient("the task's tolerance", plan.gradient_tolerance, claim.gradient_tolerance)
        sufficient("the plan's tolerance", claim.gradient_tolerance, plan.gradient_tolerance)
    sufficient("sensitivity", claim.covered, plan.primary.sensitivity)
    sufficient("lipschitz", claim.lipschitz, plan.lipschitz)
    _check_sampling(plan, claim)
    _check_objective(plan, claim)
    if claim.steps is not None:
        if plan.primary.mechanism != claim.steps:
            raise Declined(
                Reason.MECHANISM, "Expected the noise of the task's own, inside the party."
            )
    else:
        grid = _on_grid(
            plan,
            plan.primary,
            max(claim.covered, plan.primary.sensitivity),
            rounded=not claim.whole,
        )
        sufficient("the mechanism's sensitivity", grid, plan.primary.mechanism.sensitivity)
        _check_l1(plan, claim)
    if second is not None and claim.party_norm is not None:
        _check_second(plan, second, claim.party_norm)
    _check_room(plan)


def _check_room(plan: ReleasePlan) -> None:
    """The ring holds all parties' contributions, with their shares of the noise."""
    try:
        # A sum that wraps around would move by 2^b where the noise covers Δ. Shares are within the
        # ring, all m of them; the server's noise is added outside.
        split = plan.shared
        room = 0.0 if split is None else split.noise_tail(TAIL_PROBABILITY)
        plan.encoding.check_capacity(plan.parties, room)
    except RingTooSmall as error:
        raise Declined(Reason.SENSITIVITY, str(error)) from error


def _on_grid(
    plan: ReleasePlan, guarantee: Guarantee, sensitivity: float, *, rounded: bool = True
) -> float:
    """Δ in the units that the noise is drawn in; and √d, where values are rounded to them."""
    scaled = guarantee.units(plan.encoding.scale) * sensitivity
    return scaled + math.sqrt(plan.dimension) if rounded else scaled


def _check_l1(plan: ReleasePlan, claim: Claim) -> None:
    """Noise that is scaled to Δ₁ covers the claim's, which has to state one."""
    bound = plan.primary.mechanism.bound_l1
    if bound is None:
        return
    if claim.sensitivity_l1 is None:
        raise Declined(Reason.MECHANISM, "Expected noise by Δ₂: the task states no Δ₁.")
    own = plan.primary.units(plan.encoding.scale) * claim.sensitivity_l1
    sufficient("the mechanism's Δ₁", own, bound)


def _check_sampling(plan: ReleasePlan, claim: Claim) -> None:
    """No amplification, and no number of sums, is charged but the task's own."""
    for asked, guarantee in zip(claim.guarantees, plan.guarantees, strict=True):
        sums, noise = asked.sums, guarantee.mechanism.sampled
        wanted = sums and (
            sums.sampling_rate,
            sums.steps,
            str(asked.neighbouring),
            sums.attendance,
            sums.hidden,
        )
        got = noise and (
            noise.sampling_rate,
            noise.steps,
            noise.neighbouring,
            noise.attendance,
            noise.hidden,
        )
        if got != wanted:
            raise Declined(
                Reason.MECHANISM,
                "Expected sampled sums (rate, steps, relation, attendance, hidden) of the task: "
                f"{wanted}, got {got}.",
            )


def _check_objective(plan: ReleasePlan, claim: Claim) -> None:
    """What noise in the objective costs is charged where the task has some, and only there."""
    found = plan.primary.mechanism.objective
    if (found is None) != (claim.objective is None):
        raise Declined(Reason.MECHANISM, "Expected noise in objectives where the task has some.")
    if found is not None and claim.objective is not None and not found >= claim.objective:
        raise Declined(
            Reason.MECHANISM,
            f"Expected {claim.objective:g} charged for the noise in objectives, got {found:g}.",
        )


def _check_second(plan: ReleasePlan, second: Guarantee, bound: float) -> None:
    """The noise on the sum covers any update of the task's norm: it may be what is charged."""
    if second.unit is not Unit.PARTY or second.neighbouring is not Neighbouring.REPLACE_ONE:
        raise Declined(
            Reason.NEIGHBOURING,
            "Expected unit party and replace-one neighbours of the second guarantee, got "
            f"{second.unit} and {second.neighbouring}.",
        )
    if second not in plan.on_sum or second.mechanism.inside:
        raise Declined(Reason.MECHANISM, "Expected noise on a sum of clipped updates.")
    sufficient("the update's norm", bound, second.clip_norm or 0.0)
    sufficient("the party's sensitivity", 2 * bound, second.sensitivity)
    grid = _on_grid(plan, second, max(2 * bound, second.sensitivity))
    sufficient("the sensitivity of the noise on the sum", grid, second.mechanism.sensitivity)
