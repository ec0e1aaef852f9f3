"""Form of `[algorithm]` for an algorithm of your own: its settings are the fields of its class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.own_algorithm import OwnAlgorithmError
from parley.client.algorithms.registry import get_algorithm_spec
from parley.safe_io.error_translation import translate_errors
from parley.server.jobs.algorithm_base import (
    PARTY_BUDGET_KEYS,
    ROUNDS_DESCRIPTION,
    AlgorithmSection,
    UnusedKeys,
)
from parley.server.jobs.external_references import TextSettings
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.section_base import JobError

if TYPE_CHECKING:
    from parley.server.jobs.job import Job


class OwnAlgorithmSection(AlgorithmSection):
    """An algorithm whose settings are the fields of its class, such as your own."""

    models: ClassVar[tuple[str, ...]] = ("none",)
    unused_keys: ClassVar[UnusedKeys] = {
        "dp_sgd": (),
        "privacy": PARTY_BUDGET_KEYS,
        "run": ("device",),
    }
    unused_needs: ClassVar[str] = "one of Parley's algorithms; your own has algorithm.settings"

    settings: TextSettings = Field({})
    """Settings of your own algorithm, by the names in its class."""

    rounds: int = Field(10, ge=1, le=1_000_000, description=ROUNDS_DESCRIPTION)

    def build_algorithm(self, job: Job, model: Any, parties: Federation) -> FederatedAlgorithm:
        """Build the algorithm from the class that the job names. This runs that class's code."""
        with translate_errors(OwnAlgorithmError, JobError):
            build = get_algorithm_spec(self.kind).build
            if build is None:
                raise JobError(f"Expected an algorithm with settings, got {self.kind!r}.")
            algorithm: FederatedAlgorithm = build(self.settings, model.features, model.classes)
        return algorithm
