"""Form of `[algorithm]` for gradient perturbation as of Rajkumar and Agarwal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.rajkumar_agarwal import RajkumarAgarwal as TiltedSteps
from parley.privacy.mechanisms.objective_noise import compute_objective_noise
from parley.server.jobs.algorithm_base import AutoChoices
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.gradient_perturbation_section import GradientPerturbationSection
from parley.server.jobs.linear_algorithm_base import LinearModelSection

if TYPE_CHECKING:
    from parley.server.jobs.job import Job


class RajkumarAgarwalSection(GradientPerturbationSection):
    """One round's noise on the average gradient in every round, and a random linear term."""

    learns: ClassVar[str] = ""
    models: ClassVar[tuple[str, ...]] = ("logistic",)

    def resolve_auto(self, job: Job, parties: Federation | None, classes: int) -> AutoChoices:
        """Return the defaults; its noise is calibrated to one round and added in every round."""
        return LinearModelSection.resolve_auto(self, job, parties, classes)

    def build_algorithm(self, job: Job, model: Any, parties: Federation) -> FederatedAlgorithm:
        """Build noisy gradient steps on a tilted objective."""
        records = parties.total_records
        noise = compute_objective_noise(
            epsilon=job.privacy.epsilon,
            records=records,
            lambda_=job.model.regularisation,
            curvature=model.smoothness,
        )
        return TiltedSteps(
            **self._build_step_settings(job, model),
            tilt_scale=noise.scale / records,
            tilt_seed=job.seed or 0,
        )
