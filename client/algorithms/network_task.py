"""The task of federated averaging, described in plain values (see `registry`).

The seed of a simulation travels with it: a party that accepts no seeded noise refuses such a plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal, cast

import torch

from parley.client.algorithms.federated_averaging import FederatedAveraging, ServerStep
from parley.client.algorithms.linear import FederatedAlgorithm
from parley.client.algorithms.registry import LARGEST_MODEL
from parley.client.contract.decoding import DecodingError, facts_from, value_from
from parley.client.contract.model_names import public_name
from parley.client.dp_sgd.training import LocalTraining
from parley.client.models.networks import BUILT_IN, Network, NetworkError

__all__ = ["describe_network_task", "network_task_from"]

_PRECISION: dict[torch.dtype, str] = {torch.float32: "float32", torch.float64: "float64"}
_KEYS = {"kind", "network", "training", "server", "settings"}
_NETWORK_KEYS = {"kind", "features", "classes", "hidden", "precision", "frozen"}


def describe_network_task(algorithm: FederatedAlgorithm) -> dict[str, Any]:
    """Federated averaging as plain JSON values.

    Raises:
        TypeError: another algorithm.
    """
    if not isinstance(algorithm, FederatedAveraging):
        raise TypeError(f"Expected a known algorithm, got {type(algorithm).__name__}.")
    network = algorithm.model
    return {
        "kind": "fedavg",
        "network": {
            "kind": public_name(network.kind),
            "features": network.features,
            "classes": network.classes,
            "hidden": list(network.hidden),
            "precision": _PRECISION[network.dtype],
            "frozen": network.frozen,
        },
        "training": asdict(algorithm.training),
        "server": asdict(algorithm.server),
        "settings": {
            "unit": str(algorithm.unit),
            "update_bound": algorithm.update_bound,
            "rounds": algorithm.rounds,
            "average": algorithm.average,
            "neighbouring": str(algorithm.neighbouring),
            "seed": algorithm.seed,
            "both": algorithm.both,
            "clipped_reach": algorithm.clipped_reach,
        },
    }


def network_task_from(
    value: Mapping[str, Any], *, device: str, own_models: Mapping[str, str]
) -> FederatedAveraging:
    """The inverse of `describe_network_task`.

    Raises:
        DecodingError: not such a description, or a network that cannot be built here.
    """
    if set(value) != _KEYS:
        raise DecodingError(f"Expected the keys {sorted(_KEYS)} in a fedavg task, got others.")
    described = value["network"]
    if not isinstance(described, Mapping) or set(described) != _NETWORK_KEYS:
        raise DecodingError(f"Expected the keys {sorted(_NETWORK_KEYS)} of a network, got others.")
    features = value_from(int, described["features"], "features")
    classes = value_from(int, described["classes"], "classes")
    hidden = value_from(tuple[int, ...], described["hidden"], "hidden")
    if not all(1 <= size <= LARGEST_MODEL for size in (features, classes, *hidden)):
        raise DecodingError(f"Expected sizes of a network from 1 to {LARGEST_MODEL}, got others.")
    kind = value_from(str, described["kind"], "network.kind")
    if kind not in BUILT_IN and kind not in own_models:  # naming one would import and run it
        raise DecodingError(
            f"Expected a network of {', '.join(BUILT_IN)}, or an own model that this party allows "
            "by name, got another."
        )
    precision = value_from(Literal["float32", "float64"], described["precision"], "precision")
    try:
        network = Network.build(
            kind if kind in BUILT_IN else own_models[kind],
            features=features,
            classes=classes,
            hidden=hidden,
            precision=cast(Literal["float32", "float64"], precision),
            device=device,
        )
    except NetworkError as error:
        raise DecodingError(str(error)) from error
    if network.frozen != value_from(str, described["frozen"], "network.frozen"):
        raise DecodingError(
            f"Expected {kind} with the frozen layers of the task, got others: server and parties "
            "need the same file of weights."
        )
    return facts_from(
        FederatedAveraging,
        value["settings"],
        model=network,
        training=facts_from(LocalTraining, value["training"]),
        server=facts_from(ServerStep, value["server"]),
        components=None,
        party=None,
    )
