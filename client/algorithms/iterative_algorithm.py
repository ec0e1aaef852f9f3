"""`IterativeAlgorithm`: common part of algorithms with many noisy steps, all post-processing."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.model_state_encoding import State


@runtime_checkable
class HasNoiseGain(Protocol):
    """Algorithm that can bound how far the noise on its averages moves its model."""

    def compute_noise_gain(self, done: int) -> float | None:
        """Return an upper bound on θ's standard deviation along any direction, after `done` rounds.

        For noise of standard deviation 1 in each coordinate of each average, to first order, and
        from public facts only. None if no bound is known.
        """


class IterativeAlgorithm:
    """Algorithm of many steps that reports the last iterate, or the mean of the later half."""

    average: bool
    rounds: int

    @property
    def steps(self) -> int:
        """Steps T of all rounds."""
        return self.rounds

    def with_mean(self, before: State, after: State) -> State:
        """Return the state after a step, with the mean of the later iterates so far."""
        later = max(float(after["round"][0]) - self.steps // 2, 1.0)
        mean = before["average"] + (after["theta"] - before["average"]) / later
        return {**after, "average": mean}

    def model_of(self, state: State) -> NDArray[np.float64]:
        """Return the last iterate, or the mean of the later half: post-processing, without cost."""
        later = self.average and state["round"][0] > self.steps // 2
        return state["average"] if later else state["theta"]

    def released(self, state: State) -> dict[str, float]:
        """Return no values in addition to the model."""
        return {}
