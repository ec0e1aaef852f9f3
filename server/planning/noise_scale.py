"""Scale the noise of a guarantee by what the claim requests.

The scaling is a function from Δ of the sum, in grid units, to the mechanism, because the grid is
chosen later (`parley.server.planning.claim_planner`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from parley.client.algorithms.base import GuaranteeClaim, SampledSums
from parley.client.contract.grid_rule import TAIL_PROBABILITY, compute_noise_tail
from parley.privacy.accounting.account_certificates import AccountCertificate
from parley.privacy.accounting.privacy_events import PrivacyEvent
from parley.privacy.calibration.noise_calibration import calibrate
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.noise_shares import SHARED_LAWS, Shares, build_shares_event
from parley.privacy.mechanisms.registry import MECHANISM_CLASSES
from parley.server.jobs.job import Job
from parley.server.jobs.network_algorithms import calibrate_noise_multiplier
from parley.server.jobs.privacy import UnitBudget
from parley.server.jobs.section_base import JobError

_FINE_BITS = 12
_MAX_FINE_BITS = 60


@dataclass(frozen=True, kw_only=True)
class GuaranteeNoise:
    """The noise of one guarantee on a ring's grid.

    Attributes:
        mechanism: in grid units, or in the shares' fine units.
        shares: how it is split; None if it is not.
    """

    mechanism: Mechanism
    shares: Shares | None = None

    @property
    def tail(self) -> float:
        """Grid units that the ring keeps free for the noise."""
        if self.shares is None:
            return compute_noise_tail(self.mechanism)
        return self.shares.compute_tail(self.mechanism, TAIL_PROBABILITY)

    @property
    def is_rounded_after(self) -> bool:
        """Whether rounding to the ring follows the noise, and costs no sensitivity."""
        return self.shares is not None and SHARED_LAWS[self.mechanism.law].rounded_after

    @property
    def drawn_scale(self) -> float:
        """Largest scale of what is drawn, in units of the mechanism."""
        if self.shares is None:
            return self.mechanism.sampler_scale
        return self.mechanism.sampler_scale * self.shares.noise_ratio


def build_cost(job: Job) -> Callable[[Mechanism], PrivacyEvent]:
    """Return the function from a mechanism to its cost on the sum, for the job's noise point."""

    def cost(mechanism: Mechanism) -> PrivacyEvent:
        if not job.privacy.point.in_contributions:
            return mechanism.event()
        # Parts of a noise, or all of it from every party: the number of samplers is the same.
        try:
            return build_shares_event(mechanism, job.parties.count)
        except ValueError as error:
            raise JobError(str(error)) from error

    return cost


_BY_RHO = {"exact": "cks20", "as-printed": "cks20"}


def choose_calibration(job: Job) -> str:
    """Return the calibration of Gaussian noise, no lower than what the data's account charges."""
    asked = job.privacy.calibration
    by_rho = job.privacy.chosen_certificate is AccountCertificate.ZCDP
    return _BY_RHO.get(asked, asked) if by_rho else asked


def split_into_shares(
    job: Job,
    mechanism_at: Callable[[int], Mechanism],
    *,
    scale_bits: int,
    parties: int,
    fineness: float | None,
) -> GuaranteeNoise:
    """Return the shares of a release's noise on a ring grid of 2^−scale_bits, of any size.

    Args:
        mechanism_at: bits of a grid → the noise for it, in its units.
        fineness: √d/Δ, compared with which rounding before the noise is small; None: the ring's
            grid is the algorithm's own.

    Raises JobError.
    """
    mechanism, more = mechanism_at(scale_bits), 0
    law = SHARED_LAWS.get(mechanism.law)
    if law is not None and law.rounded_after and fineness is not None:
        finer = math.ceil(_FINE_BITS + math.log2(fineness)) - scale_bits
        more = min(max(0, finer), _MAX_FINE_BITS)  # A grid this coarse will not be kept.
        mechanism = mechanism_at(scale_bits + more)
    try:
        least, colluders = job.privacy.point.split(least=job.min_survivors, colluders=job.corrupt)
        shares = Shares.split(
            mechanism,
            parties=parties,
            least=least,
            colluders=colluders,
            fine_bits=more,
        )
    except ValueError as error:
        raise JobError(str(error)) from error
    return GuaranteeNoise(mechanism=mechanism, shares=shares)


@dataclass(frozen=True, kw_only=True)
class NoiseScaling:
    """How the noise of one guarantee is scaled.

    Attributes:
        build: Δ of the sum in grid units → the noise.
    """

    calibration: str
    build: Callable[[float], Mechanism]
    delta: float


