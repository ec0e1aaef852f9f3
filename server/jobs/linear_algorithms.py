"""How they learn: `[algorithm]`, a section of another form for each `kind`.

A form holds its own keys, and is the row of its kind: which models and noise laws it takes, which
keys of other sections would do nothing, what contradicts it, and the algorithm that it asks for.
One's own algorithm has one form, whose `settings` are the fields of its class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.gradient_perturbation import GradientPerturbation as Steps
from parley.client.algorithms.gradient_perturbation import RajkumarAgarwal as TiltedSteps
from parley.client.algorithms.objective_perturbation import (
    ObjectivePerturbationOfParties,
    compute_output_share,
)
from parley.client.algorithms.output_perturbation import OutputPerturbation as Optima
from parley.client.algorithms.output_perturbation import PathakAveraging
from parley.client.algorithms.own_algorithm import OwnAlgorithmError, build_own
from parley.client.models.linear_models import LinearModel
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.mechanisms.objective_noise import compute_objective_noise
from parley.server.jobs.algorithm_base import (
    AVERAGE_DESCRIPTION,
    PARTY_BUDGET_KEYS,
    ROUNDS_DESCRIPTION,
    RULE_NOTE,
    AlgorithmSection,
    AutoChoices,
    UnusedKeys,
    check_private_sizes,
    require_federation,
)
from parley.server.jobs.auto_settings import apply_defaults, apply_rule, has_level
from parley.server.jobs.external_references import TextSettings
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.model import list_model_kinds
from parley.server.jobs.network_algorithms import DistributedDpSgdSection, FederatedAveragingSection
from parley.server.jobs.section_base import (
    Auto,
    JobError,
    Positive,
    check_unchanged,
    replace_auto,
)
from parley.server.jobs.synthetic_algorithms import MarginalsSection, RandomFeaturesSection

if TYPE_CHECKING:
    from parley.server.jobs.job import Job

_LINEAR_UNUSED_KEYS: UnusedKeys = {
    "dp_sgd": (),
    "run": ("device",),
    "privacy": ("unit", "neighbouring", *PARTY_BUDGET_KEYS),
}


class OwnAlgorithmSection(AlgorithmSection):
    """One's own, 'file.py:Class' or 'module:Class'."""

    models: ClassVar[tuple[str, ...]] = ("none",)
    unused_keys: ClassVar[UnusedKeys] = {
        "dp_sgd": (),
        "privacy": PARTY_BUDGET_KEYS,
        "run": ("device",),
    }
    unused_needs: ClassVar[str] = "an algorithm of Parley's; your own has algorithm.settings"

    settings: TextSettings = Field(
        {}, description="Settings of your own algorithm, by the names that its class gives them."
    )
    rounds: int = Field(10, ge=1, le=1_000_000, description=ROUNDS_DESCRIPTION)

    def build_algorithm(
        self, job: Job, model: Any, parties: Federation | None
    ) -> FederatedAlgorithm:
        """Of the class that the job names, which this runs."""
        del job, parties
        try:
            algorithm: FederatedAlgorithm = build_own(
                self.kind, self.settings, features=model.features, classes=model.classes
            )
        except OwnAlgorithmError as error:
            raise JobError(str(error)) from error
        return algorithm


class _LinearModelSection(AlgorithmSection):
    models: ClassVar[tuple[str, ...]] = list_model_kinds("linear")
    unused_keys: ClassVar[UnusedKeys] = _LINEAR_UNUSED_KEYS

    rounds: Annotated[int, Field(ge=1, le=1_000_000)] | Auto = Field(
        "auto", description=ROUNDS_DESCRIPTION
    )
    learning_rate: Positive | Auto = Field("auto", description="auto: 1/(L_s + λ)" + RULE_NOTE)
    momentum: Annotated[float, Field(ge=0, lt=1)] | Auto = Field(
        "auto",
        description="Momentum on the server (post-processing), heavy-ball. auto: 0" + RULE_NOTE,
    )
    nesterov: bool | Auto = Field(
        "auto",
        description="Nesterov's momentum instead of the heavy ball's. auto: false" + RULE_NOTE,
    )
    clip_norm: Annotated[float, Field(ge=1e-9, le=1e9)] | Auto = Field(
        "auto",
        description="Clip every record's gradient to this norm; auto: the loss's own Lipschitz "
        "constant G, where nothing needs clipping" + RULE_NOTE,
    )
    average: bool | Auto = Field(
        "auto", description=AVERAGE_DESCRIPTION + " auto: true" + RULE_NOTE
    )

    def resolve_auto(self, job: Job, parties: Federation | None, classes: int) -> AutoChoices:
        """Without a rule."""
        del parties, classes
        return apply_defaults(job, self, f"the rule is gradient-perturbation's, not {self.kind}'s")

    def build_model(self, job: Job, features: int, classes: int) -> LinearModel:
        """The job's linear model."""
        return job.model.build_linear_model(features, classes)


