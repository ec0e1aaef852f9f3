"""How they learn: `[algorithm]`, a section of another form for each `kind`.

A form holds its own keys, and is the row of its kind: which models and noise laws it takes, which
keys of other sections would do nothing, and what contradicts it. One's own algorithm has one form,
whose `settings` are the fields of its class.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from parley.privacy.accounting.rounding import as_written
from parley.server.jobs.algorithm_section import (
    BOTH_KEYS,
    KIND,
    AlgorithmSection,
    Idle,
    check_private_sizes,
)
from parley.server.jobs.naming import TextSettings
from parley.server.jobs.section import Auto, Positive, check_unchanged
from parley.server.jobs.synthetic import Marginals, RandomFeatures
from parley.server.jobs.whole import WholeJob

_ROUNDS = (
    "Rounds T (output-perturbation has one). auto, with a linear model: T, momentum, nesterov, "
    "average and clip-norm, as far as they are not given, by a rule that looks at λ and the loss "
    "alone (docs/methods.md); the job that a run keeps has the numbers."
)
_AVERAGE = "Report the mean of the later half of the iterates (post-processing, free)."
_RECORD_KEYS = ("clip_norm", "noise_multiplier", "per_example_method")

_LINEAR_IDLE: Idle = MappingProxyType(
    {"dp_sgd": (), "run": ("device",), "privacy": ("unit", "neighbouring", *BOTH_KEYS)}
)


class OwnAlgorithm(AlgorithmSection):
    """One's own, 'file.py:Class' or 'module:Class'."""

    models: ClassVar[tuple[str, ...]] = ("none",)
    idle: ClassVar[Idle] = MappingProxyType(
        {"dp_sgd": (), "privacy": BOTH_KEYS, "run": ("device",)}
    )
    idle_needs: ClassVar[str] = "an algorithm of Parley's; your own has algorithm.settings"

    settings: TextSettings = Field(
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

    idle: ClassVar[Idle] = MappingProxyType({**_LINEAR_IDLE, "privacy": ("unit", *BOTH_KEYS)})

    kind: Literal["gradient-perturbation"] = Field("gradient-perturbation", description=KIND)

    def check(self, job: WholeJob) -> None:
        """And what private sizes need."""
        super().check(job)
        check_private_sizes(job)
        if self.nesterov and not self.momentum:
            raise ValueError("Expected algorithm.momentum > 0 with nesterov = true, got 0.")


class OutputPerturbation(_OfLinearModel):
    """Noise once, on the average of certified local optima.

    It makes no steps on the server; their keys may stand there, so that a job can be run both ways.
    """

    noise: ClassVar[str] = "l2-laplace"
    releases: ClassVar[int | None] = 1

    kind: Literal["output-perturbation"] = Field("output-perturbation", description=KIND)
    relative_tolerance: float = Field(
        1e-3,
        gt=0,
        le=1,
        description="output-perturbation: κ; every local optimum is certified to a gradient norm "
        "≤ κG/n, which adds the factor 1+κ to the sensitivity.",
    )

    def check(self, job: WholeJob) -> None:
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

    kind: Literal["pathak"] = Field("pathak", description=KIND)  # type: ignore[assignment]


class ObjectivePerturbation(OutputPerturbation):
    """Noise inside every party's objective, and on the optimum that its solver certified."""

    models: ClassVar[tuple[str, ...]] = ("logistic",)
    laws: ClassVar[tuple[str, ...]] = ("l2-laplace",)

    kind: Literal["objective-perturbation"] = Field(  # type: ignore[assignment]
        "objective-perturbation", description=KIND
    )

    def check(self, job: WholeJob) -> None:
        """And noise that is inside the parties."""
        super().check(job)
        if not job.privacy.point.private_alone:
            raise ValueError(
                "Expected privacy.noise-point = 'party' with objective-perturbation (every party's "
                f"objective has all of its noise), got {job.privacy.noise_point!r}."
            )
        if weights := job.model.weights_of_classes:
            raise ValueError(
                "Expected model.class-weights = [] with objective-perturbation (its theorem is "
                f"shown for |ℓ′| ≤ 1), got {list(weights)}. gradient-perturbation and "
                "output-perturbation take them."
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
        "rajkumar-agarwal", description=KIND
    )


class _OfNetwork(AlgorithmSection):
    models: ClassVar[tuple[str, ...]] = ("mlp", "pca-mlp", "cnn", "module:function")
    laws: ClassVar[tuple[str, ...]] = ("gaussian",)
    samples: ClassVar[bool] = True

    rounds: int = Field(10, ge=1, le=1_000_000, description=_ROUNDS)
    average: bool = Field(True, description=_AVERAGE)

    def check(self, job: WholeJob) -> None:
        """And what each unit needs."""
        super().check(job)
        if job.privacy.point.private_alone:
            raise ValueError(
                "Expected privacy.noise-point = 'share' or 'server' with a network, got "
                f"{job.privacy.noise_point!r}: "
                "fedavg with unit record adds its noise inside the parties by itself ([dp-sgd])."
            )
        _check_sampled_parties(job)
        for section, keys, needed in _IDLE_OF_UNIT[job.privacy.unit]:
            check_unchanged(job, section, keys, needed)
        for check in _CHECKS_OF_UNIT[job.privacy.unit]:
            check(job)


class FederatedAveraging(_OfNetwork):
    """Federated averaging of networks, private by `[dp-sgd]`, by noise on the sum, or by both."""

    idle: ClassVar[Idle] = MappingProxyType({"dp_sgd": ("pad_batches",)})
    idle_needs: ClassVar[str] = "algorithm.kind = 'distributed-dp-sgd'"

    kind: Literal["fedavg"] = Field("fedavg", description=KIND)


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

    kind: Literal["distributed-dp-sgd"] = Field("distributed-dp-sgd", description=KIND)


def _check_sampled_parties(job: WholeJob) -> None:
    """What sampled parties go with."""
    parties, unit = job.parties, job.privacy.unit
    if parties.per_round == "all":
        return
    if unit == "both":
        raise ValueError(
            "Expected privacy.unit = 'party' or 'record' with parties.per-round, got 'both'."
        )
    if unit == "record" and parties.presence != "auto":
        raise ValueError(
            "Expected parties.presence = 'auto' with privacy.unit = 'record' (it says what a party "
            "is charged; a record has one account, whether its party's rounds are known or not), "
            f"got {parties.presence!r}."
        )
    if isinstance(parties.per_round, float) and parties.per_round <= job.privacy.delta:
        raise ValueError(
            f"Expected parties.per-round above privacy.delta = {as_written(job.privacy.delta)}, "
            "which would cover every sum that a party is in, whatever its noise, "
            f"got {parties.per_round:g}."
        )
    check_unchanged(job, "dp_sgd", ("clipped_fraction_share",), "parties.per-round = 'all'")


def _check_parties(job: WholeJob) -> None:
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
_OF_BOTH = ("privacy", BOTH_KEYS, "privacy.unit = 'both'")
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
    "record": (check_private_sizes,),
    "party": (check_private_sizes, _check_parties),
    "both": (check_private_sizes, _check_parties),
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
    | RandomFeatures
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
    "random-features": RandomFeatures,
}
"""`algorithm.kind` → its form of the section; keys are printed in this order."""
