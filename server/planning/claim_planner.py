"""From an algorithm's claim to its release plan: grid, ring and noise, before anything is touched.

One planner for every release. A claim asks for guarantees (`Claim.guarantees`): of a record, of a
party, or of both. Noise on the sum is calibrated for the *sum* of the encoded contributions: what
the guarantee's unit changes moves it by at most Δ_grid = 2^s·Δ + √d grid units (2^s·Δ, where
contributions are on that grid already), however many parties survive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from parley.client.algorithms.base import Asked, Claim
from parley.client.contract.guarantee import Guarantee
from parley.client.contract.release_plan import ReleasePlan
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import Event
from parley.privacy.accounting.threat_model import INSIDE, NoisePoint, Unit
from parley.privacy.calibration.noise_calibration import CalibrationError, stated_delta
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.sampling.inversion import LARGEST_SCALE, SMALLEST_SCALE
from parley.secure_agg.encoding import FixedPoint, RingTooSmall
from parley.secure_agg.grid_selection import fitted
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.planning.noise_scale import Drawn, Noise, drawn_in_shares, noise_of, one_noise

_OWN_RING_BITS = 64
"""Of a release whose algorithm has its own grid."""

_LIKELY_BITS = 20
"""A grid to look at the noise's law on; which law it is depends on no grid."""


def check_asked(job: Job, claim: Claim) -> None:
    """Refuses a job that asks for other guarantees than the algorithm gives. Raises JobError."""
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
        noise: of its primary guarantee, where that is not calibrated to the unit's whole budget.

    Raises JobError, CalibrationError, RingTooSmall.
    """
    noises = {each.unit: noise_of(job, each, claim.dimension) for each in claim.guarantees}
    if noise is not None:
        noises[claim.unit] = noise
    mean_records = federation.total_records / federation.parties
    if job.privacy.private_sizes:  # the plan knows one public number
        mean_records = float(federation.min_records)
    weight = federation.max_records / mean_records if claim.weights == "size" else 1.0
    release = _Release(
        job=job,
        claim=claim,
        parties=federation.parties,
        bound=claim.bound * weight,
        noises=noises,
    )
    encoding, guarantees = release.fitted()
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
        blocks=tuple(job.data.blocks),
    )


@dataclass(frozen=True, kw_only=True)
class _Release:
    """A release whose grid is still to be chosen.

    Attributes:
        noises: how the noise of each unit's guarantee is scaled.
    """

    job: Job
    claim: Claim
    parties: int
    bound: float
    noises: Mapping[Unit, Noise]

    @property
    def in_ring(self) -> tuple[Asked, ...]:
        """Those whose noise is on the sum, or on contributions: the ring keeps room for it."""
        return tuple(each for each in self.claim.guarantees if each.steps is None)

    @property
    def after(self) -> bool:
        """Whether rounding to the ring follows the noise."""
        return any(self.drawn(each, _LIKELY_BITS).rounds_after for each in self.in_ring)

    def point(self, asked: Asked) -> NoisePoint:
        """Where a guarantee's noise is added: inside the parties, or where the job says."""
        return INSIDE if asked.inside else self.job.privacy.point

    def mechanism(self, asked: Asked, scale_bits: int) -> Mechanism:
        """The noise of a guarantee on a grid of 2^-scale_bits."""
        claim = self.claim

        def own(each: Asked) -> Mechanism:
            return self.noises[each.unit].of(claim.on_grid(each.sensitivity, 2.0**scale_bits))

        if claim.sums is None:
            return own(asked)
        return one_noise(own(asked), [own(each) for each in self.claim.guarantees])

    def drawn(self, asked: Asked, scale_bits: int) -> Drawn:
        """The same as it is drawn: at once, or in shares."""
        if asked.steps is not None or not self.point(asked).in_contributions:
            return Drawn(mechanism=self.mechanism(asked, scale_bits))
        own_grid = self.claim.scale_bits is not None
        return drawn_in_shares(
            self.job,
            lambda bits: self.mechanism(asked, bits),
            scale_bits=scale_bits,
            parties=self.parties,
            fineness=None if own_grid else math.sqrt(self.claim.dimension) / asked.sensitivity,
        )

    def tail(self, scale_bits: int) -> float:
        """Grid units that the ring keeps free for all noise."""
        accounts = self.in_ring if self.claim.sums is None else self.in_ring[:1]  # of one noise
        return sum(self.drawn(each, scale_bits).tail for each in accounts)

    def fitted(self) -> tuple[FixedPoint, list[Guarantee]]:
        """The grid, and the guarantees on it. Raises JobError, CalibrationError, RingTooSmall."""
        after = self.after
        for ring_bits in self._rings(after=after):
            try:
                encoding = self._encoding(ring_bits, after=after)
                return encoding, [self._guarantee(each, encoding) for each in self.claim.guarantees]
            except ValueError as error:
                # A share below its floor, or no room: the next ring may have it.
                if ring_bits == 32:
                    continue
                if isinstance(error, RingTooSmall | JobError | CalibrationError):
                    raise
                raise JobError(str(error)) from error
        raise AssertionError("unreachable: the last ring returns or raises")

    def _rings(self, *, after: bool) -> tuple[int | None, ...]:
        """Rings to try: where rounding follows the noise, the smallest with room for it will do."""
        chosen = self.job.secure_aggregation.ring_bits
        if after and self.claim.scale_bits is None and chosen == "auto":
            return (32, 64)
        return (None,)

    def _encoding(self, ring: int | None, *, after: bool) -> FixedPoint:
        """The grid: the algorithm's own, or the finest that the ring holds."""
        settings, claim = self.job.secure_aggregation, self.claim
        if claim.scale_bits is not None:
            own = FixedPoint(
                scale_bits=claim.scale_bits, ring_bits=_OWN_RING_BITS, bound=self.bound
            )
            own.check_capacity(self.parties, self.tail(claim.scale_bits))
            return own
        return fitted(
            bound=self.bound,
            parties=self.parties,
            dimension=claim.dimension,
            sensitivity=None if after else claim.length,
            noise_tail=self.tail,
            ring_bits=ring if settings.ring_bits == "auto" else settings.ring_bits,
            scale_bits=None if settings.scale_bits == "auto" else settings.scale_bits,
        )

    def _guarantee(self, asked: Asked, encoding: FixedPoint) -> Guarantee:
        drawn, noise = self.drawn(asked, encoding.scale_bits), self.noises[asked.unit]
        point = self.point(asked)
        drawable = SMALLEST_SCALE <= drawn.drawn_scale <= LARGEST_SCALE
        if asked.steps is None and not drawable:
            raise RingTooSmall(
                f"Expected noise of 2^-20 to 2^40 grid units, got {drawn.drawn_scale:.3g} at "
                f"scale_bits {encoding.scale_bits}: choose another secure-aggregation.scale-bits."
            )
        return Guarantee(
            unit=asked.unit,
            neighbouring=asked.neighbouring,
            sensitivity=asked.sensitivity,
            mechanism=drawn.mechanism,
            noise_point=point,
            against=point.adversary,
            delta=stated_delta(drawn.mechanism.law, noise.delta),
            calibration=noise.calibration,
            clip_norm=asked.clip_norm,
            charges=(asked.unit,),
            shares=drawn.shares,
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
