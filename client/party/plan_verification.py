"""A plan's claims, derived again from its task and from the party's own public facts.

The server plans from the algorithm's `claim` (`parley.client.algorithms.base`). Here the same
function is called with this party's facts, and the plan must cover the result. n is the party's
number of records (if that is private, the plan's: `ReleasePlan.private_sizes`), d the dimension of
a contribution, s the grid's scale bits:

| the plan's | requirement |
|---|---|
| unit, relation, weights, λ, κG, clip | equal to the claim's |
| noise point | inside the training if the claim's is, else on the sum |
| G, Δ | ≥ the claim's |
| Δ of the noise on the sum | ≥ 2^s·Δ + √d grid units (shares: 2^(s+h)·Δ + √d fine ones) |
| the same, for integers of that grid | ≥ 2^s·Δ; Δ₁ likewise, if noise is scaled to it |
| noise inside the party, on sampled sums | equal to the task's: rate, steps, a party's coin |
| encoding | holds the party's largest contribution whole, and m of them do not wrap around |
| grid | the finest that the ring holds, and fine enough (`parley.client.party.grid_verification`) |

The event that is charged follows from the noise's own parameters. A plan that passes therefore
cannot cost more than it states. An algorithm's further refusals are in its row of
`parley.client.algorithms.registry.ALGORITHMS`.
"""

from __future__ import annotations

from operator import attrgetter

from parley.client.algorithms.algorithm_spec import AlgorithmSpec
from parley.client.algorithms.base import Claim, FederatedAlgorithm, PublicFacts
from parley.client.contract.guarantee import Guarantee
from parley.client.contract.refusals import Declined, Reason, decline_errors
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.ring_noise_tail import TAIL_PROBABILITY
from parley.client.dp_sgd.poisson_batch_bound import MAX_RECORDS as MOST_IN_A_BATCH
from parley.client.party.grid_verification import check_grid
from parley.client.party.loaded_dataset import DatasetFacts
from parley.client.party.owner_policy import OwnerPolicy
from parley.client.party.run_validation import require, require_at_most
from parley.secure_agg.encoding import RingTooSmall

_SAMPLING_FIELDS = ("sampling_rate", "steps", "neighbouring", "attendance", "hidden")
_ROUNDING = 1 - 1e-12


def check_computation(
    policy: OwnerPolicy,
    plan: ReleasePlan,
    algorithm: FederatedAlgorithm,
    kind: AlgorithmSpec,
    data_facts: DatasetFacts,
) -> None:
    """Derive the plan's claims from the task and the party's public facts, and compare them.

    Raises:
        Declined: the plan covers less than the task's claim, or exceeds the policy's limits.
    """
    # If sizes are private, the plan's number bounds none of them and is used for all.
    records = plan.min_records if data_facts.records is None else data_facts.records
    min_records, expected_features = plan.min_records, algorithm.model.features
    require(Reason.TOO_FEW_RECORDS, "records", f">= {min_records}", "fewer", records >= min_records)
    facts = _build_public_facts(plan, records)
    require(Reason.MODEL, "features", data_facts.width, expected_features)
    require(Reason.MODEL, "the task's dimension", algorithm.dimension, plan.dimension)
    # If their number is private, most-records bounds it.
    bound_text = f"most-records <= {MOST_IN_A_BATCH} for DP-SGD"
    max_records = data_facts.max_records
    is_bounded = data_facts.records is not None or max_records <= MOST_IN_A_BATCH
    is_accepted = is_bounded or not kind.trains_network
    require(Reason.ALGORITHM, "records", bound_text, max_records, is_accepted)
    require_at_most(Reason.MODEL, "parameters", policy.largest_model, plan.parameters)
    try:
        claim = algorithm.claim(facts)
    except (ValueError, ArithmeticError) as error:
        raise Declined(Reason.ALGORITHM, f"No claim: {error}") from error
    allowed_classes = (None, data_facts.classes) if data_facts.classes else (None, 1, 2)
    is_allowed, classes = claim.classes in allowed_classes, data_facts.classes or 2
    require(Reason.MODEL, "classes", classes, claim.classes, is_allowed)
    require_at_most(Reason.ALGORITHM, "steps", policy.most_steps, claim.work)
    _check_covers(plan, claim)
    weight = records / plan.mean_records if plan.weights == "size" else 1.0
    # No tolerance: a value above the bound would be sent as zeros, and one more record could cause
    # it.
    least, got = claim.bound * weight, plan.encoding.bound
    require(Reason.SENSITIVITY, "the encoding's bound", f">= {least}", got, got >= least)
    kind.check(algorithm, plan)
    is_requested_scale = claim.scale_bits is None or plan.encoding.scale_bits >= claim.scale_bits
    is_exact = is_requested_scale and claim.is_exact_on(plan.encoding.scale)
    if policy.insist_on_fine_grid and not is_exact:
        bits, reference = claim.scale_bits, claim.rounding_reference
        check_grid(plan, entry=claim.bound, sensitivity=reference, scale_bits=bits)


