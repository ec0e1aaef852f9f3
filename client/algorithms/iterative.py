"""What algorithms of many noisy steps have in common: post-processing of what was released."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.model_state import State


@runtime_checkable
class HasNoiseGain(Protocol):
    """An algorithm that can bound how far the noise on its averages moves its model."""

    def compute_noise_gain(self, done: int) -> float | None:
        """The most that θ's standard deviation is along any direction, after `done` rounds.

        For noise of standard deviation 1 in each coordinate of every average, to first order, and
        from public facts alone; None where no bound is known.
        """


class IterativeAlgorithm:
    """What algorithms of many steps share: the last iterate or the mean of the later half."""

    average: bool
    rounds: int

    @property
    def steps(self) -> int:
        """T, of all rounds."""
        return self.rounds

    def with_mean(self, before: State, after: State) -> State:
        """The state after a step, with the mean of the later iterates so far."""
        later = max(float(after["round"][0]) - self.steps // 2, 1.0)
        mean = before["average"] + (after["theta"] - before["average"]) / later
        return {**after, "average": mean}

    def model_of(self, state: State) -> NDArray[np.float64]:
        """The last iterate, or the mean of the later half: post-processing, free."""
        later = self.average and state["round"][0] > self.steps // 2
        return state["average"] if later else state["theta"]

    def released(self, state: State) -> dict[str, float]:
        """Nothing beside the model."""
        del state
        return {}