class GradientPerturbationSection(_LinearModelSection):
    """Noise on the average gradient, every round."""

    unused_keys: ClassVar[UnusedKeys] = {
        **_LINEAR_UNUSED_KEYS,
        "privacy": ("unit", *PARTY_BUDGET_KEYS),
    }

    level_rounds: Annotated[int, Field(ge=0, le=1_000_000)] | Auto = Field(
        "auto",
        description="How many of the rounds, the last, learn what all predictions lack on average, "
        "with four times the clip norm: of targets, whose long tails it cuts. auto: 0, or with "
        "algorithm.rounds = 'auto' by its rule.",
    )

    def check(self, job: Job) -> None:
        """And what private sizes need."""
        super().check(job)
        check_private_sizes(job)
        none = (0,) if self.rounds == "auto" else (0, "auto")
        if self.nesterov is True and self.momentum in none:
            raise ValueError("Expected algorithm.momentum > 0 with nesterov = true, got 0.")
        if replace_auto(self.level_rounds, 0) and not has_level(job.model):
            raise ValueError(
                "Expected algorithm.level-rounds = 0 but of targets (model.kind = 'ridge') with "
                f"model.intercept = true or hats, got {self.level_rounds}."
            )

    def resolve_auto(self, job: Job, parties: Federation | None, classes: int) -> AutoChoices:
        """Steps and features by the rule (`parley.server.jobs.auto_settings`)."""
        return apply_rule(job, self, parties, classes)

    def build_algorithm(
        self, job: Job, model: Any, parties: Federation | None
    ) -> FederatedAlgorithm:
        """Noisy gradient steps."""
        level = replace_auto(self.level_rounds, 0)
        columns = 0
        if level and not job.model.has_intercept:
            columns = require_federation(parties, self.kind).columns
            if not columns:
                raise JobError(
                    "Expected algorithm.level-rounds = 0 of rows of no schema, got more."
                )
        try:
            return Steps(
                **self._build_step_settings(job, model), level_rounds=level, level_columns=columns
            )
        except ValueError as error:
            raise JobError(str(error)) from error

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


class OutputPerturbationSection(_LinearModelSection):
    """Noise once, on the average of certified local optima.

    It makes no steps on the server; their keys may stand there, so that a job can be run both ways.
    """

    noise: ClassVar[str] = "l2-laplace"
    releases: ClassVar[int | None] = 1

    relative_tolerance: float = Field(
        1e-3,
        gt=0,
        le=1,
        description="output-perturbation: κ; every local optimum is certified to a gradient norm "
        "≤ κG/n, which adds the factor 1+κ to the sensitivity.",
    )

    def check(self, job: Job) -> None:
        """And a loss whose gradient is bounded everywhere, unclipped."""
        super().check(job)
        needs = "gradient-perturbation: an optimum is that of the unclipped loss"
        check_unchanged(job, "algorithm", ("clip_norm",), needs)
        if not job.model.bounded_everywhere:
            raise ValueError(
                "Expected a model whose gradient is bounded everywhere with output-perturbation, "
                f"got {job.model.kind}: its gradient is only bounded on the ball ‖θ‖ ≤ radius. Use "
                "gradient-perturbation."
            )

    def build_algorithm(
        self, job: Job, model: Any, parties: Federation | None
    ) -> FederatedAlgorithm:
        """Certified optima, averaged."""
        del parties
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

    def build_algorithm(
        self, job: Job, model: Any, parties: Federation | None
    ) -> FederatedAlgorithm:
        """Certified optima, averaged, with more noise."""
        del parties
        return PathakAveraging(**self._build_optimum_settings(job, model))


class ObjectivePerturbationSection(OutputPerturbationSection):
    """Noise inside every party's objective, and on the optimum that its solver certified."""

    models: ClassVar[tuple[str, ...]] = ("logistic",)
    laws: ClassVar[tuple[str, ...]] = ("l2-laplace",)

    def check(self, job: Job) -> None:
        """And noise that is inside the parties."""
        super().check(job)
        if not job.privacy.point.is_locally_private:
            raise ValueError(
                "Expected privacy.noise-point = 'party' with objective-perturbation (every party's "
                f"objective has all of its noise), got {job.privacy.noise_point!r}."
            )
        others = "gradient-perturbation or output-perturbation"
        check_unchanged(job, "model", ("class_weights",), others)  # it is proved for |ℓ′| ≤ 1
        check_unchanged(job, "parties", ("weights",), others)

    def build_algorithm(
        self, job: Job, model: Any, parties: Federation | None
    ) -> FederatedAlgorithm:
        """Certified optima of perturbed objectives."""
        del parties
        inside = job.privacy.epsilon * (1 - compute_output_share(self.relative_tolerance))
        return ObjectivePerturbationOfParties(
            **self._build_optimum_settings(job, model), objective_epsilon=inside
        )


class RajkumarAgarwalSection(GradientPerturbationSection):
    """Noise for one round on the average gradient, every round, and a random linear term."""

    models: ClassVar[tuple[str, ...]] = ("logistic",)

    def resolve_auto(self, job: Job, parties: Federation | None, classes: int) -> AutoChoices:
        """Without a rule: its noise is one round's in every round."""
        return _LinearModelSection.resolve_auto(self, job, parties, classes)

    def build_algorithm(
        self, job: Job, model: Any, parties: Federation | None
    ) -> FederatedAlgorithm:
        """Noisy gradient steps on a tilted objective."""
        records = require_federation(parties, self.kind).total_records
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


ALGORITHM_SECTIONS: dict[str, type[AlgorithmSection]] = {
    "file.py:Class": OwnAlgorithmSection,
    "gradient-perturbation": GradientPerturbationSection,
    "fedavg": FederatedAveragingSection,
    "distributed-dp-sgd": DistributedDpSgdSection,
    "output-perturbation": OutputPerturbationSection,
    "objective-perturbation": ObjectivePerturbationSection,
    "pathak": PathakSection,
    "rajkumar-agarwal": RajkumarAgarwalSection,
    "marginals": MarginalsSection,
    "random-features": RandomFeaturesSection,
}
"""`algorithm.kind` → its form of the section; keys are printed in this order."""
