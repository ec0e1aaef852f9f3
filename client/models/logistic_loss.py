"""The logistic loss, and the constants of all losses of linear models on the unit ball.

A loss depends on a record only through its margin z = θ·x (K margins for K classes). The rest
follows by the chain rule: the gradient of a record is slope·x, its Hessian curvature·x xᵀ. All
losses here are convex in θ. With ‖x‖₂ ≤ 1 they are G-Lipschitz and L_s-smooth:

| loss | G | L_s |
|---|---|---|
| logistic | 1 | 1/4 |
| softmax (Frobenius norm) | √2 | 1/2 |
| squared, ½(z − y)², ‖θ‖₂ ≤ R, |y| ≤ Y | R + Y | 1 |
| Huber SVM, width h (Chaudhuri et al. 2011, Corollary 13) | 1 | 1/(2h) |

    >>> LogisticLoss().lipschitz, LogisticLoss().smoothness
    (1.0, 0.25)

The loss of logistic regression is here. Each of the others has its own module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.models.exact_math import exp
from parley.client.models.loss_base import Array, SignLoss


@dataclass(frozen=True, kw_only=True)
class LogisticLoss(SignLoss):
    """ln(1 + e^(−yz)), y ∈ {−1, +1}."""

    twice_smooth: ClassVar[bool] = True

    lipschitz = 1.0
    smoothness = 0.25

    def compute_slopes(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return −y / (1 + e^(yz))."""
        slope = exp(np.multiply(margins, labels))
        np.subtract(-1, slope, out=slope)
        np.divide(labels, slope, out=slope)
        return slope

    def compute_values(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return max(−yz, 0) + ln(1 + e^(−|yz|)), which neither overflows nor cancels."""
        agreement = np.multiply(margins, labels)
        return np.asarray(np.log1p(np.exp(-np.abs(agreement))) - np.minimum(agreement, 0))

    def compute_curvatures(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return s(1 − s) with s = 1/(1 + e^|z|): independent of y, without overflow."""
        small = np.exp(-np.abs(margins))
        return np.asarray(small / (1 + small) ** 2)

    def compute_probabilities(self, margins: Array) -> Array:
        """Return 1/(1 + e^z) and 1/(1 + e^(−z))."""
        small = np.exp(-np.abs(margins))
        positive = np.where(margins >= 0, 1 / (1 + small), small / (1 + small))
        return np.stack([1 - positive, positive], axis=-1)
