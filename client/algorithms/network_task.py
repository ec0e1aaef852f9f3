"""What is known of a task's network before torch is loaded: its shape, and a bound on its size.

Its codec, which needs torch, is `parley.client.algorithms.network_codec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parley.client.algorithms.kind import plain_size
from parley.client.contract.decoding import DecodingError, value_from


@dataclass(frozen=True, kw_only=True)
class NetworkShape:
    """What a task's name of a network says before torch is loaded.

    Attributes:
        layered: it has plain layers alone, whose sizes say how many parameters it has.
    """

    layered: bool = False
    projected: bool = False


NETWORKS: dict[str, NetworkShape] = {
    "mlp": NetworkShape(layered=True),
    "pca-mlp": NetworkShape(layered=True, projected=True),
    "cnn": NetworkShape(),
}
"""Parley's own networks; of another's code nothing is known."""


def network_of(task: Mapping[str, Any]) -> NetworkShape:
    """What is known of the network that a task names; nothing where it names none."""
    network = task.get("network")
    kind = network.get("kind") if isinstance(network, Mapping) else None
    return NETWORKS.get(kind, NetworkShape()) if isinstance(kind, str) else NetworkShape()


def network_size(task: Mapping[str, Any]) -> tuple[str, int]:
    """The network, and the sum of its layers' products where it has plain layers."""
    network = task.get("network")
    if not isinstance(network, Mapping) or not isinstance(network.get("hidden"), list):
        raise DecodingError("Expected a network and its hidden layers, got none.")
    name = value_from(str, network.get("kind"), "network.kind")
    widths = [network.get("features"), *network["hidden"], network.get("classes")]
    return name, plain_size(widths, layered=network_of(task).layered)
