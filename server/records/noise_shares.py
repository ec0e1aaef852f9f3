"""How a plan's noise is split among the parties, as a summary or an outlook tells it."""

from __future__ import annotations

from parley.client.contract.guarantee import Guarantee
from parley.client.contract.plan import ReleasePlan
from parley.server.jobs.job import Job
from parley.server.records.summary import NoiseShares

__all__ = ["shares_of"]


def shares_of(
    job: Job, plan: ReleasePlan, guarantee: Guarantee, *, engine: str
) -> NoiseShares | None:
    """The shares of one guarantee's noise; None where it is not split."""
    shares = guarantee.shares
    if shares is None:
        return None
    alone = engine == "fast" and job.secure_aggregation.backend == "ideal"
    return NoiseShares(
        parties=shares.parties,
        honest=shares.honest,
        colluders=shares.colluders,
        inflation=shares.inflation,
        scale=shares.scale / guarantee.units(plan.encoding.scale),
        dealt=alone and job.run.deals and not shares.fine_bits,
    )
