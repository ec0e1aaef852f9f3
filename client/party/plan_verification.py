"""What a plan claims, derived again from its task and from the party's own public facts.

The algorithm's `claim` (`parley.client.algorithms.base`) is the very function that the server plans
from; here it is called with this party's facts, and the plan has to cover the answer. n is the
party's number of records (where that is private, the plan's: `ReleasePlan.private_sizes`), d the
dimension of a contribution, s the grid's scale bits:

| the plan's | covers the claim where |
|---|---|
| unit, relation, weights, λ, κG, clip | they are the claim's |
| noise point | inside the training where the claim's is, else on the sum |
| G, Δ | ≥ the claim's |
| Δ of the noise on the sum | ≥ 2^s·Δ + √d grid units (shares: 2^(s+h)·Δ + √d fine ones) |
| the same, of whole numbers of that grid | ≥ 2^s·Δ; Δ₁ likewise, where noise is scaled to it |
| noise inside the party, on sampled sums | it is the task's: rate, steps, a party's coin |
| encoding | holds the party's largest contribution whole, and m of them do not wrap around |
| grid | the finest that the ring holds, and fine enough (`parley.client.contract.grid_rule`) |

The event that is charged follows from the noise's own parameters, so that a plan that passes cannot
cost more than it says. What an algorithm refuses beside its claim stands in its row of
`parley.client.algorithms.registry.ALGORITHMS`.
"""

from __future__ import annotations

