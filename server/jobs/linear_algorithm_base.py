"""What all forms of `[algorithm]` that learn a linear model have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from parley.client.models.linear_models import LinearModel
from parley.server.jobs.algorithm_base import (
    PARTY_BUDGET_KEYS,
    ROUNDS_DESCRIPTION,
    AlgorithmSection,
    AutoChoices,
    UnusedKeys,
)
from parley.server.jobs.auto_settings import apply_defaults
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.section_base import Auto, Positive

if TYPE_CHECKING:
    from parley.server.jobs.job import Job

LINEAR_UNUSED_KEYS: UnusedKeys = {
    "dp_sgd": (),
    "run": ("device",),
    "privacy": ("unit", "neighbouring", *PARTY_BUDGET_KEYS),
}


class LinearModelSection(AlgorithmSection):
    """What all algorithms of linear models have."""

    learns: ClassVar[str] = "linear"
    unused_keys: ClassVar[UnusedKeys] = LINEAR_UNUSED_KEYS

    rounds: Annotated[int, Field(ge=1, le=1_000_000)] | Auto = Field(
        "auto", description=ROUNDS_DESCRIPTION
    )
    learning_rate: Positive | Auto = "auto"
    """auto: 1/(L_s + λ); with algorithm.rounds = 'auto', the rule of gradient-perturbation chooses
    it.
    """

    momentum: Annotated[float, Field(ge=0, lt=1)] | Auto = "auto"
    """Heavy-ball momentum on the server (post-processing). auto: 0; with algorithm.rounds = 'auto',
    the rule of gradient-perturbation chooses it.
    """

    nesterov: bool | Auto = "auto"
    """Nesterov's momentum instead of the heavy-ball one. auto: false; with algorithm.rounds =
    'auto', the rule of gradient-perturbation chooses it.
    """

    clip_norm: Annotated[float, Field(ge=1e-9, le=1e9)] | Auto = "auto"
    """Clip every record's gradient to this norm. auto: the loss's Lipschitz constant G, at which
    nothing needs clipping; with algorithm.rounds = 'auto', the rule of gradient-perturbation
    chooses it.
    """

    average: bool | Auto = "auto"
    """Report the mean of the later half of the iterates (post-processing, at no cost). auto: true;
    with algorithm.rounds = 'auto', the rule of gradient-perturbation chooses it.
    """

    def resolve_auto(self, job: Job, parties: Federation | None, classes: int) -> AutoChoices:
        """Return the defaults; no rule applies."""
        return apply_defaults(job, self, f"the rule is gradient-perturbation's, not {self.kind}'s")

    def build_model(self, job: Job, features: int, classes: int) -> LinearModel:
        """Build the job's linear model."""
        return job.model.build_linear_model(features, classes)
