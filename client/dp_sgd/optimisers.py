"""Optimisers: post-processing of noisy gradients, in a party for a round, or at the server.

`Optimiser` works in place on a party's parameters, `InPlace` on those of many; both begin anew
every round. `stepped` goes from state to state, for a run's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from parley.client.dp_sgd.settings import LocalTraining


class InPlace:
    """The same of many parties' parameters `[B, d]`, in numpy and without new memory.

    Value by value, with one rounding each, so that none depends on where it stands. Torch's kernels
    promise that not: the ends of their loops may round a product and a sum at once.
    """

    def __init__(self, config: LocalTraining, theta: NDArray[np.floating]) -> None:
        """With moments of zero."""
        self.config, self.theta, self.count = config, theta, 0
        shape = theta.shape if config.moments else (0,)
        self.first, self.second = np.zeros(shape, theta.dtype), np.zeros(shape, theta.dtype)
        self._root = np.empty(theta.shape if config.optimiser == "adam" else (0,), theta.dtype)

    def step(self, gradient: NDArray[np.floating]) -> None:
        """One step along a gradient `[B, d]`, which is overwritten."""
        config, first = self.config, self.first
        self.count += 1
        if config.optimiser == "adam":
            root = self._root
            first *= 0.9
            first += np.multiply(gradient, 0.1, out=root)
            self.second *= 0.999
            gradient *= gradient
            self.second += np.multiply(gradient, 0.001, out=root)
            np.divide(self.second, 1 - 0.999**self.count, out=root)
            np.sqrt(root, out=root)
            root += 1e-8
            np.divide(first, 1 - 0.9**self.count, out=gradient)
            gradient /= root
        elif config.momentum:
            first *= config.momentum
            first += gradient
            gradient[:] = first
        gradient *= config.learning_rate
        self.theta -= gradient


@dataclass
class Optimiser:
    """SGD with momentum, or Adam (Kingma & Ba 2015), on flat parameters in place."""

    config: LocalTraining
    first: Tensor
    second: Tensor
    count: int = 0

    @classmethod
    def begin(cls, config: LocalTraining, theta: Tensor) -> Optimiser:
        """With moments of zero."""
        shape = theta.shape if config.moments else (0,)
        first, second = (theta.new_zeros(shape) for _ in range(2))
        return cls(config, first, second)

    def step(self, theta: Tensor, gradient: Tensor) -> None:
        """One step along a gradient; changes `theta`."""
        config = self.config
        self.count += 1
        if config.optimiser == "sgd" and not config.momentum:
            theta.sub_(gradient, alpha=config.learning_rate)
            return
        if config.optimiser == "sgd":
            self.first.mul_(config.momentum).add_(gradient)
            theta.sub_(self.first, alpha=config.learning_rate)
            return
        self.first.lerp_(gradient, 0.1)
        self.second.lerp_(gradient.square(), 0.001)
        mean = self.first / (1 - 0.9**self.count)
        root = (self.second / (1 - 0.999**self.count)).sqrt_().add_(1e-8)
        theta.addcdiv_(mean, root, value=-config.learning_rate)


def stepped(
    state: dict[str, NDArray[np.float64]], gradient: NDArray[np.float64], config: LocalTraining
) -> dict[str, NDArray[np.float64]]:
    """The state after one step along `gradient` `[d]`: the same formulas as `Optimiser`.

    Args:
        state: `theta`, `round` (steps done), and the moments that the optimiser has: `first` with
            momentum or adam, `second` with adam.
    """
    done, rate = state["round"] + 1, config.learning_rate
    moments: dict[str, NDArray[np.float64]] = {}
    if config.optimiser == "adam":
        count = float(done[0])
        first = state["first"] + 0.1 * (gradient - state["first"])
        second = state["second"] + 0.001 * (gradient**2 - state["second"])
        root = np.sqrt(second / (1 - 0.999**count)) + 1e-8
        step = first / (1 - 0.9**count) / root
        moments = {"first": first, "second": second}
    elif config.momentum:
        step = config.momentum * state["first"] + gradient
        moments = {"first": step}
    else:
        step = gradient
    return {**state, **moments, "theta": state["theta"] - rate * step, "round": done}