def require_at_least(subject: str, required: float, got: float) -> None:
    """Require `got` to be at least `required`, up to rounding.

    Raises:
        Declined: sensitivity.
    """
    if not got >= required * _ROUNDING:  # NaN is not
        raise Declined(Reason.SENSITIVITY, f"Expected {subject} >= {required:g}, got {got:g}.")


def _build_public_facts(plan: ReleasePlan, records: int) -> PublicFacts:
    """Return the plan's public numbers, with the party's own."""
    total = round(plan.mean_records * plan.parties)
    # Weights are n/n̄ with the plan's n̄, which must be N/m for an integer N.
    if total < 1 or abs(plan.mean_records * plan.parties - total) > total * 2.0**-50:
        raise Declined(Reason.SENSITIVITY, "Expected mean records of N/m for an integer N.")
    return PublicFacts(
        parties=plan.parties,
        min_records=plan.min_records,
        total_records=total,
        max_records=records,
        weights="size" if plan.weights == "size" else "uniform",
    )


def _check_covers(plan: ReleasePlan, claim: Claim) -> None:
    """Check that a plan covers the claim, and nothing but the claim.

    Raises:
        Declined: it covers less, or something else.
    """
    primary, *others = plan.guarantees
    noise_point, inside = primary.noise_point, primary.mechanism.is_in_contributions
    require(Reason.UNIT, "the task's unit", claim.unit, primary.unit)
    has_second = claim.party_norm is not None
    require(Reason.UNIT, "a second guarantee, of unit party", has_second, bool(others))
    require(Reason.NEIGHBOURING, "the task's neighbours", claim.neighbouring, primary.neighbouring)
    require(
        Reason.MECHANISM,
        "the task's noise inside the parties",
        claim.inside,
        f"{primary.mechanism.law} at {noise_point}",
        inside == (claim.steps is not None)
        and (noise_point.is_locally_private or not claim.inside),
    )
    require(Reason.ALGORITHM, "the task's λ", claim.lambda_, plan.lambda_)
    require(Reason.SENSITIVITY, "the task's weights", claim.weights, plan.weights)
    require(Reason.SENSITIVITY, "the task's clip_norm", claim.clip_norm, primary.clip_norm)
    claimed, planned = claim.gradient_tolerance, plan.gradient_tolerance
    both = (claimed is None) == (planned is None)
    require(Reason.ALGORITHM, "the task's tolerance", claimed, planned, both)
    if claimed is not None and planned is not None:
        # Not tighter either: whether an optimum can be certified is known for the task's tolerance.
        require_at_least("the task's tolerance", planned, claimed)
        require_at_least("the plan's tolerance", claimed, planned)
    require_at_least("sensitivity", claim.covered_sensitivity, primary.sensitivity)
    require_at_least("lipschitz", claim.lipschitz, plan.lipschitz)
    _check_sampling(plan, claim)
    _check_objective(plan, claim)
    if claim.steps is not None:
        require(Reason.MECHANISM, "noise inside the party", claim.steps, primary.mechanism)
    else:
        covered = max(claim.covered_sensitivity, primary.sensitivity)
        unit_scale = primary.compute_unit_scale(plan.encoding.scale)
        grid = claim.compute_grid_sensitivity(covered, unit_scale)
        require_at_least("the mechanism's sensitivity", grid, primary.mechanism.sensitivity)
        _check_l1(plan, claim)
    if others:
        _check_second(plan, others[0], claim)
    with decline_errors(Reason.SENSITIVITY, RingTooSmall):
        # A sum that wraps would change by 2^b, while the noise covers only Δ. All m noise shares
        # are inside the ring; the server's noise is added outside it.
        shares = plan.shared_guarantee
        noise_tail = 0.0 if shares is None else shares.compute_noise_tail(TAIL_PROBABILITY)
        plan.encoding.check_capacity(plan.parties, noise_tail)


