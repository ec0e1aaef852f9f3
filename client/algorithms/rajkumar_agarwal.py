"""Rajkumar & Agarwal 2012: gradient steps on a perturbed objective, with noise in each round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import Claim, PublicFacts
from parley.client.algorithms.gradient_perturbation import BOUNDED_GRADIENTS, GradientPerturbation
from parley.client.algorithms.linear_task_codec import build_linear_spec
from parley.client.contract.model_state_encoding import State


@dataclass(frozen=True, kw_only=True)
class RajkumarAgarwal(GradientPerturbation):
    """Noisy gradient descent on an objective with a random linear term.

    Attributes:
        tilt_scale: scale of the term's length, which is Gamma(d, scale): 2/(ε′N).
        tilt_seed: public seed of its direction and length.
    """

    kind: ClassVar[str] = "rajkumar-agarwal"

    tilt_scale: float
    tilt_seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.tilt_scale < np.inf or self.tilt_seed < 0:
            expected = "Expected tilt_scale > 0 and tilt_seed >= 0"
            raise ValueError(f"{expected}, got {self.tilt_scale} and {self.tilt_seed}.")

    @cached_property
    def tilt(self) -> NDArray[np.float64]:
        """`[d]` b/N, of uniform direction."""
        rng = np.random.default_rng(self.tilt_seed)
        direction = rng.normal(size=self.dimension)
        length = rng.gamma(self.dimension, self.tilt_scale)
        return np.asarray(direction / np.sqrt(direction @ direction) * length)

    def update(self, state: State, average: NDArray[np.float64]) -> State:
        """Make one step along the noisy average gradient of the tilted objective."""
        return super().update(state, average + self.tilt)

    def claim(self, facts: PublicFacts) -> Claim:
        """Claim the same as gradient perturbation, with the noise of one round."""
        return replace(super().claim(facts), releases=1)


SPEC = build_linear_spec(
    RajkumarAgarwal,
    title="gradient perturbation (Rajkumar & Agarwal 2012)",
    bounded=BOUNDED_GRADIENTS,
    remedy=("algorithm.kind=gradient-perturbation",),
    advice="Each round is charged in full: {remedy} spreads its budget over all rounds",
)
