"""Public class weights: a record of class k counts w_k times, ℓ_w(z; y) = w_y·ℓ(z; y).

The weights are numbers of the job, never computed from records. The factor depends only on a
record's own label. It keeps each bound of the loss, multiplied by W = max_k w_k: G_w = W·G, L_s,w =
W·L_s. The regulariser has no class, and λ stays the strong convexity.

    >>> from parley.client.models.logistic_loss import LogisticLoss
    >>> rare = ClassWeightedLoss(loss=LogisticLoss(), weights=(1.0, 8.0))
    >>> rare.lipschitz, rare.smoothness
    (8.0, 2.0)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.models.loss_base import Array, Loss

MAX_WEIGHT = 1e6
"""Maximum weight; the minimum is its inverse."""


def check_weights(weights: Sequence[float], classes: int) -> None:
    """Check that there is one weight per class, each in range."""
    if len(weights) != classes:
        expected = f"Expected {classes} class weights, one per label in their order"
        raise ValueError(f"{expected}, got {len(weights)}.")
    for weight in weights:
        if not 1 / MAX_WEIGHT <= weight <= MAX_WEIGHT:  # also refuses NaN
            raise ValueError(f"Expected class weights from 1e-06 to 1e+06, got {weight:g}.")


def apply_class_weights(loss: Loss, weights: Sequence[float]) -> Loss:
    """Return the loss, weighted if there are weights."""
    return ClassWeightedLoss(loss=loss, weights=tuple(weights)) if weights else loss


@dataclass(frozen=True, kw_only=True)
class ClassWeightedLoss(Loss):
    """w_y·ℓ, for a loss of labels.

    Attributes:
        loss: ℓ; its labels are −1/+1 or classes.
        weights: w, of the labels in their order: −1's before +1's.
    """

    loss: Loss
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.loss.metric_name != "accuracy":
            raise ValueError("Expected a loss of labels with class weights, got one of targets.")
        check_weights(self.weights, max(self.classes, 2))

    @property
    def lipschitz(self) -> float:
        """Lipschitz constant, W·G."""
        return self.max_weight * self.loss.lipschitz

    @property
    def smoothness(self) -> float:
        """Smoothness, W·L_s."""
        return self.max_weight * self.loss.smoothness

    @property
    def max_weight(self) -> float:
        """Largest weight, W."""
        return max(self.weights)

    @property
    def outputs(self) -> int:
        """Margins per record, as for ℓ."""
        return self.loss.outputs

    @property
    def classes(self) -> int:
        """Number of classes, as for ℓ; 0 for −1/+1."""
        return int(getattr(self.loss, "classes", 0))

    @property
    def theta_radius(self) -> float:
        """Radius of the ball of θ, as for ℓ."""
        return self.loss.theta_radius

    def _get_record_weights(self, labels: NDArray[Any], like: Array) -> Array:
        """Return `[…]` each record's weight, in the margins' precision."""
        chosen = labels.astype(np.int64) if self.classes else (labels > 0).astype(np.int64)
        return np.asarray(self.weights, like.dtype)[chosen]

    def _expand_weights(self, labels: NDArray[Any], margins: Array) -> Array:
        """Return the records' weights in a shape that multiplies arrays shaped like margins."""
        own = self._get_record_weights(labels, margins)
        return own if self.outputs == 1 else own[..., None]

    def compute_slopes(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return w_y·ℓ′."""
        slopes = self.loss.compute_slopes(margins, labels)
        return np.asarray(slopes * self._expand_weights(labels, margins))

    def compute_values(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return w_y·ℓ."""
        values = self.loss.compute_values(margins, labels)
        return np.asarray(values * self._get_record_weights(labels, margins))

    def compute_curvatures(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return w_y·ℓ″; for several margins ℓ's own, with w_y as one more column."""
        own = self._expand_weights(labels, margins)
        bent = self.loss.compute_curvatures(margins, labels)
        return np.asarray(own * bent if self.outputs == 1 else np.append(bent, own, axis=-1))

    def apply_curvature(self, curvature: Array, change: Array) -> Array:
        """Return w_y·(ℓ″ times the change)."""
        if self.outputs == 1:
            return curvature * change
        return curvature[..., -1:] * self.loss.apply_curvature(curvature[..., :-1], change)

    def predict(self, margins: Array) -> NDArray[Any]:
        """Return the labels that ℓ predicts."""
        return self.loss.predict(margins)

    def compute_probabilities(self, margins: Array) -> Array | None:
        """Return ℓ's probabilities: of a population in which class k is w_k times as common."""
        return self.loss.compute_probabilities(margins)

    def to_nearest_labels(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Return the nearest labels, as ℓ does."""
        return self.loss.to_nearest_labels(labels)

    def check_labels(self, labels: NDArray[Any]) -> None:
        """Check labels as ℓ does."""
        self.loss.check_labels(labels)

    def compute_slope_norms(self, slopes: Array) -> Array:
        """Return the slopes' norms, as ℓ does."""
        return self.loss.compute_slope_norms(slopes)

    def from_signs(self, signs: NDArray[np.float64]) -> NDArray[Any]:
        """Return the labels of signs, as ℓ does."""
        return self.loss.from_signs(signs)

    def build_theta(self, direction: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a model along a direction, as ℓ does."""
        return self.loss.build_theta(direction)

    def get_direction(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a model's direction, as ℓ does."""
        return self.loss.get_direction(theta)
