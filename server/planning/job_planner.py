"""Build a job's algorithm and its release plan."""

from __future__ import annotations

from typing import Any

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.contract.guarantee import Guarantee
from parley.client.contract.release_plan import ReleasePlan
from parley.privacy.mechanisms.base import Mechanism
from parley.safe_io.error_translation import translate_errors
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.planning.release_planner import check_claim, plan_claim


def build_model(job: Job, *, features: int, classes: int) -> Any:
    """Build the job's model for `features` columns (before the intercept) and K classes."""
    return job.algorithm.build_model(job, features, classes)


def build_algorithm(job: Job, model: Any, federation: Federation) -> FederatedAlgorithm:
    """Build the job's algorithm for a model of known dimension (a linear model, or a network)."""
    return job.algorithm.build_algorithm(job, model, federation)


def plan_release(
    job: Job, *, algorithm: FederatedAlgorithm, federation: Federation, run_id: str = "plan"
) -> ReleasePlan:
    """Return the plan of every round. Raises JobError, CalibrationError, RingTooSmall."""
    with translate_errors(ValueError, JobError):
        claim = algorithm.claim(federation.to_public_facts(job.parties.weights))
    check_claim(job, claim)
    return plan_claim(job, claim, algorithm=algorithm.kind, federation=federation, run_id=run_id)


def scale_to_average(plan: ReleasePlan, guarantee: Guarantee) -> Mechanism:
    """Return a guarantee's mechanism in units of the average over all parties, with the grid's
    share.

    It is for tables and reports; the run itself draws integers (`ReleasePlan.draw_figures`). Noise
    inside the parties is stated as it is there. Noise on sampled sums is stated for one sum.
    """
    if guarantee.in_training:
        return guarantee.mechanism
    summed = 1 if plan.sampled_noises else plan.parties
    unit = guarantee.compute_unit_scale(plan.encoding.scale) * summed
    return guarantee.mechanism.convert_to_unit(unit)
