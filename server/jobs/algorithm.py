"""How they learn: `[algorithm]`, a section of another form for each `kind`.

A form holds its own keys, and is the row of its kind: which models and noise laws it takes, which
keys of other sections would do nothing, and what contradicts it. One's own algorithm has one form,
whose `settings` are the fields of its class.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from parley.privacy.mechanisms.table import MECHANISMS
from parley.server.jobs.section import Auto, Positive, Section, check_unchanged

if TYPE_CHECKING:
    from parley.server.jobs.job import Job

__all__ = [
    "ALGORITHM_SECTIONS",
    "Algorithm",
    "AlgorithmSection",
    "DistributedDPSGD",
    "FederatedAveraging",
    "GradientPerturbation",
    "Marginals",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "OwnAlgorithm",
    "Pathak",
    "RajkumarAgarwal",
]

_KIND = (
    "gradient-perturbation: noise on the average gradient, every round; output-perturbation: noise "
    "once, on the average of certified local optima; objective-perturbation: noise inside every "
    "party's objective; pathak and rajkumar-agarwal: as of their papers, to compare with "
    "(docs/methods.md); fedavg: federated averaging of networks, "
    "private by [dp-sgd]; distributed-dp-sgd: networks by DP-SGD across all parties, every step a "
    "secure sum; marginals: noisy counts of pairs of columns, once, and synthetic rows from them "
    "(docs/synthetic.md); or your own, 'count.py:Count' or 'module:Class' (docs/extending.md)."
)
_ROUNDS = (
    "Rounds T (output-perturbation has one). auto, with a linear model: T, momentum, nesterov, "
    "average and clip-norm, as far as they are not given, by a rule that looks at λ and the loss "
    "alone (docs/methods.md); the job that a run keeps has the numbers."
)
_AVERAGE = "Report the mean of the later half of the iterates (post-processing, free)."
_BOTH_KEYS = ("party_epsilon", "party_delta", "dataset_party_epsilon", "dataset_party_delta")
_RECORD_KEYS = ("clip_norm", "noise_multiplier", "per_example_method")

Idle = Mapping[str, tuple[str, ...]]
_LINEAR_IDLE: Idle = MappingProxyType(
    {"dp_sgd": (), "run": ("device",), "privacy": ("unit", "neighbouring", *_BOTH_KEYS)}
)


class AlgorithmSection(Section):
    """How they learn.

    Attributes:
        models: keys of `parley.server.jobs.model.MODELS` that it takes.
        noise: the law that `privacy.noise = 'default'` means.
        laws: of `privacy.noise`, resolved.
        releases: how many there are, whatever `rounds` says; None: as many as rounds.
        idle: keys of other sections that would do nothing; none stands for all of a section's.
        idle_needs: what those need.
    """

    models: ClassVar[tuple[str, ...]]
    noise: ClassVar[str] = "gaussian"
    laws: ClassVar[tuple[str, ...]] = (*MECHANISMS, "auto")
    releases: ClassVar[int | None] = None
    idle: ClassVar[Idle] = MappingProxyType({})
    idle_needs: ClassVar[str] = "algorithm.kind = 'fedavg'"

    kind: str = Field("gradient-perturbation", description=_KIND)

    def check(self, job: Job) -> None:
        """Refuses keys that contradict each other, or would have no effect.

        Raises:
            ValueError: the key, what was expected, and what came.
        """
        if job.model_form not in self.models:
            names = ", ".join(f"'{name}'" for name in self.models)
            raise ValueError(
                f"Expected model.kind to be one of {names} with algorithm.kind = '{self.kind}', "
                f"got {job.model.kind!r}."
            )
        for section, keys in self.idle.items():
            check_unchanged(job, section, keys, self.idle_needs)
        if job.noise not in self.laws:
            laws = " or ".join(f"'{law}'" for law in self.laws)
            raise ValueError(f"Expected privacy.noise = {laws} with {self.kind}, got {job.noise}.")


class OwnAlgorithm(AlgorithmSection):
    """One's own, 'file.py:Class' or 'module:Class'."""

    models: ClassVar[tuple[str, ...]] = ("none",)
    idle: ClassVar[Idle] = MappingProxyType(
        {"dp_sgd": (), "privacy": _BOTH_KEYS, "run": ("device",)}
    )
    idle_needs: ClassVar[str] = "an algorithm of Parley's; your own has algorithm.settings"

    settings: dict[str, Any] = Field(
        {}, description="Settings of your own algorithm, by the names that its class gives them."
    )
    rounds: int = Field(10, ge=1, le=1_000_000, description=_ROUNDS)


