"""The loss of a support vector machine, with its corner rounded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.models.loss_base import Array, SignLoss


@dataclass(frozen=True, kw_only=True)
class HuberSVM(SignLoss):
    """Hinge loss with its corner at yz = 1 rounded over [1 − h, 1 + h]; y ∈ {−1, +1}.

    0 beyond 1 + h, (1 + h − yz)²/(4h) inside, 1 − yz below. Chaudhuri et al. 2011, section 3.4.2.
    """

    width: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.width < math.inf:
            raise ValueError(f"Expected width > 0, got {self.width}.")

    lipschitz = 1.0

    @property
    def smoothness(self) -> float:
        """Smoothness, 1/(2h)."""
        return 1 / (2 * self.width)

    def _compute_share(self, margins: Array, labels: NDArray[Any]) -> tuple[Array, Array]:
        lack = (1 + self.width) - np.multiply(margins, labels)
        return lack, np.clip(lack / (2 * self.width), 0, 1)

    def compute_slopes(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return −y·clip((1 + h − yz)/(2h), 0, 1)."""
        return np.asarray(-self._compute_share(margins, labels)[1] * labels)

    def compute_values(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return h·share² + max(1 − h − yz, 0), the loss on all three pieces."""
        lack, share = self._compute_share(margins, labels)
        return np.asarray(self.width * share**2 + np.maximum(lack - 2 * self.width, 0))

    def compute_curvatures(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return 1/(2h) if |1 − yz| ≤ h, else 0: an element of the generalised Hessian."""
        inside = np.abs(1 - np.multiply(margins, labels)) <= self.width
        return np.asarray(inside.astype(margins.dtype) * self.smoothness)
