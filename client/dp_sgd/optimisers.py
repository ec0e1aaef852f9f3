"""A party's optimiser of a round: post-processing of its noisy gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from parley.client.dp_sgd.training import LocalTraining

__all__ = ["Optimiser"]


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
        plain = config.optimiser == "sgd" and not config.momentum  # has no moments
        first, second = (theta.new_zeros(0 if plain else theta.shape) for _ in range(2))
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
