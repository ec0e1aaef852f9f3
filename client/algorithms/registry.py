"""The task: what a party computes in a run, described in plain values that travel.

`describe_task(algorithm)` says everything that `local` depends on; `task_from` builds the algorithm
again on the party's side, from values alone: a server can name a model, it cannot send code.

    >>> from parley.client.algorithms.linear import GradientPerturbation
    >>> from parley.client.models.linear import LinearModel, Logistic
    >>> algorithm = GradientPerturbation(
    ...     model=LinearModel(kind=Logistic(), features=3), lambda_=0.01, lipschitz=1.0,
    ...     weights="uniform", rounds=10, learning_rate=0.5, momentum=0.0, average=True,
    ... )
    >>> task_from(describe_task(algorithm)) == algorithm
    True
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from parley.client.algorithms.linear import (
    FederatedAlgorithm,
    GradientPerturbation,
    OutputPerturbation,
)
from parley.client.algorithms.second_moments import SecondMoments, Triangle
from parley.client.contract.decoding import DecodingError, facts_from, value_from
from parley.client.models.linear import LinearModel
from parley.client.models.losses import HuberSVM, Logistic, Loss, Softmax, SquaredLoss

if TYPE_CHECKING:
    from parley.client.algorithms.federated_averaging import FederatedAveraging

__all__ = ["LARGEST_MODEL", "describe_task", "for_party", "task_from"]

LARGEST_MODEL = 10**8
"""Most features or units of a layer that a task may ask for."""

_LINEAR: dict[str, type[GradientPerturbation] | type[OutputPerturbation]] = {
    "gradient-perturbation": GradientPerturbation,
    "output-perturbation": OutputPerturbation,
}
_LOSSES: dict[str, type[Loss]] = {
    "logistic": Logistic,
    "softmax": Softmax,
    "ridge": SquaredLoss,
    "huber-svm": HuberSVM,
}


def describe_task(algorithm: FederatedAlgorithm) -> dict[str, Any]:
    """The algorithm as plain JSON values."""
    if isinstance(algorithm, GradientPerturbation | OutputPerturbation):
        (kind,) = [name for name, known in _LINEAR.items() if isinstance(algorithm, known)]
        loss = algorithm.model.kind
        (name,) = [name for name, known in _LOSSES.items() if type(loss) is known]
        settings = asdict(algorithm)
        described = settings.pop("model")
        model = {"loss": {"kind": name, **described["kind"]}, "features": described["features"]}
        return {"kind": kind, "model": model, "settings": settings}
    if isinstance(algorithm, SecondMoments):
        return {
            "kind": "second-moments",
            "features": algorithm.model.features,
            "settings": {"neighbouring": str(algorithm.neighbouring), "bound": algorithm.bound},
        }
    from parley.client.algorithms.network_task import describe_network_task

    return describe_network_task(algorithm)


def task_from(
    value: Any, *, device: str = "cpu", own_models: Mapping[str, str] = MappingProxyType({})
) -> GradientPerturbation | OutputPerturbation | SecondMoments | FederatedAveraging:
    """The algorithm that `describe_task` described.

    Args:
        value: what came.
        device: where networks train on this machine.
        own_models: models of the party's own code that it allows: their names → where they are.

    Raises:
        DecodingError: not such a description, or values that the algorithm refuses.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        raise DecodingError("Expected a task with a kind, got another value.")
    kind = value["kind"]
    if kind == "fedavg":
        # Imported here: networks need torch, linear models do not.
        from parley.client.algorithms.network_task import network_task_from

        return network_task_from(value, device=device, own_models=own_models)
    if kind == "second-moments":
        return _second_moments(value)
    if kind not in _LINEAR or set(value) != {"kind", "model", "settings"}:
        known = ", ".join([*_LINEAR, "second-moments", "fedavg"])
        raise DecodingError(f"Expected a task of {known}, got another.")
    return facts_from(_LINEAR[kind], value["settings"], model=_linear_model(value["model"]))


def for_party(algorithm: FederatedAlgorithm, index: int) -> FederatedAlgorithm:
    """The algorithm of one party alone: what it draws from a seed is its own."""
    if isinstance(algorithm, GradientPerturbation | OutputPerturbation | SecondMoments):
        return algorithm
    settings: dict[str, Any] = {"party": index}
    networked: Any = algorithm
    return cast(FederatedAlgorithm, replace(networked, **settings))


def _second_moments(value: Mapping[str, Any]) -> SecondMoments:
    if set(value) != {"kind", "features", "settings"}:
        raise DecodingError("Expected features and settings in a second-moments task, got others.")
    features = value_from(int, value["features"], "features")
    if not 1 <= features <= LARGEST_MODEL:
        raise DecodingError(f"Expected 1 to {LARGEST_MODEL} features, got another number.")
    return facts_from(SecondMoments, value["settings"], model=Triangle(features=features))


def _linear_model(value: Any) -> LinearModel:
    if not isinstance(value, Mapping) or set(value) != {"loss", "features"}:
        raise DecodingError("Expected a linear model's loss and features, got others.")
    features = value_from(int, value["features"], "features")
    loss = value["loss"]
    known = isinstance(loss, Mapping) and isinstance(loss.get("kind"), str)
    if not known or loss["kind"] not in _LOSSES:
        raise DecodingError(f"Expected a loss of {', '.join(_LOSSES)}, got another.")
    settings = {key: setting for key, setting in loss.items() if key != "kind"}
    kind = facts_from(_LOSSES[loss["kind"]], settings)
    if not 1 <= features <= LARGEST_MODEL or getattr(kind, "classes", 2) > LARGEST_MODEL:
        raise DecodingError(f"Expected 1 to {LARGEST_MODEL} features and classes, got others.")
    return LinearModel(kind=kind, features=features)
