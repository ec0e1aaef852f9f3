"""Noise of sums over sampled batches, and after noise in objectives."""

from __future__ import annotations

from parley.client.algorithms.base import Claim, SampledSums
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.registry import MECHANISM_CLASSES
from parley.server.jobs.job import Job
from parley.server.jobs.noise_multiplier_calibration import calibrate_noise_multiplier
from parley.server.jobs.privacy_section import UnitBudget
from parley.server.jobs.section_base import JobError
from parley.server.planning.noise_scale import NoiseScaling, calibrate_mechanism, choose_calibration


def calibrate_sums(job: Job, claimed: Claim, sums: SampledSums, budget: UnitBudget) -> NoiseScaling:
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
            dimension=claimed.dimension,
            probability=sums.visible_rate,
        )

    def of(sensitivity: float) -> Mechanism:
        # A record's part of a sum has length C, and Δ is `radii` times C.
        sigma = multiplier * sensitivity / claimed.neighbouring.radii
        if not sigma:
            sigma = calibrate_mechanism(
                job,
                sensitivity=sensitivity,
                dimension=claimed.dimension,
                budget=budget,
                law="gaussian",
                releases=job.rounds * sums.steps,
            ).scale
        mechanism: Mechanism = MECHANISM_CLASSES["sampled-gaussian"](
            sensitivity=sensitivity,
            dimension=claimed.dimension,
            sigma=sigma * (1 + 1e-12),
            sampling_rate=sums.sampling_rate,
            steps=sums.steps,
            neighbouring=str(claimed.neighbouring),
            attendance=sums.attendance,
            hidden=sums.hidden,
        )
        return mechanism

    calibration = "pld" if multiplier else choose_calibration(job)
    return NoiseScaling(calibration=calibration, build=of)


def calibrate_after_objective(objective: float, budget: UnitBudget, dimension: int) -> NoiseScaling:
    """Scale noise on certified optima to the budget left by the noise in their objectives."""
    left = (budget.epsilon - objective) * (1 - 1e-12)
    if not left > 0:
        raise JobError(f"Expected some ε left after the noise in objectives, got {left:g}.")

    def of(sensitivity: float) -> Mechanism:
        mechanism: Mechanism = MECHANISM_CLASSES["objective-perturbation"](
            sensitivity=sensitivity, dimension=dimension, epsilon=left, objective_epsilon=objective
        )
        return mechanism

    return NoiseScaling(calibration="exact", build=of)
