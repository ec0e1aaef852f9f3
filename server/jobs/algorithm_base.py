"""Define the base class of every form of `[algorithm]`: models, noise, and keys without effect.

A form is an algorithm's row at the server. It holds its keys, their contradictions, and how the job
becomes an algorithm. What server and party both know of an algorithm is a row of
`parley.client.algorithms.registry.ALGORITHMS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from parley.client.algorithms.base import FederatedAlgorithm
from parley.privacy.mechanisms.registry import MECHANISMS
from parley.server.jobs.external_references import CodeReference
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.section_base import JobSection, check_unchanged
from parley.server.jobs.section_registry import list_model_kinds

if TYPE_CHECKING:
    from parley.server.jobs.job import Job

ROUNDS_DESCRIPTION = (
    "Rounds T (output-perturbation has one). auto, with gradient-perturbation: a rule chooses T "
    "from public facts (number of records and parties, ε, the loss), and also every auto of "
    "learning-rate, momentum, nesterov, average, clip-norm, model.lambda and model.radius "
    "(docs/features.md). `parley plan` shows the choices, and the run folder's job has the "
    "numbers. If the rule does not apply (δ = 0, another algorithm): 10."
)

PARTY_BUDGET_KEYS = ("party_epsilon", "party_delta", "dataset_party_epsilon", "dataset_party_delta")
"""Keys of `[privacy]` that only unit both has."""

PlanDetail = Literal["noise", "training", "steps", "tables", "features"]
UnusedKeys = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class AutoChoices:
    """Job sections filled with a rule's numbers, and the reasons for them, one per line."""

    sections: Mapping[str, JobSection] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


class AlgorithmSection(JobSection):
    """Base of the forms of `[algorithm]`.

    Attributes:
        learns: what its models learn (`ModelSection.learns`).
        models: Keys of `parley.server.jobs.section_registry.MODELS` that it takes; (): all of that
            world.
        noise: noise distribution that `privacy.noise = 'default'` stands for.
        releases: number of releases, whatever `rounds` is; None: one per round.
        plan_detail: what a plan shows in addition to its guarantees: other noise, the parties'
            training, steps as sums, tables, or features.
        data_reading: label of requests for data that no model's labels decide how to read; empty:
            the model's. With one, Parley reads no record, in a simulation either.
        unused_keys: keys of other sections that have no effect; an empty tuple means all keys of
            the section.
    """

    learns: ClassVar[str] = ""
    models: ClassVar[tuple[str, ...]] = ()
    noise: ClassVar[str] = "gaussian"
    laws: ClassVar[tuple[str, ...]] = (*MECHANISMS, "auto")
    releases: ClassVar[int | None] = None
    unused_keys: ClassVar[UnusedKeys] = {}
    unused_needs: ClassVar[str] = "algorithm.kind = 'fedavg'"
    samples: ClassVar[bool] = False
    plan_detail: ClassVar[PlanDetail] = "noise"
    data_reading: ClassVar[str] = ""

    kind: CodeReference = "gradient-perturbation"
    """gradient-perturbation: noise on the average gradient, every round. output-perturbation: noise
    once, on the average of certified local optima. objective-perturbation: noise inside every
    party's objective. pathak, rajkumar-agarwal: as in their papers, for comparison
    (docs/methods.md). fedavg: federated averaging of networks, private by [dp-sgd].
    distributed-dp-sgd: DP-SGD of networks across all parties, every step a secure sum. marginals:
    noisy counts of pairs of columns, once, and synthetic rows from them (docs/synthetic.md).
    random-features: the noisy sum of random features of tables or images, once, and synthetic
    records from it. flower: federated averaging of your own Flower ClientApp, unit party
    (docs/flower.md). Or your own, 'count.py:Count' or 'module:Class' (docs/extending.md).
    """

    def build_model(self, job: Job, features: int, classes: int) -> Any:
        """Build the model for records with `features` columns and K classes; raises JobError."""
        from parley.client.algorithms.noisy_sum_algorithms import NoModel  # noqa: PLC0415 - only for algorithms that learn no model

        return NoModel(features=features, classes=classes or 2)

    def resolve_auto(self, job: Job, parties: Federation | None, classes: int) -> AutoChoices:
        """Return the rule's choices for what the job leaves open.

        If `parties` is None, return only the choices that do not need their facts.
        """
        return AutoChoices()

    def build_algorithm(self, job: Job, model: Any, parties: Federation) -> FederatedAlgorithm:
        """Build the job's algorithm; raises JobError, CalibrationError."""
        raise NotImplementedError

    def check(self, job: Job) -> None:
        """Refuse keys that contradict each other or have no effect; raises ValueError."""
        if job.model_form not in self.models and job.model.learns != self.learns:
            models = self.models or list_model_kinds(self.learns)
            names = ", ".join(f"'{name}'" for name in models)
            raise ValueError(
                f"Expected model.kind to be one of {names} with algorithm.kind = '{self.kind}', "
                f"got {job.model.kind!r}."
            )
        for section, keys in self.unused_keys.items():
            check_unchanged(job, section, keys, self.unused_needs)
        if not self.samples:
            check_unchanged(job, "parties", ("per_round",), "fedavg or distributed-dp-sgd")
        if job.noise not in self.laws:
            laws = " or ".join(f"'{law}'" for law in self.laws)
            raise ValueError(f"Expected privacy.noise = {laws} with {self.kind}, got {job.noise}.")


def check_private_sizes(job: Job) -> None:
    """Check what a guarantee needs that hides whether records are present."""
    if job.privacy.neighbouring == "replace-one":
        return
    if job.parties.min_records == "auto":
        raise ValueError(
            "Expected parties.min-records, a public number that sums are divided by, with "
            "add-or-remove-one neighbours, got 'auto': then every party's own size is private. "
            "Set a number."
        )
    # A weight would reveal the party's number of records.
    check_unchanged(job, "parties", ("weights",), "privacy.neighbouring = 'replace-one'")
