"""Plan a release from an algorithm's claim: grid, ring and noise, before the run touches anything.

One planner plans every release. A claim requests guarantees (`Claim.guarantees`): for a record, for
a party, or for both. Noise on the sum is calibrated for the *sum* of the encoded contributions. A
change of the guarantee's unit moves it by at most Δ_grid = 2^s·Δ + √d grid units (2^s·Δ if
contributions are on that grid already), however many parties survive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from parley.client.algorithms.base import Claim
from parley.client.contract.guarantee import Guarantee
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.ring_noise_tail import TAIL_PROBABILITY, compute_noise_tail
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import PrivacyEvent
from parley.privacy.accounting.threat_model import PARTY_NOISE_POINT, NoisePoint, Unit
from parley.privacy.calibration.noise_calibration import CalibrationError, compute_stated_delta
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.noise_shares import SHARED_LAWS, Shares
from parley.privacy.sampling.inversion import LARGEST_SCALE, SMALLEST_SCALE
from parley.secure_agg.encoding import FixedPoint, RingTooSmall
from parley.secure_agg.grid_selection import choose_grid
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.planning.noise_scale import (
    NoiseScaling,
    calibrate_noise,
    choose_largest_noise,
    split_into_shares,
)

_OWN_RING_BITS = 64
"""Ring size of a release whose algorithm has its own grid."""

_LIKELY_BITS = 20
"""Grid on which the noise distribution is looked up; which distribution it is depends on no grid.
"""


def check_claim(job: Job, claim: Claim) -> None:
    """Refuse a job that requests other guarantees than the algorithm gives. Raises JobError."""
    units = [each.unit for each in claim.guarantees]
    for key, asked, given in (
        ("parties.weights", job.parties.weights, claim.weights),
        ("privacy.unit", job.privacy.unit, "both" if len(units) > 1 else str(units[0])),
        ("privacy.neighbouring", job.privacy.neighbouring, str(claim.neighbouring)),
    ):
        if asked != given:
            raise JobError(
                f"Expected {key} = {given!r}, for which {job.algorithm.kind} is proved, got "
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
    noise: NoiseScaling | None = None,
) -> ReleasePlan:
    """Return the plan of a release for a claim.

    Args:
        noise: of its primary guarantee, if that is not calibrated to the unit's whole budget.

    Raises JobError, CalibrationError, RingTooSmall.
    """
    noises = {each.unit: calibrate_noise(job, each) for each in claim.guarantees}
    if noise is not None:
        noises[claim.unit] = noise
    mean_records = federation.total_records / federation.parties
    if job.privacy.has_private_sizes:  # The plan knows one public number.
        mean_records = float(federation.min_records)
    weight = federation.max_records / mean_records if claim.weights == "size" else 1.0
    release = _ReleaseDraft(
        job=job, claim=claim, parties=federation.parties, bound=claim.bound * weight, noises=noises
    )
    encoding, guarantees = release.fit_encoding()
    _check_one_noise(job, guarantees)
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
        guarantees=_assign_charges(job, guarantees),
        blocks=tuple(job.data.blocks),
    )


def _check_one_noise(job: Job, guarantees: Sequence[Guarantee]) -> None:
    """Refuse noise in shares if two units need different noise: each share is added once."""
    shared = [guarantee for guarantee in guarantees if guarantee.shares is not None]
    if len({(each.mechanism.law, each.mechanism.scale, each.shares) for each in shared}) > 1:
        raise JobError(
            f"Expected privacy.noise-point = 'server' with privacy.unit = {job.privacy.unit!r}, "
            "because the two guarantees need different noise here, got "
            f"{job.privacy.noise_point!r}. Use `--set privacy.noise-point=server`, or one unit: "
            "`--unit record` or `--unit party`."
        )


@dataclass(frozen=True, kw_only=True)
class _ReleaseDraft:
    """A release whose grid is not chosen yet.

    Attributes:
        noises: how the noise of each unit's guarantee is scaled.
    """

    job: Job
    claim: Claim
    parties: int
    bound: float
    noises: Mapping[Unit, NoiseScaling]

    @property
    def ring_guarantees(self) -> tuple[Claim, ...]:
        """Guarantees with noise on the sum, or on contributions; the ring keeps room for it."""
        return tuple(each for each in self.claim.guarantees if each.steps is None)

    @property
    def rounds_after_noise(self) -> bool:
        """Whether rounding to the ring follows the noise, and costs no sensitivity."""
        noises = [self.build_noise(each, _LIKELY_BITS) for each in self.ring_guarantees]
        return any(
            shares is not None and SHARED_LAWS[mechanism.law].rounded_after
            for mechanism, shares in noises
        )

    def get_noise_point(self, claimed: Claim) -> NoisePoint:
        """Return where a guarantee's noise is added: inside the parties, or at the job's noise
        point.
        """
        return PARTY_NOISE_POINT if claimed.inside else self.job.privacy.point

    def build_mechanism(self, claimed: Claim, scale_bits: int) -> Mechanism:
        """Return the noise of a guarantee on a grid of 2^-scale_bits."""
        claim = self.claim

        def own(each: Claim) -> Mechanism:
            return self.noises[each.unit].build(
                claim.compute_grid_sensitivity(each.covered_sensitivity, 2.0**scale_bits)
            )

        if claim.sums is None:
            return own(claimed)
        return choose_largest_noise(own(claimed), [own(each) for each in self.claim.guarantees])

    def build_noise(self, claimed: Claim, scale_bits: int) -> tuple[Mechanism, Shares | None]:
        """Return the noise of a guarantee, and its shares if it is not drawn at once."""
        if claimed.steps is not None or not self.get_noise_point(claimed).in_contributions:
            return self.build_mechanism(claimed, scale_bits), None
        fineness = math.sqrt(claimed.dimension) / claimed.covered_sensitivity
        return split_into_shares(
            self.job,
            lambda bits: self.build_mechanism(claimed, bits),
            scale_bits=scale_bits,
            parties=self.parties,
            fineness=fineness if claimed.scale_bits is None else None,
        )

    def compute_tail(self, scale_bits: int) -> float:
        """Return the grid units that the ring keeps free for all noise."""
        # With sampled sums, all guarantees are of one noise.
        accounts = self.ring_guarantees if self.claim.sums is None else self.ring_guarantees[:1]
        noises = (self.build_noise(each, scale_bits) for each in accounts)
        return sum(
            compute_noise_tail(mechanism)
            if shares is None
            else shares.compute_tail(mechanism, TAIL_PROBABILITY)
            for mechanism, shares in noises
        )

    def fit_encoding(self) -> tuple[FixedPoint, list[Guarantee]]:
        """Return the grid, and the guarantees on it. Raises JobError, CalibrationError,
        RingTooSmall.
        """
        after = self.rounds_after_noise
        for ring_bits in self._list_rings(after=after):
            try:
                encoding = self._build_encoding(ring_bits, after=after)
                claims = self.claim.guarantees
                return encoding, [self._build_guarantee(each, encoding) for each in claims]
            except ValueError as error:
                # A share below its floor, or no room: the next ring may fit.
                if ring_bits == 32:
                    continue
                if isinstance(error, RingTooSmall | JobError | CalibrationError):
                    raise
                raise JobError(str(error)) from error
        raise AssertionError("unreachable: the last ring returns or raises")

    def _list_rings(self, *, after: bool) -> tuple[int | None, ...]:
        """Return the rings to try; if rounding follows the noise, the smallest with room for it is
        enough.
        """
        chosen = self.job.secure_aggregation.ring_bits
        if after and self.claim.scale_bits is None and chosen == "auto":
            return (32, 64)
        return (None,)

    def _build_encoding(self, ring: int | None, *, after: bool) -> FixedPoint:
        """Return the grid: the algorithm's own, or the finest that the ring holds."""
        settings, claim = self.job.secure_aggregation, self.claim
        if (bits := claim.scale_bits) is not None:
            own = FixedPoint(scale_bits=bits, ring_bits=_OWN_RING_BITS, bound=self.bound)
            own.check_capacity(self.parties, self.compute_tail(bits))
            return own
        return choose_grid(
            bound=self.bound,
            parties=self.parties,
            dimension=claim.dimension,
            sensitivity=None if after else claim.rounding_reference,
            noise_tail=self.compute_tail,
            ring_bits=ring if settings.ring_bits == "auto" else settings.ring_bits,
            scale_bits=None if settings.scale_bits == "auto" else settings.scale_bits,
        )

    def _build_guarantee(self, claimed: Claim, encoding: FixedPoint) -> Guarantee:
        mechanism, shares = self.build_noise(claimed, encoding.scale_bits)
        point = self.get_noise_point(claimed)
        drawn_scale = mechanism.sampler_scale * (1.0 if shares is None else shares.noise_ratio)
        if claimed.steps is None and not SMALLEST_SCALE <= drawn_scale <= LARGEST_SCALE:
            raise RingTooSmall(
                f"Expected noise of 2^-20 to 2^40 grid units, got {drawn_scale:.3g} at "
                f"scale_bits {encoding.scale_bits}. Set another secure-aggregation.scale-bits."
            )
        return Guarantee(
            unit=claimed.unit,
            neighbouring=claimed.neighbouring,
            sensitivity=claimed.covered_sensitivity,
            mechanism=mechanism,
            noise_point=point,
            against=point.adversary,
            delta=compute_stated_delta(mechanism.law, self.job.get_budget(claimed.unit).delta),
            calibration=self.noises[claimed.unit].calibration,
            clip_norm=claimed.clip_norm,
            charges=(claimed.unit,),
            shares=shares,
        )


def _assign_charges(job: Job, guarantees: list[Guarantee]) -> tuple[Guarantee, ...]:
    """Return the guarantees with their charges; a record is charged by the lower of two bounds.

    A guarantee that hides all that a party holds bounds a record's ε too. Both bounds are proved
    for the same releases, the noisy sums, and a party reveals nothing else; so the lower one may be
    charged (privacy.md, section 4). It is chosen once, only from public numbers, for all rounds.
    One bound's curve is composed, never a mixture. Against the server itself only the inner bound
    holds, and a job may request that one.
    """
    sampled = guarantees[0].mechanism.sampled is not None  # two accounts of one noise
    if len(guarantees) == 1 or sampled or job.privacy.record_bound == "inner":
        return tuple(guarantees)
    inner, outer = guarantees

    def cost(event: PrivacyEvent) -> float:
        spent = Composition().add(event, count=job.rounds)
        return spent.compute_lowest_epsilon(job.privacy.delta)[1]

    if not cost(outer.event) < cost(inner.event):
        return (inner, outer)
    return replace(inner, charges=()), replace(outer, charges=(Unit.PARTY, Unit.RECORD))
