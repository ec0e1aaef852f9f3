"""The loss of softmax regression: K margins per record, one for each class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.models.exact_math import exp, sum_in_order
from parley.client.models.loss_base import Array, Loss


def softmax(scores: Array) -> Array:
    """Return e^z over its sum along the last axis, without overflow or division by zero."""
    shares = exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= sum_in_order(shares)[..., None]
    return shares


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
        return np.asarray(weighted - curvature * weighted.sum(axis=-1, keepdims=True))

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
        return np.asarray(theta[1] - theta[0])

    def to_nearest_labels(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Round the labels and clamp them to 0..K−1."""
        whole = np.rint(np.asarray(labels, np.float64))
        return np.clip(whole, 0, self.classes - 1).astype(np.int64)

    def check_labels(self, labels: NDArray[Any]) -> None:
        """Check that labels are integers 0..K−1."""
        fits = (labels >= 0) & (labels < self.classes) & (labels == np.floor(labels))
        if not fits.all():
            raise ValueError(f"Expected classes 0..{self.classes - 1}, got {labels[~fits][0]}.")
