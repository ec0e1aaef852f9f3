"""Losses of linear models on the unit ball: values, slopes, curvatures and privacy constants.

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
    >>> SquaredLoss(radius=2.0, label_bound=1.0).lipschitz
    3.0
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.models.exact_math import exp, sum_in_order
from parley.client.models.loss_base import Array, Loss, SignLoss, TargetLoss

MIN_LABEL_SHARE = 2.0**-20
"""Minimum bound on targets, as a fraction of the radius of the models' ball."""


def softmax(scores: Array) -> Array:
    """Return e^z over its sum along the last axis, without overflow or division by zero."""
    shares = exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= sum_in_order(shares)[..., None]
    return shares


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
        curvature: Array = small / (1 + small) ** 2
        return curvature

    def compute_probabilities(self, margins: Array) -> Array:
        """Return 1/(1 + e^z) and 1/(1 + e^(−z))."""
        small = np.exp(-np.abs(margins))
        positive = np.where(margins >= 0, 1 / (1 + small), small / (1 + small))
        return np.stack([1 - positive, positive], axis=-1)


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
        slope: Array = -self._compute_share(margins, labels)[1] * labels
        return slope

    def compute_values(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return h·share² + max(1 − h − yz, 0), the loss on all three pieces."""
        lack, share = self._compute_share(margins, labels)
        return np.asarray(self.width * share**2 + np.maximum(lack - 2 * self.width, 0))

    def compute_curvatures(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return 1/(2h) if |1 − yz| ≤ h, else 0: an element of the generalised Hessian."""
        inside = np.abs(1 - np.multiply(margins, labels)) <= self.width
        curvature: Array = inside.astype(margins.dtype) * self.smoothness
        return curvature


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


@dataclass(frozen=True, kw_only=True)
class SoftmaxLoss(Loss):
    """ln Σ_k e^(z_k) − z_y for K classes, y ∈ 0..K−1; norms of [K, p] are Frobenius norms."""

    classes: int

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"Expected at least 2 classes, got {self.classes}.")

    lipschitz = math.sqrt(2)
    smoothness = 0.5

    @property
    def outputs(self) -> int:
        """Margins per record, K."""
        return self.classes

    def compute_slopes(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return the probabilities minus the one-hot label, `[…, K]`."""
        slope = softmax(margins)
        index = labels[..., None].astype(np.int64, copy=False)
        np.put_along_axis(slope, index, np.take_along_axis(slope, index, axis=-1) - 1, axis=-1)
        return slope

    def compute_values(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return the losses, computed relative to the largest margin, so that nothing overflows."""
        top = margins.max(axis=-1, keepdims=True)
        index = labels[..., None].astype(np.int64, copy=False)
        chosen = np.take_along_axis(margins, index, axis=-1)
        return np.asarray(np.log(np.exp(margins - top).sum(axis=-1)) + (top - chosen)[..., 0])

    def compute_curvatures(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return the probabilities P, `[…, K]`; the Hessian is diag(P) − P Pᵀ."""
        return softmax(margins)

    def apply_curvature(self, curvature: Array, change: Array) -> Array:
        """Apply diag(P) − P Pᵀ to each record's change."""
        weighted = curvature * change
        product: Array = weighted - curvature * weighted.sum(axis=-1, keepdims=True)
        return product

    def compute_slope_norms(self, slopes: Array) -> Array:
        """Return √Σ_k slope_k²."""
        return np.sqrt(sum_in_order(slopes * slopes))

    def predict(self, margins: Array) -> NDArray[Any]:
        """Return the class with the largest margin."""
        return np.asarray(margins.argmax(axis=-1))

    def compute_probabilities(self, margins: Array) -> Array:
        """Return e^z, divided by its sum over the classes."""
        return softmax(margins)

    def from_signs(self, signs: NDArray[np.float64]) -> NDArray[Any]:
        """Return the classes 1 and 0."""
        return (signs > 0).astype(np.int64)

    def build_theta(self, direction: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a model in which each of the two classes has half of the margin."""
        theta = np.concatenate([-direction, direction]) / 2
        return np.pad(theta, (0, (self.classes - 2) * direction.size))

    def get_direction(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return class 1's row minus class 0's."""
        difference: NDArray[np.float64] = theta[1] - theta[0]
        return difference

    def to_nearest_labels(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Round the labels and clamp them to 0..K−1."""
        whole = np.rint(np.asarray(labels, np.float64))
        return np.clip(whole, 0, self.classes - 1).astype(np.int64)

    def check_labels(self, labels: NDArray[Any]) -> None:
        """Check that labels are integers 0..K−1."""
        fits = (labels >= 0) & (labels < self.classes) & (labels == np.floor(labels))
        if not fits.all():
            raise ValueError(f"Expected classes 0..{self.classes - 1}, got {labels[~fits][0]}.")
