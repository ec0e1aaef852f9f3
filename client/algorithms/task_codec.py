"""Encode and decode the task: what a party computes, in plain values that travel.

`describe_task(algorithm)` contains everything that `local` depends on. `decode_task` builds the
algorithm again on the party's side, only from values: a server can name an algorithm or a model but
cannot send code. No ε depends on how the algorithm was built: the same object states the claim that
its plan is checked against, and computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, cast

from parley.client.algorithms.algorithm_spec import PartyResources
from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.registry import ALGORITHMS, get_algorithm_spec
from parley.client.contract.strict_decoding import DecodingError, format_received
from parley.client.own_code.own_code_names import is_own_code


def describe_task(algorithm: FederatedAlgorithm) -> dict[str, Any]:
    """Return the algorithm as plain JSON values."""
    kind = algorithm.kind
    if is_own_code(kind):
        return {"kind": kind, "settings": asdict(cast(Any, algorithm))}
    return {"kind": kind, **ALGORITHMS[kind].to_task(algorithm)}


def decode_task(
    value: Any,
    *,
    device: str = "cpu",
    own_models: Mapping[str, str] = MappingProxyType({}),
    own_algorithms: Mapping[str, str] = MappingProxyType({}),
) -> FederatedAlgorithm:
    """Build the algorithm that `describe_task` described. Raises DecodingError.

    Args:
        own_models: user-defined models that the party allows: their names → their paths.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        got = format_received(value)
        raise DecodingError(f"Expected a task with a kind, got {got} without one.")
    kind = value["kind"]
    if kind not in ALGORITHMS and kind not in own_algorithms:  # its name would import it
        known = ", ".join([*ALGORITHMS, *own_algorithms])
        raise DecodingError(f"Expected a task of {known}, got {format_received(kind)}.")
    row = get_algorithm_spec(own_algorithms.get(kind, kind))
    algorithm = row.from_task(value, PartyResources(device=device, own_models=own_models))
    return cast(FederatedAlgorithm, algorithm)
