"""Optimisers: post-processing of noisy gradients, in a party for a round, or at the server.

Each operation rounds once, value by value, so that none depends on where it stands: torch's fused
kernels round a product and a sum at once in some places of an array and not in others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from parley.client.dp_sgd.settings import LocalTraining


def direction(
    gradient: Any, first: Any, second: Any, count: float, config: LocalTraining
) -> tuple[Any, Any, Any]:
    """Where step `count` leads, before the rate, and the moments after it; arrays or tensors.

    SGD with momentum, or Adam (Kingma & Ba 2015), whose moments begin at 0.
    """
    if config.optimiser == "adam":
        first = first + 0.1 * (gradient - first)
        second = second + 0.001 * (gradient * gradient - second)
        root = (second / (1 - 0.999**count)) ** 0.5 + 1e-8
        return first / (1 - 0.9**count) / root, first, second
    if config.momentum:
        first = config.momentum * first + gradient
        return first, first, second
    return gradient, first, second


def stepped(
    state: dict[str, NDArray[np.float64]], gradient: NDArray[np.float64], config: LocalTraining
) -> dict[str, NDArray[np.float64]]:
    """The state after one step along `gradient` `[d]`, at the server.

    Args:
        state: `theta`, `round` (steps done), and the moments that the optimiser has: `first` with
            momentum or adam, `second` with adam.
    """
    done = state["round"] + 1
    before = state.get("first"), state.get("second")
    step, *after = direction(gradient, *before, float(done[0]), config)
    moments = {n: m for n, m in zip(("first", "second"), after, strict=True) if n in config.moments}
    theta = state["theta"] - config.learning_rate * step
    return {**state, **moments, "theta": theta, "round": done}
