"""Rajkumar & Agarwal 2012: gradient steps on a perturbed objective, with noise in every round.

The objective is J(θ) + bᵀθ/N; every round's average gradient has fresh Gaussian noise that is
scaled for *one* release. The ε that is printed holds for one round. Here all T rounds are charged,
by composition: at T = 50 and ε = .5 a run costs several times that, and needs a budget for it.

Nothing is claimed for b. The rounds' noise alone makes them private, and a vector that was drawn
without looking at a record adds nothing to what they cost; so b comes from a public seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import Claim, PublicFacts
from parley.client.algorithms.gradient_perturbation import GradientPerturbation
from parley.client.contract.state import State


@dataclass(frozen=True, kw_only=True)
class RajkumarAgarwal(GradientPerturbation):
    """Noisy gradient descent on an objective with a random linear term.

    Attributes:
        tilt_scale: of the term's length, Gamma(d, this): 2/(ε′N).
        tilt_seed: that its direction and length are drawn from, public.
    """

    kind: ClassVar[str] = "rajkumar-agarwal"

    tilt_scale: float
    tilt_seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.tilt_scale < np.inf or self.tilt_seed < 0:
            raise ValueError("Expected tilt_scale > 0 and tilt_seed >= 0, got others.")

    @cached_property
    def tilt(self) -> NDArray[np.float64]:
        """`[d]` b/N: of uniform direction."""
        rng = np.random.default_rng(self.tilt_seed)
        direction = rng.normal(size=self.dimension)
        length = rng.gamma(self.dimension, self.tilt_scale)
        return np.asarray(direction / np.sqrt(direction @ direction) * length)

    def update(self, state: State, average: NDArray[np.float64]) -> State:
        """One step along the noisy average gradient of the tilted objective."""
        return super().update(state, average + self.tilt)

    def claim(self, facts: PublicFacts) -> Claim:
        """As gradient perturbation's, with the noise of one round."""
        return replace(super().claim(facts), releases=1)
