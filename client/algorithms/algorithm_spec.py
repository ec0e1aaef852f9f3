"""`AlgorithmSpec`: a row of `parley.client.algorithms.registry.ALGORITHMS`.

A row builds an algorithm from a task and refuses bad tasks. No ε depends on a row: the algorithm
that it builds states the claim and computes the contribution.

`NetworkShape` and `parse_network_size` describe a task's network before torch is loaded. The codec
of such tasks needs torch and is `parley.client.algorithms.network_task_codec`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from parley.client.contract.model_state_encoding import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.strict_decoding import DecodingError, decode_value


@dataclass(frozen=True, kw_only=True)
class PartyResources:
    """Resources of the local machine that the decoding of a task may use.

    Attributes:
        own_models: user-defined models that the party allows: their names → their paths.
    """

    device: str = "cpu"
    own_models: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def _accept_anything(*_: Any) -> None:
    """Accept the task without a further check."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmSpec:
    """What server, party and report need to know about an algorithm, besides its functions.

    Attributes:
        bounded: continuation of the report's sentence "every row is scaled to Euclidean norm at
            most 1".
        remedy: settings of another algorithm that loses less at the same ε.
        advice: why it loses less, without a full stop; `{remedy}` is replaced by the settings.
        to_task: function from the algorithm to plain JSON values, without its kind.
        from_task: its strict inverse. Raises DecodingError.
        parse_size: function from the description to the name of the task's model (empty: none) and
            a lower bound on its parameters. Raises DecodingError.
        check: refuses a task that claims enough but contributes nothing, or not what its plan
            states. Raises Declined.
        bind: returns the algorithm for a party's own schema, if it reads raw columns. Raises
            Declined.
        check_state: refuses a model at which the claim does not hold. Raises Declined.
        build: Builds the algorithm from the settings of a job, features and classes, if these are
            the fields of its class.
        answers_queries: Whether it releases the answers of queries.
        trains_network: whether parties train a network, with torch.
        before_rounds: whether it is one release before the rounds, numbered 0.
        after_rounds: whether it is one release after the rounds, on held-out records.
        summed: whether `update` takes the noisy sum and divides it by a public number. Otherwise it
            takes the average, over the survivors' weights.
    """

    title: str
    bounded: str = ""
    remedy: tuple[str, ...] = ()
    advice: str = ""
    to_task: Callable[[Any], dict[str, Any]]
    from_task: Callable[[Mapping[str, Any], PartyResources], Any]
    parse_size: Callable[[Mapping[str, Any]], tuple[str, int]]
    check: Callable[[Any, ReleasePlan], None] = _accept_anything
    check_state: Callable[[Any, State], None] = _accept_anything
    bind: Callable[[Any, Any], Any] = lambda algorithm, _: algorithm
    build: Callable[[Mapping[str, Any], int, int], Any] | None = None
    answers_queries: bool = False
    trains_network: bool = False
    before_rounds: bool = False
    after_rounds: bool = False
    summed: bool = False


def get_settings(algorithm: Any, *excluded: str) -> dict[str, Any]:
    """Return the fields of an algorithm except some, as plain JSON values."""
    names = [each.name for each in fields(algorithm) if each.name not in excluded]
    values = {name: getattr(algorithm, name) for name in names}
    return {n: str(value) if isinstance(value, Enum) else value for n, value in values.items()}


def check_keys(task: Mapping[str, Any], *keys: str) -> None:
    """Raise DecodingError unless a task has its kind and exactly these keys."""
    if set(task) != {"kind", *keys}:
        raise DecodingError(f"Expected exactly the keys kind, {', '.join(keys)} in a task.")


def compute_min_parameters(widths: Sequence[Any], *, layered: bool = True) -> int:
    """Return a lower bound on the parameters of layers of these widths, which a peer sent.

    The sizes of a convolutional network, or of user-defined code, bound little: return the widest.

    Raises DecodingError.
    """
    if not all(type(width) is int and 0 < width < 2**40 for width in widths):
        raise DecodingError("Expected a model with whole sizes from 1 to 2^40, got others.")
    return sum(a * b for a, b in pairwise(widths)) if layered else max(widths)


@dataclass(frozen=True, kw_only=True)
class NetworkShape:
    """What the name of a task's network implies before torch is loaded.

    Attributes:
        layered: it has only plain layers, whose sizes determine the number of parameters.
    """

    layered: bool = False
    projected: bool = False


NETWORKS: dict[str, NetworkShape] = {
    "mlp": NetworkShape(layered=True),
    "pca-mlp": NetworkShape(layered=True, projected=True),
    "cnn": NetworkShape(),
}
"""Parley's own networks. The shape of user-defined ones is unknown."""


def get_network_shape(task: Mapping[str, Any]) -> NetworkShape:
    """Return the shape of the network that a task names; an empty shape if it names none."""
    network = task.get("network")
    kind = network.get("kind") if isinstance(network, Mapping) else None
    return NETWORKS.get(kind, NetworkShape()) if isinstance(kind, str) else NetworkShape()


def parse_network_size(task: Mapping[str, Any]) -> tuple[str, int]:
    """Return the network's name and a lower bound on its parameters.

    The bound is the sum of products of adjacent widths if all layers are plain.
    """
    network = task.get("network")
    if not isinstance(network, Mapping) or not isinstance(network.get("hidden"), list):
        raise DecodingError("Expected a network and its hidden layers, got none.")
    name = decode_value(str, network.get("kind"), "network.kind")
    widths = [network.get("features"), *network["hidden"], network.get("classes")]
    return name, compute_min_parameters(widths, layered=get_network_shape(task).layered)