def _check_l1(plan: ReleasePlan, claim: Claim) -> None:
    """Check that noise scaled to an L1 sensitivity Δ₁ covers the claim's Δ₁.

    Raises:
        Declined: the noise is scaled to Δ₁, but the claim states none or a larger one.
    """
    bound = plan.primary.mechanism.bound_l1
    if bound is None:
        return
    if claim.sensitivity_l1 is None:
        raise Declined(Reason.MECHANISM, "Expected noise by Δ₂: the task states no Δ₁.")
    required = plan.primary.compute_unit_scale(plan.encoding.scale) * claim.sensitivity_l1
    require_at_least("the mechanism's Δ₁", required, bound)


def _check_sampling(plan: ReleasePlan, claim: Claim) -> None:
    """Check that amplification and the number of sums are charged exactly as in the task."""
    for claimed, guarantee in zip(claim.guarantees, plan.guarantees, strict=True):
        sums, noise = claimed.sums, guarantee.mechanism.sampled
        relation = str(claimed.neighbouring)
        expected = sums and (sums.sampling_rate, sums.steps, relation, sums.attendance, sums.hidden)
        got = noise and attrgetter(*_SAMPLING_FIELDS)(noise)
        subject = "the task's sampled sums (rate, steps, relation, attendance, hidden)"
        require(Reason.MECHANISM, subject, expected, got)


def _check_objective(plan: ReleasePlan, claim: Claim) -> None:
    """Check that noise in the objective is charged if, and only if, the task has some."""
    planned, claimed = plan.primary.mechanism.objective, claim.objective
    covers = planned is claimed if planned is None or claimed is None else planned >= claimed
    require(Reason.MECHANISM, "noise in objectives", claimed, planned, covers)


def _check_second(plan: ReleasePlan, second: Guarantee, claim: Claim) -> None:
    """Check that the noise on the sum covers any update of the task's norm. It may be charged."""
    claimed = claim.guarantees[1]
    relation = claimed.unit, claimed.neighbouring
    got = second.unit, second.neighbouring
    require(Reason.NEIGHBOURING, "the second guarantee", relation, got)
    on_sum = second in plan.sum_guarantees and not second.mechanism.is_in_contributions
    point = second.noise_point
    require(Reason.MECHANISM, "the second's noise", "on a sum of updates", point, on_sum)
    require_at_least("the update's norm", claimed.clip_norm or 0.0, second.clip_norm or 0.0)
    require_at_least("the party's sensitivity", claimed.covered_sensitivity, second.sensitivity)
    sensitivity = max(claimed.covered_sensitivity, second.sensitivity)
    unit_scale = second.compute_unit_scale(plan.encoding.scale)
    grid = claim.compute_grid_sensitivity(sensitivity, unit_scale)
    require_at_least("the sensitivity of the noise on the sum", grid, second.mechanism.sensitivity)
