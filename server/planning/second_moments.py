"""The release ahead of the rounds that private principal components are made of.

Release 0 is the noisy sum of second moments (`parley.client.algorithms.second_moments`), through
the same secure sum as every other release, whoever the parties are. Parties that drop out or
decline are missing from the sum, which is noisier for it, never less private.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from parley.client.algorithms.second_moments import SCALE_BITS, SecondMoments, Triangle
from parley.client.contract.grid import noise_tail
from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.guarantee import Adversary, Neighbouring, NoisePoint
from parley.privacy.accounting.rounding import quotient_up
from parley.privacy.accounting.zcdp import gaussian_mu
from parley.privacy.mechanisms.table import Gaussian
from parley.secure_agg.encoding import FixedPoint
from parley.server.jobs.job import Job
from parley.server.planning.federation import Federation

__all__ = ["ReleaseAhead", "components_mu", "release_ahead"]

_RING_BITS = 64

_MOST_RECORDS = 2.0**24
"""Records of a party beyond which its sum is clamped, where its own number of them is private."""


@dataclass(frozen=True, kw_only=True)
class ReleaseAhead:
    """Release 0.

    Attributes:
        moments: what is summed.
        plan: how.
    """

    moments: SecondMoments
    plan: ReleasePlan


def components_mu(job: Job) -> float:
    """μ of the components' release; 0 where there is none."""
    if job.model.kind != "pca-mlp" or job.model.pca != "private":
        return 0.0
    whole = gaussian_mu(job.privacy.epsilon, job.privacy.delta)
    return math.sqrt(job.model.pca_share) * whole


def release_ahead(
    job: Job, *, features: int, federation: Federation, rounds: ReleasePlan
) -> ReleaseAhead | None:
    """The release ahead of the first round; None where the job has none.

    Args:
        features: p, of the rows before they are projected.
        federation: the public facts about the parties.
        rounds: the plan of the rounds, which it shares parties and relation with.

    Raises:
        RingTooSmall: the largest sum does not fit.
    """
    if not components_mu(job):
        return None
    moments = _moments(job, features, federation)
    mechanism = _mechanism(job, moments)
    encoding = FixedPoint(
        scale_bits=SCALE_BITS, ring_bits=_RING_BITS, bound=moments.bound * (1 + 1e-9)
    )
    encoding.check_capacity(rounds.parties, noise_tail(mechanism))
    plan = replace(
        rounds.with_primary(
            sensitivity=_sensitivity(moments),
            mechanism=mechanism,
            noise_point=NoisePoint.SERVER,
            against=Adversary.ANALYST,
            calibration="exact",
            clip_norm=None,
        ),
        round_number=0,
        algorithm=moments.kind,
        dimension=moments.model.dimension,
        lipschitz=moments.claim().lipschitz,
        weights="uniform",
        encoding=encoding,
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


def _sensitivity(moments: SecondMoments) -> float:
    return moments.claim().covered


def _mechanism(job: Job, moments: SecondMoments) -> Gaussian:
    """The noise on the triangle, in grid units."""
    dimension = moments.model.dimension
    grid = 2.0**SCALE_BITS * _sensitivity(moments) + math.sqrt(dimension)
    # Rounded so that Δ/σ is not above the μ that the steps' noise was calibrated beside.
    sigma = quotient_up(grid, components_mu(job) * (1 - 1e-12))
    return Gaussian(sensitivity=grid, sigma=sigma, dimension=dimension)