from parley.client.algorithms.algorithm_spec import Kind
from parley.client.algorithms.base import Claim, FederatedAlgorithm, PublicFacts
from parley.client.contract.grid_rule import TAIL_PROBABILITY, check_grid
from parley.client.contract.guarantee import Guarantee
from parley.client.contract.party_protocol import Declined, Reason
from parley.client.contract.release_plan import ReleasePlan
from parley.client.dp_sgd.poisson_batches import MOST_RECORDS as MOST_IN_A_BATCH
from parley.client.party.dataset_loader import Facts
from parley.client.party.owner_policy import Consent
from parley.client.party.run_validation import hold
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
    least, wanted = plan.min_records, algorithm.model.features
    hold(Reason.TOO_FEW_RECORDS, "records", f">= {least}", "fewer", records >= least)
    facts = _facts(plan, records)
    hold(Reason.MODEL, "features", own.width, wanted)
    hold(Reason.MODEL, "the task's dimension", algorithm.dimension, plan.dimension)
    # Where their number is private, most-records says how many there may be.
    most = f"most-records <= {MOST_IN_A_BATCH} for DP-SGD"
    few = not kind.trains or own.records is not None or own.most <= MOST_IN_A_BATCH
    hold(Reason.ALGORITHM, "records", most, own.most, few)
    largest = consent.largest_model
    hold(Reason.MODEL, "parameters", f"<= {largest}", plan.parameters, plan.parameters <= largest)
    try:
        claim = algorithm.claim(facts)
    except (ValueError, ArithmeticError) as error:
        raise Declined(Reason.ALGORITHM, f"No claim: {error}") from error
    known = (None, own.classes) if own.classes else (None, 1, 2)
    hold(Reason.MODEL, "classes", own.classes or 2, claim.classes, claim.classes in known)
    most_steps = consent.most_steps
    hold(Reason.ALGORITHM, "steps", f"<= {most_steps}", claim.work, claim.work <= most_steps)
    _check_covers(plan, claim)
    weight = records / plan.mean_records if plan.weights == "size" else 1.0
    # To the bit: what is cut to a bound and does not fit would be zeros, for one record more.
    entry, given = claim.bound * weight, plan.encoding.bound
    hold(Reason.SENSITIVITY, "the encoding's bound", f">= {entry}", given, given >= entry)
    kind.check(algorithm, plan)
    asked = claim.scale_bits is None or plan.encoding.scale_bits >= claim.scale_bits
    if consent.insist_on_fine_grid and not (asked and claim.exact_on(plan.encoding.scale)):
        check_grid(plan, entry=claim.bound, sensitivity=claim.length, scale_bits=claim.scale_bits)


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
    own, *others = plan.guarantees
    at, inside = own.noise_point, own.mechanism.inside
    hold(Reason.UNIT, "the task's unit", claim.unit, own.unit)
    two = claim.party_norm is not None
    hold(Reason.UNIT, "a guarantee of unit party beside", two, bool(others))
    hold(Reason.NEIGHBOURING, "the task's neighbours", claim.neighbouring, own.neighbouring)
    hold(
        Reason.MECHANISM,
        "the task's noise inside the parties",
        claim.inside,
        f"{own.mechanism.law} at {at}",
        inside == (claim.steps is not None) and (at.private_alone or not claim.inside),
    )
    hold(Reason.ALGORITHM, "the task's λ", claim.lambda_, plan.lambda_)
    hold(Reason.SENSITIVITY, "the task's weights", claim.weights, plan.weights)
    hold(Reason.SENSITIVITY, "the task's clip_norm", claim.clip_norm, own.clip_norm)
    asked, given = claim.gradient_tolerance, plan.gradient_tolerance
    hold(Reason.ALGORITHM, "the task's tolerance", asked, given, (asked is None) == (given is None))
    if asked is not None and given is not None:
        # Nor tighter, however it is asked for: whether it can be certified is about the task's.
        sufficient("the task's tolerance", given, asked)
        sufficient("the plan's tolerance", asked, given)
    sufficient("sensitivity", claim.covered, own.sensitivity)
    sufficient("lipschitz", claim.lipschitz, plan.lipschitz)
    _check_sampling(plan, claim)
    _check_objective(plan, claim)
    if claim.steps is not None:
        hold(Reason.MECHANISM, "noise inside the party", claim.steps, own.mechanism)
    else:
        covered = max(claim.covered, own.sensitivity)
        grid = claim.on_grid(covered, own.units(plan.encoding.scale))
        sufficient("the mechanism's sensitivity", grid, own.mechanism.sensitivity)
        _check_l1(plan, claim)
    if others:
        _check_second(plan, others[0], claim)
    try:
        # A sum that wraps around would move by 2^b where the noise covers Δ. Shares are within the
        # ring, all m of them; the server's noise is added outside.
        split = plan.shared
        room = 0.0 if split is None else split.noise_tail(TAIL_PROBABILITY)
        plan.encoding.check_capacity(plan.parties, room)
    except RingTooSmall as error:
        raise Declined(Reason.SENSITIVITY, str(error)) from error


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
        what = "the task's sampled sums (rate, steps, relation, attendance, hidden)"
        hold(Reason.MECHANISM, what, wanted, got)


def _check_objective(plan: ReleasePlan, claim: Claim) -> None:
    """What noise in the objective costs is charged where the task has some, and only there."""
    found, asked = plan.primary.mechanism.objective, claim.objective
    covers = found is asked if found is None or asked is None else found >= asked
    hold(Reason.MECHANISM, "noise in objectives", asked, found, covers)


def _check_second(plan: ReleasePlan, second: Guarantee, claim: Claim) -> None:
    """The noise on the sum covers any update of the task's norm: it may be what is charged."""
    asked = claim.guarantees[1]
    relation = asked.unit, asked.neighbouring
    hold(Reason.NEIGHBOURING, "the second guarantee", relation, (second.unit, second.neighbouring))
    on_sum = second in plan.on_sum and not second.mechanism.inside
    hold(Reason.MECHANISM, "the second's noise", "on a sum of updates", second.noise_point, on_sum)
    sufficient("the update's norm", asked.clip_norm or 0.0, second.clip_norm or 0.0)
    sufficient("the party's sensitivity", asked.sensitivity, second.sensitivity)
    moved = max(asked.sensitivity, second.sensitivity)
    grid = claim.on_grid(moved, second.units(plan.encoding.scale))
    sufficient("the sensitivity of the noise on the sum", grid, second.mechanism.sensitivity)
