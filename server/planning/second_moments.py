"""The release ahead of the rounds that private principal components are made of.

Release 0 is the noisy sum of second moments (`parley.client.algorithms.second_moments`), through
the same secure sum as every other release, whoever the parties are. Parties that drop out or
decline are missing from the sum, which is noisier for it, never less private.
"""

from __future__ import annotations

from dataclasses import dataclass

from parley.client.algorithms.second_moments import SecondMoments, Triangle
from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.accounting.rounding import quotient_up
from parley.privacy.mechanisms.gaussian import Gaussian
from parley.server.jobs.federation import Federation
from parley.server.jobs.job import Job
from parley.server.jobs.networks import components_mu
from parley.server.planning.claimed import plan_claim
from parley.server.planning.scaled_noise import Noise

_MOST_RECORDS = 2.0**24
"""Records of a party beyond which its sum is clamped, where its own number of them is private."""


@dataclass(frozen=True, kw_only=True)
class ReleaseAhead:
    """Release 0."""

    moments: SecondMoments
    plan: ReleasePlan


def release_ahead(
    job: Job, *, features: int, federation: Federation, run_id: str = "plan"
) -> ReleaseAhead | None:
    """The release ahead of the first round; None where the job has none. Raises RingTooSmall.

    Args:
        features: p, of the rows before they are projected.
    """
    if not components_mu(job):
        return None
    moments = _moments(job, features, federation)
    plan = plan_claim(
        job,
        moments.claim(),
        algorithm=moments.kind,
        federation=federation,
        run_id=run_id,
        round_number=0,
        noise=Noise(
            calibration="exact",
            of=lambda sensitivity: _noise(job, moments, sensitivity),
            delta=job.privacy.delta,
        ),
    )
    return ReleaseAhead(moments=moments, plan=plan)


def _moments(job: Job, features: int, federation: Federation) -> SecondMoments:
    relation = Neighbouring(job.privacy.neighbouring)
    private = relation is Neighbouring.ADD_OR_REMOVE_ONE
    return SecondMoments(
        model=Triangle(features=features),
        neighbouring=relation,
        bound=_MOST_RECORDS if private else float(federation.max_records),
    )


def _noise(job: Job, moments: SecondMoments, sensitivity: float) -> Gaussian:
    """The noise on the triangle, in grid units: its share of the budget, in μ²."""
    # Rounded so that Δ/σ is not above the μ that the steps' noise was calibrated beside.
    sigma = quotient_up(sensitivity, components_mu(job) * (1 - 1e-12))
    return Gaussian(sensitivity=sensitivity, sigma=sigma, dimension=moments.model.dimension)