def calibrate_mechanism(
    job: Job,
    *,
    sensitivity: float,
    dimension: int,
    budget: UnitBudget | None = None,
    law: str = "",
    calibration: str = "",
    releases: int | None = None,
) -> Mechanism:
    """Return the job's mechanism for a sensitivity, in the sensitivity's unit.

    Args:
        budget: of the unit that it hides; the primary unit's by default.
        releases: number of releases that share the budget; None: the job's rounds.

    Raises CalibrationError.
    """
    asked = budget or job.budgets[0]
    return calibrate(
        law=law or job.noise,
        calibration=calibration or choose_calibration(job),
        epsilon=asked.epsilon,
        delta=asked.noise_delta,
        rounds=releases or job.rounds,
        sensitivity=sensitivity,
        dimension=dimension,
        cost=build_cost(job),
    )


def _calibrate_to_budget(
    job: Job, claimed: GuaranteeClaim, budget: UnitBudget, dimension: int
) -> NoiseScaling:
    """Scale the job's distribution so that all rounds cost the unit's budget, or as the claim
    requests.
    """
    if claimed.sums is not None:
        return _calibrate_sums(job, claimed, claimed.sums, budget, dimension)
    scaled_to = replace(budget, epsilon=budget.epsilon * claimed.epsilon_share)

    def of(sensitivity: float) -> Mechanism:
        return calibrate_mechanism(
            job,
            sensitivity=sensitivity,
            dimension=dimension,
            budget=scaled_to,
            releases=claimed.releases,
        )

    return NoiseScaling(calibration=choose_calibration(job), build=of, delta=budget.delta)


def _calibrate_sums(
    job: Job, claimed: GuaranteeClaim, sums: SampledSums, budget: UnitBudget, dimension: int
) -> NoiseScaling:
    """Scale Gaussian noise on every sampled sum, as the steps request or as the unit's budget
    needs.
    """
    multiplier = sums.noise_multiplier
    if not multiplier and min(sums.sampling_rate, sums.visible_rate) < 1:  # of whole parties
        multiplier = calibrate_noise_multiplier(
            job,
            rate=sums.sampling_rate,
            steps=sums.steps * job.rounds,
            budget=budget,
            dimension=dimension,
            neighbouring=claimed.neighbouring,
            probability=sums.visible_rate,
        )

    def of(sensitivity: float) -> Mechanism:
        # A record's part of a sum has length C, and Δ is `radii` times C.
        sigma = multiplier * sensitivity / claimed.neighbouring.radii
        if not sigma:
            sigma = calibrate(
                law="gaussian",
                calibration=choose_calibration(job),
                epsilon=budget.epsilon,
                delta=budget.noise_delta,
                rounds=job.rounds * sums.steps,
                sensitivity=sensitivity,
                dimension=dimension,
                cost=build_cost(job),
            ).scale
        mechanism: Mechanism = MECHANISM_CLASSES["sampled-gaussian"](
            sensitivity=sensitivity,
            dimension=dimension,
            sigma=sigma * (1 + 1e-12),
            sampling_rate=sums.sampling_rate,
            steps=sums.steps,
            neighbouring=str(claimed.neighbouring),
            attendance=sums.attendance,
            hidden=sums.hidden,
        )
        return mechanism

    calibration = "pld" if multiplier else choose_calibration(job)
    return NoiseScaling(calibration=calibration, build=of, delta=budget.delta)


def choose_largest_noise(mechanism: Mechanism, candidates: Sequence[Mechanism]) -> Mechanism:
    """Return the mechanism with the largest noise that any of several accounts of it needs."""
    if mechanism.sampled is None:
        return mechanism
    return replace(mechanism.sampled, sigma=max(each.scale for each in candidates))


def _calibrate_after_objective(
    objective: float, budget: UnitBudget, dimension: int
) -> NoiseScaling:
    """Scale noise on certified optima to the budget left by the noise in their objectives."""
    left = (budget.epsilon - objective) * (1 - 1e-12)
    if not left > 0:
        raise JobError(f"Expected ε left beside the noise in objectives, got {left:g}.")

    def of(sensitivity: float) -> Mechanism:
        mechanism: Mechanism = MECHANISM_CLASSES["objective-perturbation"](
            sensitivity=sensitivity,
            dimension=dimension,
            epsilon=left,
            objective_epsilon=objective,
        )
        return mechanism

    return NoiseScaling(calibration="exact", build=of, delta=budget.delta)


def calibrate_noise(job: Job, claimed: GuaranteeClaim, dimension: int) -> NoiseScaling:
    """Return how the noise of a guarantee is scaled for the job's budget of its unit.

    Raises JobError.
    """
    budget = job.find_budget(claimed.unit)
    if budget is None:
        raise JobError(f"Expected a budget for unit {claimed.unit} (privacy.unit), got none.")
    steps = claimed.steps
    if steps is not None:  # Calibrated together with the steps.
        return NoiseScaling(calibration="pld", build=lambda _: steps, delta=budget.delta)
    if claimed.objective is not None:
        return _calibrate_after_objective(claimed.objective, budget, dimension)
    return _calibrate_to_budget(job, claimed, budget, dimension)
