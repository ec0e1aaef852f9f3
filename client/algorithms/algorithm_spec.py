"""A kind of algorithm: a row of `parley.client.algorithms.registry.ALGORITHMS`.

Also here: what is known of a task's network before torch is loaded: its shape, and a bound on its
size. Its codec, which needs torch, is `parley.client.algorithms.network_task`. A row builds and
refuses: no ε rests on it, since what it built states the claim, and computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from parley.client.contract.model_state import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.strict_decoding import DecodingError, decode_value


@dataclass(frozen=True, kw_only=True)
class PartyResources:
    """What a task's decoding may use of the machine that it is decoded on.

    Attributes:
        own_models: models of the party's own code that it allows: their names → where they are.
    """

    device: str = "cpu"
    own_models: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def _accept_anything(*_: Any) -> None:
    """Nothing more to check."""


def _return_unchanged(algorithm: Any, _: Any) -> Any:
    return algorithm


@dataclass(frozen=True, kw_only=True)
class AlgorithmSpec:
    """All that server, party and report know of one algorithm beside its own functions.

    Attributes:
        bounded: how the report goes on after "every row is scaled to Euclidean norm at most 1".
        remedy: Settings of another algorithm that loses less at the same ε.
        advice: Why it does, without a full stop; `{remedy}` stands for the settings.
        to_task: the algorithm as plain JSON values, without its kind.
        from_task: the inverse, strict. Raises DecodingError.
        parse_size: name of the task's model (empty: none) and a lower bound on its parameters, from
            the description alone. Raises DecodingError.
        check: refuses a task that claims enough but contributes nothing, or something else than
            its plan says. Raises Declined.
        bind: the algorithm for a party's own schema, where it reads raw columns. Raises Declined.
        check_state: refuses a model at which the claim does not hold. Raises Declined.
        trains_network: parties train a network, with torch.
        before_rounds: it is one release ahead of the rounds, numbered 0.
        after_rounds: it is one release after them, of the records that its data set holds out.
        summed: its `update` takes the noisy sum, which it divides by a public number; otherwise the
            average, over the survivors' weights.
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
    bind: Callable[[Any, Any], Any] = _return_unchanged
    trains_network: bool = False
    before_rounds: bool = False
    after_rounds: bool = False
    summed: bool = False


def get_settings(algorithm: Any, *excluded: str) -> dict[str, Any]:
    """The fields of an algorithm but for some, as plain JSON values."""
    values = {each.name: getattr(algorithm, each.name) for each in fields(algorithm)}
    return {
        name: str(value) if isinstance(value, Enum) else value
        for name, value in values.items()
        if name not in excluded
    }


def check_keys(task: Mapping[str, Any], *keys: str) -> None:
    """Raises DecodingError unless a task has its kind and exactly these keys."""
    if set(task) != {"kind", *keys}:
        raise DecodingError(f"Expected exactly the keys kind, {', '.join(keys)} in a task.")


def compute_min_parameters(widths: Sequence[Any], *, layered: bool = True) -> int:
    """A lower bound on the parameters of layers of such widths, from values that came.

    Of a convolutional network, or one's own code, sizes alone bound little: the widest counts.

    Raises DecodingError.
    """
    if not all(type(width) is int and 0 < width < 2**40 for width in widths):
        raise DecodingError("Expected a model with whole sizes from 1 to 2^40, got others.")
    return sum(a * b for a, b in pairwise(widths)) if layered else max(widths)


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


def get_network_shape(task: Mapping[str, Any]) -> NetworkShape:
    """What is known of the network that a task names; nothing where it names none."""
    network = task.get("network")
    kind = network.get("kind") if isinstance(network, Mapping) else None
    return NETWORKS.get(kind, NetworkShape()) if isinstance(kind, str) else NetworkShape()


def parse_network_size(task: Mapping[str, Any]) -> tuple[str, int]:
    """The network, and the sum of its layers' products where it has plain layers."""
    network = task.get("network")
    if not isinstance(network, Mapping) or not isinstance(network.get("hidden"), list):
        raise DecodingError("Expected a network and its hidden layers, got none.")
    name = decode_value(str, network.get("kind"), "network.kind")
    widths = [network.get("features"), *network["hidden"], network.get("classes")]
    return name, compute_min_parameters(widths, layered=get_network_shape(task).layered)
