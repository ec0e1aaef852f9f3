"""Form of `[algorithm]` for gradient perturbation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.gradient_perturbation import GradientPerturbation as Steps
from parley.client.models.linear_models import LinearModel
from parley.privacy.accounting.threat_model import Neighbouring
from parley.safe_io.error_translation import translate_errors
from parley.server.jobs.algorithm_base import (
    PARTY_BUDGET_KEYS,
    AutoChoices,
    UnusedKeys,
    check_private_sizes,
)
from parley.server.jobs.auto_settings import apply_rule, has_level
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.linear_algorithm_base import LINEAR_UNUSED_KEYS, LinearModelSection
from parley.server.jobs.section_base import Auto, JobError, replace_auto

if TYPE_CHECKING:
    from parley.server.jobs.job import Job


class GradientPerturbationSection(LinearModelSection):
    """Noise on the average gradient, every round."""

    unused_keys: ClassVar[UnusedKeys] = {
        **LINEAR_UNUSED_KEYS,
        "privacy": ("unit", *PARTY_BUDGET_KEYS),
    }

    level_rounds: Annotated[int, Field(ge=0, le=1_000_000)] | Auto = "auto"
    """Number of the last rounds that learn the mean error of all predictions, with four times the
    clip norm: for targets with long tails, which are clipped. auto: 0, or by the rule if
    algorithm.rounds = 'auto'.
    """

    def check(self, job: Job) -> None:
        """Check the base's conditions, and what private sizes need."""
        super().check(job)
        check_private_sizes(job)
        none = (0,) if self.rounds == "auto" else (0, "auto")
        if self.nesterov is True and self.momentum in none:
            raise ValueError("Expected algorithm.momentum > 0 with nesterov = true, got 0.")
        if replace_auto(self.level_rounds, 0) and not has_level(job.model):
            raise ValueError(
                f"Expected algorithm.level-rounds = 0, got {self.level_rounds}: others need "
                "targets (model.kind = 'ridge') and model.intercept = true or hats."
            )

    def resolve_auto(self, job: Job, parties: Federation | None, classes: int) -> AutoChoices:
        """Choose steps and features by the rule (`parley.server.jobs.auto_settings`)."""
        return apply_rule(job, self, parties, classes)

    def build_algorithm(self, job: Job, model: Any, parties: Federation) -> FederatedAlgorithm:
        """Build noisy gradient steps."""
        level = replace_auto(self.level_rounds, 0)
        columns = 0
        if level and not job.model.has_intercept:
            columns = parties.columns
            if not columns:
                raise JobError("Expected algorithm.level-rounds = 0 without a schema, got more.")
        with translate_errors(ValueError, JobError):
            settings = self._build_step_settings(job, model)
            return Steps(**settings, level_rounds=level, level_columns=columns)

    def _build_step_settings(self, job: Job, model: LinearModel) -> dict[str, Any]:
        lambda_, clip, rate = job.model.regularisation, self.clip_norm, self.learning_rate
        momentum = replace_auto(self.momentum, 0.0)
        return {
            "model": model,
            "lambda_": lambda_,
            "lipschitz": model.lipschitz if clip == "auto" else min(clip, model.lipschitz),
            "weights": job.parties.weights,
            "rounds": job.rounds,
            "learning_rate": 1 / (model.smoothness + lambda_) if rate == "auto" else rate,
            "momentum": momentum,
            "nesterov": replace_auto(self.nesterov, otherwise=False) and momentum > 0,
            "average": replace_auto(self.average, otherwise=True),
            "neighbouring": Neighbouring(job.privacy.neighbouring),
        }
