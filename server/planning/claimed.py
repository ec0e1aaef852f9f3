"""From an algorithm's claim to its release plan: grid, ring and noise, before anything is touched.

One planner for every release. A claim asks for guarantees (`Claim.guarantees`): of a record, of a
party, or of both. Each has a noise point, which says how its noise is scaled and against whom it
holds: a row of `_POINTS`. Noise on the sum is calibrated for the *sum* of the encoded
contributions: what the guarantee's unit changes moves it by at most Δ_grid = 2^s·Δ + √d grid units,
however many parties survive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from parley.client.algorithms.base import Asked, Claim, Sums
from parley.client.contract.guarantee import Guarantee
from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.events import Event
from parley.privacy.accounting.guarantee import Adversary, Neighbouring, NoisePoint, Unit
from parley.privacy.calibration.calibration import CalibrationError, calibrate, stated_delta
from parley.privacy.mechanisms.objective import ObjectivePerturbation
from parley.privacy.mechanisms.sampled import SampledGaussian
from parley.privacy.mechanisms.table import Mechanism
from parley.privacy.sampling.samplers import LARGEST_SCALE, SMALLEST_SCALE
from parley.secure_agg.encoding import FixedPoint, RingTooSmall
from parley.server.jobs.job import Job, JobError, UnitBudget
from parley.server.planning.federation import Federation
from parley.server.planning.shared import Drawn, cost_of, drawn_in_shares, point_of

__all__ = ["Noise", "check_asked", "mechanism_for", "plan_claim"]

_OWN_RING_BITS = 64
"""Of a release whose algorithm has its own grid."""

_LIKELY_BITS = 20
"""A grid to look at the noise's law on; which law it is depends on no grid."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How the noise of one guarantee is scaled.

    Attributes:
        calibration: its name.
        of: Δ of the sum in grid units → the noise.
        delta: of the budget.
    """

    calibration: str
    of: Callable[[float], Mechanism]
    delta: float


@dataclass(frozen=True, kw_only=True)
class _Point:
    """What a noise point means for a plan.

    Attributes:
        against: whom the guarantee holds against.
        noise: job, what is asked, its budget, d → how it is scaled.
    """

    against: Adversary
    noise: Callable[[Job, Asked, UnitBudget, int], Noise]


def mechanism_for(
    job: Job,
    *,
    sensitivity: float,
    dimension: int,
    budget: UnitBudget | None = None,
    law: str = "",
    calibration: str = "",
    releases: int | None = None,
) -> Mechanism:
    """The job's mechanism for a sensitivity, in whatever unit that is given in.

    Args:
        budget: of the unit that it hides; the primary one's where left out.
        law, calibration: instead of the job's.
        releases: that together cost the budget; None: as many as the job has rounds.

    Raises:
        CalibrationError: no noise of that law gives the budget.
    """
    asked = budget or job.budgets[0]
    return calibrate(
        law=law or job.noise,
        calibration=calibration or job.privacy.calibration,
        epsilon=asked.epsilon,
        delta=asked.delta,
        rounds=releases or job.rounds,
        sensitivity=sensitivity,
        dimension=dimension,
        accepted=job.laws,
        cost=cost_of(job),
    )


def _calibrated(job: Job, asked: Asked, budget: UnitBudget, dimension: int) -> Noise:
    """The job's law, scaled so that all rounds cost the unit's budget, or as the claim says."""
    if asked.sums is not None:
        return _of_sums(job, asked, asked.sums, budget, dimension)
    scaled_to = replace(budget, epsilon=budget.epsilon * asked.epsilon_share)

    def of(sensitivity: float) -> Mechanism:
        return mechanism_for(
            job,
            sensitivity=sensitivity,
            dimension=dimension,
            budget=scaled_to,
            releases=asked.releases,
        )

    return Noise(calibration=job.privacy.calibration, of=of, delta=budget.delta)


def _of_sums(job: Job, asked: Asked, sums: Sums, budget: UnitBudget, dimension: int) -> Noise:
    """Gaussian noise on every sampled sum: as the steps ask for, or as the unit's budget needs."""

    def of(sensitivity: float) -> SampledGaussian:
        # A record's share of a sum is C long; Δ is that of two records under replace-one.
        lengths = 2 if asked.neighbouring is Neighbouring.REPLACE_ONE else 1
        sigma = sums.noise_multiplier * sensitivity / lengths
        if not sigma:
            sigma = calibrate(
                law="gaussian",
                calibration=job.privacy.calibration,
                epsilon=budget.epsilon,
                delta=budget.delta,
                rounds=job.rounds * sums.steps,
                sensitivity=sensitivity,
                dimension=dimension,
                accepted=("gaussian",),
                cost=cost_of(job),
            ).scale
        return SampledGaussian(
            sensitivity=sensitivity,
            dimension=dimension,
            sigma=sigma * (1 + 1e-12),
            sampling_rate=sums.sampling_rate,
            steps=sums.steps,
            neighbouring=str(asked.neighbouring),
        )

    calibration = "pld" if sums.noise_multiplier else job.privacy.calibration
    return Noise(calibration=calibration, of=of, delta=budget.delta)


