"""Settings of sampled steps that planning needs: noise multiplier and the components' part."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parley.privacy.calibration.dp_sgd import calibrate_steps
from parley.privacy.calibration.inverse_curves import compute_gaussian_mu
from parley.privacy.calibration.noise_calibration import CalibrationError
from parley.privacy.sampling.rounded_gaussian import compute_rounded_distance
from parley.safe_io.error_translation import translate_errors
from parley.server.jobs.privacy_section import UnitBudget

if TYPE_CHECKING:
    from parley.server.jobs.job import Job


def compute_components_mu(job: Job) -> float:
    """Return μ of the components' release; 0 without one."""
    share, budget = job.model.components_share, job.budgets[0]
    if not share:
        return 0.0
    return math.sqrt(share) * compute_gaussian_mu(budget.epsilon, budget.noise_delta)


def calibrate_noise_multiplier(
    job: Job,
    *,
    rate: float,
    steps: int,
    budget: UnitBudget,
    dimension: int,
    mu: float = 0.0,
    probability: float = 1.0,
    together: int = 1,
) -> float:
    """Return the smallest σ, in clip norms, with which a run's sampled sums fit a unit's budget.

    Args:
        mu: of the Gaussian releases that share the budget.
        probability: p of a party's coin, which an attacker may see; 1: every party is in every sum.
        together: steps that one coin decides on.

    Raises CalibrationError.
    """
    samplers = job.parties.count if job.privacy.point.in_contributions else 1
    with translate_errors(ValueError, CalibrationError):
        return calibrate_steps(
            sampling_rate=rate,
            steps=steps,
            epsilon=budget.epsilon,
            delta=budget.noise_delta,
            neighbouring=job.privacy.neighbouring,
            planned_delta=budget.reserved_delta / 2 if budget.is_shared else 0.0,
            certificate=budget.certificate,
            # Twice, because the components' own samplers have a distance too.
            slack=2 * compute_rounded_distance(dimension * steps * samplers),
            mu=mu,
            probability=probability,
            together=together,
        )