class _OfLinearModel(AlgorithmSection):
    models: ClassVar[tuple[str, ...]] = (
        "logistic",
        "softmax",
        "ridge",
        "huber-svm",
        "own-loss",
        "own-residual-loss",
    )
    idle: ClassVar[Idle] = _LINEAR_IDLE

    rounds: int = Field(10, ge=1, le=1_000_000, description=_ROUNDS)
    learning_rate: Positive | Auto = Field("auto", description="auto: 1/(L_s + λ).")
    momentum: float = Field(
        0.0, ge=0, lt=1, description="Heavy-ball momentum on the server (post-processing)."
    )
    nesterov: bool = Field(False, description="Nesterov's momentum instead of the heavy ball's.")
    clip_norm: Annotated[float, Field(ge=1e-9, le=1e9)] | Auto = Field(
        "auto",
        description="Clip every record's gradient to this norm; auto: the loss's own Lipschitz "
        "constant G, where nothing needs clipping.",
    )
    average: bool = Field(True, description=_AVERAGE)


class GradientPerturbation(_OfLinearModel):
    """Noise on the average gradient, every round."""

    idle: ClassVar[Idle] = MappingProxyType({**_LINEAR_IDLE, "privacy": ("unit", *_BOTH_KEYS)})

    kind: Literal["gradient-perturbation"] = Field("gradient-perturbation", description=_KIND)

    def check(self, job: Job) -> None:
        """And what private sizes need."""
        super().check(job)
        _check_private_sizes(job)
        if self.nesterov and not self.momentum:
            raise ValueError("Expected algorithm.momentum > 0 with nesterov = true, got 0.")


class OutputPerturbation(_OfLinearModel):
    """Noise once, on the average of certified local optima.

    It makes no steps on the server; their keys may stand there, so that a job can be run both ways.
    """

    noise: ClassVar[str] = "l2-laplace"
    releases: ClassVar[int | None] = 1

    kind: Literal["output-perturbation"] = Field("output-perturbation", description=_KIND)
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
        if self.clip_norm != "auto":
            raise ValueError(
                "Expected algorithm.clip-norm = 'auto' with output-perturbation (its optimum is "
                f"that of the unclipped loss), got {self.clip_norm}."
            )
        if not job.model.bounded_everywhere:
            raise ValueError(
                "Expected model.kind logistic, softmax, huber-svm or an own loss with "
                f"output-perturbation, got {job.model.kind}: its gradient is only bounded on the "
                "ball ‖θ‖ ≤ radius. Use gradient-perturbation."
            )


class Pathak(OutputPerturbation):
    """Noise once, on the average of certified local optima: m times what its ε needs."""

    laws: ClassVar[tuple[str, ...]] = ("l2-laplace", "laplace-l1", "laplace-as-printed")

    kind: Literal["pathak"] = Field("pathak", description=_KIND)  # type: ignore[assignment]


