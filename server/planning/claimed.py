"""From an algorithm's claim to its release plan: grid, ring and noise, before anything is touched.

The noise is calibrated for the *sum* of the encoded contributions: what the claim's unit changes
moves it by at most Δ_grid = 2^s·Δ + √d grid units, however many parties survive.
"""

from __future__ import annotations

import math

from parley.client.algorithms.base import Claim, FederatedAlgorithm
from parley.client.contract.grid import noise_tail
from parley.client.contract.guarantee import Guarantee
from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.guarantee import Adversary, Neighbouring, NoisePoint
from parley.privacy.calibration.calibration import calibrate, stated_delta
from parley.privacy.mechanisms.table import Mechanism
from parley.privacy.sampling.samplers import LARGEST_SCALE, SMALLEST_SCALE
from parley.secure_agg.encoding import FixedPoint, RingTooSmall
from parley.server.jobs.job import Job, JobError
from parley.server.planning.federation import Federation

__all__ = ["mechanism_for", "plan_claimed"]


def mechanism_for(job: Job, *, sensitivity: float, dimension: int, **changes: str) -> Mechanism:
    """The job's mechanism for a sensitivity, in whatever unit that is given in.

    Raises:
        CalibrationError: no noise of that law gives the budget.
    """
    return calibrate(
        law=changes.get("law", job.noise),
        calibration=changes.get("calibration", job.privacy.calibration),
        epsilon=job.privacy.epsilon,
        delta=job.privacy.delta,
        rounds=job.rounds,
        sensitivity=sensitivity,
        dimension=dimension,
    )


def plan_claimed(
    job: Job, algorithm: FederatedAlgorithm, federation: Federation, run_id: str
) -> ReleasePlan:
    """The plan of every round of an algorithm whose noise is added to the sum.

    Raises:
        JobError: nothing can be claimed for such parties.
        CalibrationError: the noise asked for cannot give the budget.
        RingTooSmall: no grid fits the ring, with the numbers.
    """
    try:
        claim = algorithm.claim(federation.facts(job.parties.weights))
    except ValueError as error:
        raise JobError(str(error)) from error
    _check_asked(job, claim)
    dimension, sensitivity = claim.dimension, claim.covered
    mean_records = federation.total_records / federation.parties
    if claim.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE:
        # Sizes are private: the plan knows one public number.
        mean_records = float(federation.min_records)
    weight = federation.max_records / mean_records if claim.weights == "size" else 1.0

    def on_grid(scale_bits: int) -> Mechanism:
        grid = 2.0**scale_bits * sensitivity + math.sqrt(dimension)
        return mechanism_for(job, sensitivity=grid, dimension=dimension)

    settings = job.secure_aggregation
    encoding = FixedPoint.fit(
        bound=claim.bound * weight,
        parties=federation.parties,
        dimension=dimension,
        sensitivity=sensitivity,
        noise_tail=lambda bits: noise_tail(on_grid(bits)),
        max_inflation=settings.max_inflation,
        ring_bits=None if settings.ring_bits == "auto" else settings.ring_bits,
        scale_bits=None if settings.scale_bits == "auto" else settings.scale_bits,
    )
    mechanism = on_grid(encoding.scale_bits)
    spread = math.sqrt(dimension) if mechanism.law == "l2-laplace" else 1.0
    if not SMALLEST_SCALE <= mechanism.scale * spread <= LARGEST_SCALE:
        raise RingTooSmall(
            f"Expected noise of 2^-20 to 2^40 grid units, got {mechanism.scale * spread:.3g} at "
            f"scale_bits {encoding.scale_bits}: choose another secure-aggregation.scale-bits."
        )
    return ReleasePlan(
        run_id=run_id,
        round_number=1,
        algorithm=algorithm.kind,
        dimension=dimension,
        lipschitz=claim.lipschitz,
        min_records=federation.min_records,
        weights=claim.weights,
        mean_records=mean_records,
        lambda_=claim.lambda_,
        tolerance=claim.tolerance,
        encoding=encoding,
        min_survivors=job.min_survivors,
        parties=federation.parties,
        seeded=job.seed is not None,
        guarantees=(
            Guarantee(
                unit=claim.unit,
                neighbouring=claim.neighbouring,
                sensitivity=sensitivity,
                mechanism=mechanism,
                noise_point=claim.noise_point,
                against=Adversary.ANALYST,
                delta=stated_delta(mechanism.law, job.privacy.delta),
                calibration=job.privacy.calibration,
                clip_norm=claim.clip_norm,
                charges=(claim.unit,),
            ),
        ),
    )


def _check_asked(job: Job, claim: Claim) -> None:
    """The job asks for the guarantee that the algorithm gives."""
    if claim.noise_point is not NoisePoint.SERVER or claim.party_norm is not None:
        raise JobError(f"Expected noise on the sum alone, got noise at {claim.noise_point}.")
    for key, asked, given in (
        ("parties.weights", job.parties.weights, claim.weights),
        ("privacy.unit", job.privacy.unit, str(claim.unit)),
        ("privacy.neighbouring", job.privacy.neighbouring, str(claim.neighbouring)),
    ):
        if asked != given:
            raise JobError(
                f"Expected {key} = {given!r}, which {job.algorithm.kind} is proved for, got "
                f"{asked!r}."
            )
