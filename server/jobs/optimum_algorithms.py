"""Forms of `[algorithm]` that release certified local optima once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.objective_perturbation import (
    ObjectivePerturbationOfParties,
    compute_output_share,
)
from parley.client.algorithms.output_perturbation import OutputPerturbation as Optima
from parley.client.algorithms.output_perturbation import PathakAveraging
from parley.client.models.linear_models import LinearModel
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.linear_algorithm_base import LinearModelSection
from parley.server.jobs.section_base import check_unchanged

if TYPE_CHECKING:
    from parley.server.jobs.job import Job


class OutputPerturbationSection(LinearModelSection):
    """Noise once, on the average of certified local optima.

    It makes no steps on the server. Their keys are accepted, so that a job can be run both ways.
    """

    noise: ClassVar[str] = "l2-laplace"
    releases: ClassVar[int | None] = 1

    relative_tolerance: float = Field(1e-3, gt=0, le=1)
    """output-perturbation: κ. Every local optimum is certified to a gradient norm ≤ κG/n, which
    multiplies the sensitivity by 1+κ.
    """

    def check(self, job: Job) -> None:
        """Check that the loss's gradient is bounded everywhere, without clipping."""
        super().check(job)
        needs = "gradient-perturbation: an optimum is that of the unclipped loss"
        check_unchanged(job, "algorithm", ("clip_norm",), needs)
        if not job.model.bounded_everywhere:
            raise ValueError(
                "Expected a model whose gradient is bounded everywhere with "
                f"output-perturbation, got {job.model.kind}: its gradient is only bounded in the "
                "ball ‖θ‖ ≤ radius. Use gradient-perturbation."
            )

    def build_algorithm(self, job: Job, model: Any, parties: Federation) -> FederatedAlgorithm:
        """Build the average of certified optima."""
        return Optima(**self._build_optimum_settings(job, model))

    def _build_optimum_settings(self, job: Job, model: LinearModel) -> dict[str, Any]:
        return {
            "model": model,
            "lambda_": job.model.regularisation,
            "lipschitz": model.lipschitz,
            "weights": job.parties.weights,
            "relative_tolerance": self.relative_tolerance,
        }


class PathakSection(OutputPerturbationSection):
    """Noise once, on the average of certified local optima: m times what its ε needs."""

    laws: ClassVar[tuple[str, ...]] = ("l2-laplace", "laplace-l1", "laplace-as-printed")

    def build_algorithm(self, job: Job, model: Any, parties: Federation) -> FederatedAlgorithm:
        """Build the average of certified optima with more noise."""
        return PathakAveraging(**self._build_optimum_settings(job, model))


class ObjectivePerturbationSection(OutputPerturbationSection):
    """Noise inside every party's objective, and on the optimum that its solver certified."""

    learns: ClassVar[str] = ""
    models: ClassVar[tuple[str, ...]] = ("logistic",)
    laws: ClassVar[tuple[str, ...]] = ("l2-laplace",)

    def check(self, job: Job) -> None:
        """Check that the noise is inside the parties."""
        super().check(job)
        if not job.privacy.point.is_locally_private:
            raise ValueError(
                "Expected privacy.noise-point = 'party' with objective-perturbation, got "
                f"{job.privacy.noise_point!r}: every party's objective has all of its noise."
            )
        others = "gradient-perturbation or output-perturbation"
        check_unchanged(job, "model", ("class_weights",), others)  # it is proved for |ℓ′| ≤ 1
        check_unchanged(job, "parties", ("weights",), others)

    def build_algorithm(self, job: Job, model: Any, parties: Federation) -> FederatedAlgorithm:
        """Build the average of certified optima of perturbed objectives."""
        inside = job.privacy.epsilon * (1 - compute_output_share(self.relative_tolerance))
        return ObjectivePerturbationOfParties(
            **self._build_optimum_settings(job, model), objective_epsilon=inside
        )
