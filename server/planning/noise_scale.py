"""Scale the noise of a guarantee by what the claim requests.

The scaling is a function from Δ of the sum, in grid units, to the mechanism, because the grid is
chosen later (`parley.server.planning.release_planner`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from parley.client.algorithms.base import Claim
from parley.module_loading.plugin_table import load_attribute
from parley.privacy.accounting.account_admission import AccountCertificate
from parley.privacy.accounting.privacy_events import PrivacyEvent
from parley.privacy.calibration.noise_calibration import calibrate
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.noise_shares import SHARED_LAWS, Shares, build_shares_event
from parley.safe_io.error_translation import translate_errors
from parley.server.jobs.job import Job
from parley.server.jobs.privacy_section import UnitBudget
from parley.server.jobs.section_base import JobError

_FINE_BITS = 12
_MAX_FINE_BITS = 60
_BY_RHO = {"exact": "cks20", "as-printed": "cks20"}


@dataclass(frozen=True, kw_only=True)
class NoiseScaling:
    """How the noise of one guarantee is scaled.

    Attributes:
        build: Δ of the sum in grid units → the noise.
    """

    calibration: str
    build: Callable[[float], Mechanism]


def _build_cost(job: Job) -> Callable[[Mechanism], PrivacyEvent]:
    """Return the function from a mechanism to its cost on the sum, for the job's noise point."""

    def cost(mechanism: Mechanism) -> PrivacyEvent:
        if not job.privacy.point.in_contributions:
            return mechanism.event()
        # Parts of a noise, or all of it from every party: the number of samplers is the same.
        with translate_errors(ValueError, JobError):
            return build_shares_event(mechanism, job.parties.count)

    return cost


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
) -> tuple[Mechanism, Shares]:
    """Return a release's noise, in fine units, and its shares on a ring grid of 2^−scale_bits.

    The shares are not checked: most grids are tried and not used.

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
    with translate_errors(ValueError, JobError):
        least, colluders = job.privacy.point.split(least=job.min_survivors, colluders=job.corrupt)
        shares = Shares.split(
            mechanism, parties=parties, least=least, colluders=colluders, fine_bits=more
        )
    return mechanism, shares


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
        cost=_build_cost(job),
    )


def calibrate_to_budget(job: Job, claimed: Claim, budget: UnitBudget) -> NoiseScaling:
    """Scale the job's distribution so that all releases of the claim cost the budget, or as the
    claim requests.
    """
    if claimed.sums is not None:
        return _load_calibration("calibrate_sums")(job, claimed, claimed.sums, budget)
    scaled_to = replace(budget, epsilon=budget.epsilon * claimed.epsilon_share)

    def of(sensitivity: float) -> Mechanism:
        return calibrate_mechanism(
            job,
            sensitivity=sensitivity,
            dimension=claimed.dimension,
            budget=scaled_to,
            releases=claimed.releases,
        )

    return NoiseScaling(calibration=choose_calibration(job), build=of)


def choose_largest_noise(mechanism: Mechanism, candidates: Sequence[Mechanism]) -> Mechanism:
    """Return the mechanism with the largest noise that any of several accounts of it needs."""
    if mechanism.sampled is None:
        return mechanism
    return replace(mechanism.sampled, sigma=max(each.scale for each in candidates))


def calibrate_noise(job: Job, claimed: Claim) -> NoiseScaling:
    """Return how the noise of a guarantee is scaled for the job's budget of its unit.

    Raises JobError.
    """
    budget = job.get_budget(claimed.unit)
    steps = claimed.steps
    if steps is not None:  # Calibrated together with the steps.
        return NoiseScaling(calibration="pld", build=lambda _: steps)
    if claimed.objective is not None:
        after = _load_calibration("calibrate_after_objective")
        return after(claimed.objective, budget, claimed.dimension)
    return calibrate_to_budget(job, claimed, budget)


def _load_calibration(name: str) -> Callable[..., NoiseScaling]:
    """Return a function of `sampled_noise`, which most jobs do not import."""
    place = f"parley.server.planning.sampled_noise:{name}"
    calibration: Callable[..., NoiseScaling] = load_attribute(place)
    return calibration
