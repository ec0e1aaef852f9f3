"""The loss of ridge regression, bounded because its models stay in a ball."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.models.loss_base import Array, TargetLoss

MIN_LABEL_SHARE = 2.0**-20
"""Minimum bound on targets, as a fraction of the radius of the models' ball."""


@dataclass(frozen=True, kw_only=True)
class SquaredLoss(TargetLoss):
    """½(z − y)² with |y| ≤ Y, for models in the ball ‖θ‖₂ ≤ R: ridge regression.

    Outside the ball the gradient has no bound: project each iterate (`LinearModel.project`).
    """

    radius: float
    label_bound: float

    def __post_init__(self) -> None:
        if not 0 < self.radius < math.inf:
            raise ValueError(f"Expected a finite radius > 0, got {self.radius}.")
        # At 0 each target is 0, and a contribution contains no information.
        if not 0 < self.label_bound < math.inf:
            raise ValueError(f"Expected a finite label_bound > 0, got {self.label_bound}.")

    @property
    def degenerate_reason(self) -> str:
        """Error if targets are negligible compared with the ball; otherwise empty."""
        least = MIN_LABEL_SHARE * self.radius
        if self.label_bound >= least:
            return ""
        return f"Expected label_bound >= {least:g}, got {self.label_bound:g}."

    @property
    def lipschitz(self) -> float:
        """Lipschitz constant, R + Y."""
        return self.radius + self.label_bound

    smoothness = 1.0

    @property
    def theta_radius(self) -> float:
        """Radius R of the ball of θ."""
        return self.radius

    def compute_slopes(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return z − y."""
        return np.asarray(np.subtract(margins, labels))

    def compute_values(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return ½(z − y)²."""
        return np.asarray(np.square(np.subtract(margins, labels)) / 2)

    def compute_curvatures(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return 1."""
        return np.ones_like(margins)