def _one_noise(wanted: Mechanism, all_of_them: Sequence[Mechanism]) -> Mechanism:
    """The mechanism with the largest noise that any of several accounts of it needs."""
    if wanted.sampled is None:
        return wanted
    return replace(wanted.sampled, sigma=max(each.scale for each in all_of_them))


def _in_party(job: Job, asked: Asked, budget: UnitBudget, dimension: int) -> Noise:
    """The noise of the steps, which was calibrated with them; without any, as on a sum."""
    if asked.objective is not None:
        return _beside_objective(asked, asked.objective, budget, dimension)
    steps = asked.steps
    if steps is None:
        return _calibrated(job, asked, budget, dimension)
    return Noise(calibration="pld", of=lambda _: steps, delta=budget.delta)


def _beside_objective(asked: Asked, objective: float, budget: UnitBudget, dimension: int) -> Noise:
    """Noise on certified optima, for what the noise in their objectives leaves of the budget."""
    left = (budget.epsilon - objective) * (1 - 1e-12)
    if not left > 0:
        raise JobError(f"Expected ε left beside the noise in objectives, got {left:g}.")

    def of(sensitivity: float) -> Mechanism:
        return ObjectivePerturbation(
            sensitivity=sensitivity,
            dimension=dimension,
            epsilon=left,
            objective_epsilon=objective,
        )

    return Noise(calibration="exact", of=of, delta=budget.delta)


_POINTS: dict[NoisePoint, _Point] = {
    NoisePoint.SERVER: _Point(against=Adversary.READERS, noise=_calibrated),
    NoisePoint.SHARE: _Point(against=Adversary.COLLUDERS, noise=_calibrated),
    NoisePoint.PARTY: _Point(against=Adversary.OTHERS, noise=_in_party),
}


def check_asked(job: Job, claim: Claim) -> None:
    """Refuses a job that asks for other guarantees than the algorithm gives.

    Raises:
        JobError: the key, what the algorithm is proved for, and what came.
    """
    units = [each.unit for each in claim.guarantees]
    for key, asked, given in (
        ("parties.weights", job.parties.weights, claim.weights),
        ("privacy.unit", job.privacy.unit, "both" if len(units) > 1 else str(units[0])),
        ("privacy.neighbouring", job.privacy.neighbouring, str(claim.neighbouring)),
    ):
        if asked != given:
            raise JobError(
                f"Expected {key} = {given!r}, which {job.algorithm.kind} is proved for, got "
                f"{asked!r}."
            )


def plan_claim(
    job: Job,
    claim: Claim,
    *,
    algorithm: str,
    federation: Federation,
    run_id: str,
    round_number: int = 1,
    noise: Noise | None = None,
) -> ReleasePlan:
    """The plan of a release that asks for what a claim says.

    Args:
        algorithm: its kind.
        run_id, round_number: of the (first) release.
        noise: of its primary guarantee, where that is not calibrated to the unit's whole budget.

    Raises:
        JobError: a guarantee of a unit that the job has no budget for.
        CalibrationError: the noise asked for cannot give the budget.
        RingTooSmall: no grid fits the ring, with the numbers.
    """
    guaranteed = [
        replace(each, noise_point=point_of(job, each.noise_point)) for each in claim.guarantees
    ]
    noises = {each.unit: _noise(job, claim, each) for each in guaranteed}
    if noise is not None:
        noises[claim.unit] = noise
    # Where records may be added or removed, sizes are private: the plan knows one public number.
    private = claim.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE
    mean_records = federation.total_records / federation.parties
    if private:
        mean_records = float(federation.min_records)
    weight = federation.max_records / mean_records if claim.weights == "size" else 1.0

    def on_grid(asked: Asked, scale_bits: int) -> Drawn:
        def own(each: Asked, bits: int) -> Mechanism:
            grid = 2.0**bits * each.sensitivity + math.sqrt(claim.dimension)
            return noises[each.unit].of(grid)

        def at(bits: int) -> Mechanism:
            if claim.sums is None:
                return own(asked, bits)
            return _one_noise(own(asked, bits), [own(each, bits) for each in guaranteed])

        if asked.noise_point is NoisePoint.SERVER or asked.steps is not None:
            return Drawn(mechanism=at(scale_bits))
        own_grid = claim.scale_bits is not None
        return drawn_in_shares(
            job,
            at,
            scale_bits=scale_bits,
            parties=federation.parties,
            fineness=None if own_grid else math.sqrt(claim.dimension) / asked.sensitivity,
        )

    in_ring = [each for each in guaranteed if each.steps is None]

    def guarantees_on(encoding: FixedPoint) -> list[Guarantee]:
        guarantees = []
        for each in guaranteed:
            drawn, point = on_grid(each, encoding.scale_bits), _POINTS[each.noise_point]
            if each.steps is None:
                _check_drawable(drawn, encoding)
            guarantees.append(
                Guarantee(
                    unit=each.unit,
                    neighbouring=each.neighbouring,
                    sensitivity=each.sensitivity,
                    mechanism=drawn.mechanism,
                    noise_point=each.noise_point,
                    against=point.against,
                    delta=stated_delta(drawn.mechanism.law, noises[each.unit].delta),
                    calibration=noises[each.unit].calibration,
                    clip_norm=each.clip_norm,
                    charges=(each.unit,),
                    shares=drawn.shares,
                )
            )
        return guarantees

    def tail(scale_bits: int) -> float:
        drawn = in_ring if claim.sums is None else in_ring[:1]  # accounts of one noise
        return sum(on_grid(each, scale_bits).tail for each in drawn)

    bound = claim.bound * weight
    after = any(on_grid(each, _LIKELY_BITS).rounds_after for each in in_ring)
    for ring_bits in _rings(job, claim, after=after):
        try:
            encoding = _encoding(
                job, claim, federation.parties, bound=bound, tail=tail, ring=ring_bits, after=after
            )
            guarantees = guarantees_on(encoding)
        except ValueError as error:
            # A share below its floor, or no room: the next ring may have it.
            if ring_bits == 32:
                continue
            if isinstance(error, RingTooSmall | JobError | CalibrationError):
                raise
            raise JobError(str(error)) from error
        break
    return ReleasePlan(
        run_id=run_id,
        round_number=round_number,
        algorithm=algorithm,
        dimension=claim.dimension,
        lipschitz=claim.lipschitz,
        min_records=federation.min_records,
        weights=claim.weights,
        mean_records=mean_records,
        lambda_=claim.lambda_,
        gradient_tolerance=claim.gradient_tolerance,
        encoding=encoding,
        min_survivors=job.min_survivors,
        parties=federation.parties,
        seeded=job.seed is not None,
        guarantees=_charging(job, guarantees),
    )