class ObjectivePerturbation(OutputPerturbation):
    """Noise inside every party's objective, and on the optimum that its solver certified."""

    models: ClassVar[tuple[str, ...]] = ("logistic",)
    laws: ClassVar[tuple[str, ...]] = ("l2-laplace",)

    kind: Literal["objective-perturbation"] = Field(  # type: ignore[assignment]
        "objective-perturbation", description=_KIND
    )

    def check(self, job: Job) -> None:
        """And noise that is inside the parties."""
        super().check(job)
        if job.privacy.noise_point != "party":
            raise ValueError(
                "Expected privacy.noise-point = 'party' with objective-perturbation (every party's "
                f"objective has all of its noise), got {job.privacy.noise_point!r}."
            )
        if job.parties.weights != "uniform":
            raise ValueError(
                "Expected parties.weights = 'uniform' with objective-perturbation, got "
                f"{job.parties.weights!r}."
            )


class RajkumarAgarwal(GradientPerturbation):
    """Noise for one round on the average gradient, every round, and a random linear term."""

    models: ClassVar[tuple[str, ...]] = ("logistic",)

    kind: Literal["rajkumar-agarwal"] = Field(  # type: ignore[assignment]
        "rajkumar-agarwal", description=_KIND
    )


class _OfNetwork(AlgorithmSection):
    models: ClassVar[tuple[str, ...]] = ("mlp", "pca-mlp", "cnn", "module:function")
    laws: ClassVar[tuple[str, ...]] = ("gaussian",)

    rounds: int = Field(10, ge=1, le=1_000_000, description=_ROUNDS)
    average: bool = Field(True, description=_AVERAGE)

    def check(self, job: Job) -> None:
        """And what each unit needs."""
        super().check(job)
        if job.privacy.noise_point == "party":
            raise ValueError(
                "Expected privacy.noise-point = 'share' or 'server' with a network, got 'party': "
                "fedavg with unit record adds its noise inside the parties by itself ([dp-sgd])."
            )
        for section, keys, needed in _IDLE_OF_UNIT[job.privacy.unit]:
            check_unchanged(job, section, keys, needed)
        for check in _CHECKS_OF_UNIT[job.privacy.unit]:
            check(job)


class FederatedAveraging(_OfNetwork):
    """Federated averaging of networks, private by `[dp-sgd]`, by noise on the sum, or by both."""

    idle: ClassVar[Idle] = MappingProxyType({"dp_sgd": ("pad_batches",)})
    idle_needs: ClassVar[str] = "algorithm.kind = 'distributed-dp-sgd'"

    kind: Literal["fedavg"] = Field("fedavg", description=_KIND)


class DistributedDPSGD(_OfNetwork):
    """DP-SGD across all parties: a round is a block of steps, each a secure sum with its noise."""

    idle: ClassVar[Idle] = MappingProxyType(
        {
            "dp_sgd": (
                "server_optimiser",
                "server_learning_rate",
                "server_momentum",
                "clipped_fraction_share",
            ),
            "privacy": ("record_bound",),
            "parties": ("weights",),
        }
    )

    kind: Literal["distributed-dp-sgd"] = Field("distributed-dp-sgd", description=_KIND)


class Marginals(AlgorithmSection):
    """Noisy two-way tables of all records, once, and synthetic rows from them."""

    models: ClassVar[tuple[str, ...]] = ("table",)
    laws: ClassVar[tuple[str, ...]] = ("gaussian", "discrete-gaussian")
    releases: ClassVar[int | None] = 1
    rounds: ClassVar[int] = 1
    idle: ClassVar[Idle] = MappingProxyType(
        {
            "dp_sgd": (),
            "run": ("device",),
            "privacy": ("unit", *_BOTH_KEYS),
            "parties": ("weights",),
        }
    )
    idle_needs: ClassVar[str] = "an algorithm that trains a model"

    kind: Literal["marginals"] = Field("marginals", description=_KIND)
    pairs: Literal["all", "label"] | list[tuple[str, str]] = Field(
        "all",
        description="marginals: columns that are counted together: all pairs, each with the label, "
        "or a list of pairs of names.",
    )
    components: int = Field(
        300, ge=1, le=10_000, description="marginals: products of distributions that are fitted."
    )
    steps: int = Field(400, ge=1, le=100_000, description="marginals: steps of the fit.")
    rows: Annotated[int, Field(ge=1, le=10**9)] | Auto = Field(
        "auto", description="marginals: synthetic rows written; auto: the released number."
    )
    seed: int = Field(
        0, ge=0, description="marginals: of the fit and the rows, public; the noise has none of it."
    )

    def check(self, job: Job) -> None:
        """And what noise on counts needs."""
        super().check(job)
        _check_private_sizes(job)
        if not job.privacy.delta:
            raise ValueError("Expected privacy.delta > 0 with marginals, got 0.")


