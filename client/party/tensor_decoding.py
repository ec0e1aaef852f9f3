"""Strict decoding of a server's tensors: a round's model, and components.

Whatever they contain, what a release may disclose about a record is bounded. No ε rests on this.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.contract.agreement import Agreement
from parley.client.contract.model_state_encoding import State
from parley.client.contract.refusals import Declined, Reason, decline_errors
from parley.module_loading.plugin_table import load_attribute

_HEADER_BYTES = 1 << 16


def decode_components(agreement: Agreement) -> NDArray[np.float64] | None:
    """Return `[p, k]` components that rows are projected on; None if there are none.

    Raises:
        Declined: protocol.
    """
    if not agreement.components:
        return None
    tensors = _decode_tensors(agreement.components)
    if set(tensors) != {"components"}:
        raise Declined(Reason.PROTOCOL, f"Expected only components, got {sorted(tensors)!s:.200}.")
    check_components = load_attribute("parley.client.algorithms.pca_projection:check_components")
    with decline_errors(Reason.PROTOCOL, ValueError):
        check_components(tensors["components"])
    return np.asarray(tensors["components"])


def decode_model_state(blob: bytes, algorithm: FederatedAlgorithm) -> State:
    """Return the model that a round starts from: safetensors of `theta` and further arrays.

    Raises:
        Declined: protocol.
    """
    expected = {name: array.shape for name, array in algorithm.init().items()}
    max_bytes = sum(8 * int(np.prod(shape)) for shape in expected.values()) + _HEADER_BYTES
    if len(blob) > max_bytes:
        raise Declined(
            Reason.PROTOCOL, f"Expected at most {max_bytes} bytes of state, got {len(blob)}."
        )
    state = _decode_tensors(blob)
    if "theta" not in state or not set(state) <= set(expected):
        got = f"{sorted(state)!s:.200}"
        raise Declined(Reason.PROTOCOL, f"Expected theta among {sorted(expected)}, got {got}.")
    for name, array in state.items():
        if array.dtype != np.float64 or array.shape != expected[name]:
            raise Declined(
                Reason.PROTOCOL,
                f"Expected {name} as float64 {expected[name]}, got {array.dtype} {array.shape}.",
            )
        if not np.isfinite(array).all():
            raise Declined(Reason.PROTOCOL, f"Expected {name} to be finite.")
    return state


def _decode_tensors(blob: bytes) -> dict[str, NDArray[Any]]:
    try:
        return dict(load(blob))
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Declined(Reason.PROTOCOL, f"No safetensors: {type(error).__name__}.") from error