def _noise(job: Job, claim: Claim, asked: Asked) -> Noise:
    budget = job.budget(asked.unit)
    if budget is None:
        raise JobError(f"Expected a budget for unit {asked.unit} (privacy.unit), got none.")
    return _POINTS[asked.noise_point].noise(job, asked, budget, claim.dimension)


def _rings(job: Job, claim: Claim, *, after: bool) -> tuple[int | None, ...]:
    """Rings to try: where rounding follows the noise, the smallest with room for it will do."""
    if after and claim.scale_bits is None and job.secure_aggregation.ring_bits == "auto":
        return (32, 64)
    return (None,)


def _encoding(
    job: Job,
    claim: Claim,
    parties: int,
    *,
    bound: float,
    tail: Callable[[int], float],
    ring: int | None,
    after: bool,
) -> FixedPoint:
    """The grid: the algorithm's own, or the finest that the ring holds."""
    settings = job.secure_aggregation
    length: float | None = claim.covered if claim.grid_length is None else claim.grid_length
    if claim.scale_bits is not None:
        own = FixedPoint(scale_bits=claim.scale_bits, ring_bits=_OWN_RING_BITS, bound=bound)
        own.check_capacity(parties, tail(claim.scale_bits))
        return own
    return FixedPoint.fit(
        bound=bound,
        parties=parties,
        dimension=claim.dimension,
        sensitivity=None if after else length,
        noise_tail=tail,
        max_inflation=settings.max_inflation,
        ring_bits=ring if settings.ring_bits == "auto" else settings.ring_bits,
        scale_bits=None if settings.scale_bits == "auto" else settings.scale_bits,
    )


def _check_drawable(drawn: Drawn, encoding: FixedPoint) -> None:
    if not SMALLEST_SCALE <= drawn.drawn_scale <= LARGEST_SCALE:
        raise RingTooSmall(
            f"Expected noise of 2^-20 to 2^40 grid units, got {drawn.drawn_scale:.3g} at "
            f"scale_bits {encoding.scale_bits}: choose another secure-aggregation.scale-bits."
        )


def _charging(job: Job, guarantees: list[Guarantee]) -> tuple[Guarantee, ...]:
    """The guarantees with what each is charged to: a record by the lower of two bounds.

    Where one hides all that a party holds, it bounds a record's ε too. Both bounds are proved for
    the same releases, the noisy sums, and nothing of a party is shown beside them; so the lower one
    may be charged (privacy.md, section 4). It is chosen once, from public figures alone, for every
    round: one bound's curve is composed, never a mixture. Against the server itself only the inner
    one holds, and a job may ask for that one.
    """
    sampled = guarantees[0].mechanism.sampled is not None  # two accounts of one noise
    if len(guarantees) == 1 or sampled or job.privacy.record_bound == "inner":
        return tuple(guarantees)
    inner, outer = guarantees

    def cost(event: Event) -> float:
        return Composition.empty().add(event, count=job.rounds).epsilon(job.privacy.delta)[1]

    if not cost(outer.event) < cost(inner.event):
        return (inner, outer)
    return replace(inner, charges=()), replace(outer, charges=(Unit.PARTY, Unit.RECORD))