def _check_private_sizes(job: Job) -> None:
    """What a record-level guarantee needs, alone or beside a party-level one."""
    if job.privacy.neighbouring == "replace-one":
        return
    if job.parties.min_records == "auto":
        raise ValueError(
            "Expected parties.min-records, a public number that sums are divided "
            "by, with add-or-remove-one neighbours, got 'auto': every party's own size is "
            "private then."
        )
    if job.parties.weights == "size":
        raise ValueError(
            "Expected parties.weights = 'uniform' with add-or-remove-one neighbours, got "
            "'size': a weight would tell a party's number of records, which is then private."
        )


def _check_replaced_parties(job: Job) -> None:
    """What a party-level guarantee alone needs: there is no record to add or remove."""
    if job.privacy.neighbouring != "replace-one":
        raise ValueError(
            f"Expected replace-one neighbours with privacy.unit = '{job.privacy.unit}', got "
            f"{job.privacy.neighbouring}."
        )


def _check_parties(job: Job) -> None:
    """What a party-level guarantee needs, alone or beside a record-level one."""
    unit = f"privacy.unit = '{job.privacy.unit}'"
    if job.parties.weights != "uniform":
        raise ValueError(
            f"Expected parties.weights = 'uniform' with {unit}, got {job.parties.weights!r}."
        )
    if job.model.components_share:
        raise ValueError(
            f"Expected model.pca = 'public' with {unit}, got 'private': the components' noise "
            "hides one record, not a party."
        )
    if job.parties.count < 2:
        raise ValueError(f"Expected at least 2 parties with {unit}, got {job.parties.count}.")


_OF_RECORDS = ("dp_sgd", ("clipped_fraction_share",), "privacy.unit = 'record'")
_OF_BOTH = ("privacy", _BOTH_KEYS, "privacy.unit = 'both'")
_IDLE_OF_UNIT = {
    "record": (
        _OF_BOTH,
        ("dp_sgd", ("party_clip_norm",), "privacy.unit = 'party' or 'both'"),
        ("privacy", ("calibration",), "another algorithm (DP-SGD is accounted by PLD)"),
    ),
    "party": (
        _OF_RECORDS,
        _OF_BOTH,
        ("dp_sgd", _RECORD_KEYS, "privacy.unit = 'record' or 'both'"),
    ),
    "both": (_OF_RECORDS,),
}
"""`privacy.unit` → keys that do nothing, and what they need."""

_CHECKS_OF_UNIT = {
    "record": (_check_private_sizes,),
    "party": (_check_replaced_parties, _check_parties),
    "both": (_check_private_sizes, _check_parties),
}

Algorithm = (
    OwnAlgorithm
    | GradientPerturbation
    | FederatedAveraging
    | DistributedDPSGD
    | OutputPerturbation
    | ObjectivePerturbation
    | Pathak
    | RajkumarAgarwal
    | Marginals
)

ALGORITHM_SECTIONS: dict[str, type[AlgorithmSection]] = {
    "file.py:Class": OwnAlgorithm,
    "gradient-perturbation": GradientPerturbation,
    "fedavg": FederatedAveraging,
    "distributed-dp-sgd": DistributedDPSGD,
    "output-perturbation": OutputPerturbation,
    "objective-perturbation": ObjectivePerturbation,
    "pathak": Pathak,
    "rajkumar-agarwal": RajkumarAgarwal,
    "marginals": Marginals,
}
"""`algorithm.kind` → its form of the section; keys are printed in this order."""
