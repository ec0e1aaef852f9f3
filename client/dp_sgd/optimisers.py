"""Optimisers: post-processing of noisy gradients, in a party for one round, or on the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.model_state_encoding import State
from parley.client.dp_sgd.training_settings import LocalTraining


def compute_direction(
    gradient: Any, first: Any, second: Any, count: float, config: LocalTraining
) -> tuple[Any, Any, Any]:
    """Return step `count`'s direction, before the rate, and the moments after it; arrays or
    tensors.

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


def apply_step(
    state: dict[str, NDArray[np.float64]], gradient: NDArray[np.float64], config: LocalTraining
) -> dict[str, NDArray[np.float64]]:
    """Return the state after one step along `gradient` `[d]`, on the server.

    Args:
        state: `theta`, `round` (steps done), and the optimiser's moments: `first` with momentum or
            adam, `second` with adam.
    """
    done = state["round"] + 1
    before = state.get("first"), state.get("second")
    step, *after = compute_direction(gradient, *before, float(done[0]), config)
    moments = {n: m for n, m in zip(("first", "second"), after, strict=True) if n in config.moments}
    theta = state["theta"] - config.learning_rate * step
    return {**state, **moments, "theta": theta, "round": done}


def build_server_state(theta: NDArray[np.float64]) -> State:
    """Return the state before the first round: θ, and zeros for moments, mean and rounds done."""
    zero = np.zeros_like(theta)
    return {"theta": theta, "first": zero, "second": zero, "average": zero, "round": np.zeros(1)}


@dataclass(frozen=True, kw_only=True)
class ServerStep:
    """The server's step along the average update.

    Attributes:
        kind: averaging θ ← θ + ηv̄; momentum m ← βm + v̄, θ ← θ + ηm; adam.
    """

    kind: Literal["averaging", "momentum", "adam"]
    learning_rate: float
    momentum: float

    def __call__(self, state: State, average: NDArray[np.float64]) -> State:
        """Return θ and moments after one step."""
        theta, after = state["theta"], {**state, "round": state["round"] + 1}
        if self.kind == "averaging":
            return {**after, "theta": theta + self.learning_rate * average}
        if self.kind == "momentum":
            first = self.momentum * state["first"] + average
            return {**after, "theta": theta + self.learning_rate * first, "first": first}
        first = self.momentum * state["first"] + (1 - self.momentum) * average
        second = 0.99 * state["second"] + 0.01 * average**2
        # Reddi et al. 2021, Algorithm 2: no bias correction, τ = 10⁻³ in the denominator.
        moved = theta + self.learning_rate * first / (np.sqrt(second) + 1e-3)
        return {**after, "theta": moved, "first": first, "second": second}
