"""A network within a task: its codec and its size (see `registry`).

Apart from the algorithms that train networks, which need torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

from parley.client.algorithms.kind import LARGEST_MODEL, Party, plain_size
from parley.client.contract.decoding import DecodingError, value_from
from parley.client.contract.model_names import public_name

if TYPE_CHECKING:
    from parley.client.models.networks import Network

__all__ = ["described", "network_from", "size"]

_KEYS = {"kind", "features", "classes", "hidden", "precision", "frozen"}


def described(network: Network) -> dict[str, Any]:
    """A network as plain JSON values."""
    weights = network.losses.weights
    return {
        "kind": public_name(network.kind),
        "features": network.features,
        "classes": network.classes,
        "hidden": list(network.hidden),
        "precision": str(network.dtype).removeprefix("torch."),
        "frozen": network.frozen,
        **({"class_weights": list(weights)} if weights else {}),
    }


def network_from(value: Any, party: Party) -> Network:
    """The inverse of `described`.

    Raises:
        DecodingError: not such a description, or a network that cannot be built here.
    """
    from parley.client.models.networks import BUILT_IN, Network, NetworkError  # noqa: PLC0415 - start-up: torch takes a second

    if not isinstance(value, Mapping) or set(value) - {"class_weights"} != _KEYS:
        raise DecodingError(f"Expected the keys {sorted(_KEYS)} of a network, got others.")
    features = value_from(int, value["features"], "features")
    classes = value_from(int, value["classes"], "classes")
    weights = value_from(tuple[float, ...], value.get("class_weights", []), "class_weights")
    if "class_weights" in value and not weights:  # one way to say none
        raise DecodingError("Expected class weights or no such key, got an empty list.")
    hidden = value_from(tuple[int, ...], value["hidden"], "hidden")
    if not all(1 <= width <= LARGEST_MODEL for width in (features, classes, *hidden)):
        raise DecodingError(f"Expected sizes of a network from 1 to {LARGEST_MODEL}, got others.")
    kind = value_from(str, value["kind"], "network.kind")
    if kind not in BUILT_IN and kind not in party.own_models:  # naming one would import and run it
        raise DecodingError(
            f"Expected a network of {', '.join(BUILT_IN)}, or an own model that this party allows "
            "by name, got another."
        )
    precision = value_from(Literal["float32", "float64"], value["precision"], "precision")
    try:
        network = Network.build(
            kind if kind in BUILT_IN else party.own_models[kind],
            features=features,
            classes=classes,
            hidden=hidden,
            class_weights=weights,
            precision=cast(Literal["float32", "float64"], precision),
            device=party.device,
        )
    except NetworkError as error:
        raise DecodingError(str(error)) from error
    if network.frozen != value_from(str, value["frozen"], "network.frozen"):
        raise DecodingError(
            f"Expected {kind} with the frozen layers of the task, got others: server and parties "
            "need the same file of weights."
        )
    return network


def size(task: Mapping[str, Any]) -> tuple[str, int]:
    """The network, and the sum of its layers' products where it has plain layers."""
    network = task.get("network")
    if not isinstance(network, Mapping) or not isinstance(network.get("hidden"), list):
        raise DecodingError("Expected a network with hidden layers, got another.")
    name = value_from(str, network.get("kind"), "network.kind")
    widths = [network.get("features"), *network["hidden"], network.get("classes")]
    return name, plain_size(widths, layered=name in {"mlp", "pca-mlp"})
