"""What a loss of a linear model is: value, slope, curvature in a record's margins, and G, L_s."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.strict_decoding import decode_dataclass

Array = NDArray[np.floating[Any]]


class Loss(ABC):
    """One convex loss. Margins are `[…]`, or `[…, K]` where `outputs` = K > 1; labels are `[…]`.

    Attributes:
        outputs: margins a record has: 1, or the number of classes.
        lipschitz: G, the most a record's gradient measures in L2 where ‖x‖₂ ≤ 1.
        smoothness: L_s, the most a record's Hessian measures in spectral norm.
        theta_radius: R of the ball ‖θ‖₂ ≤ R that G presumes; infinite where it presumes none.
        metric_name: what `score` is for: "accuracy" or "r2".
        twice_smooth: one margin, of whose label's sign alone it is a function, convex, with
            |ℓ′| ≤ G and a continuous ℓ″ ≤ L_s: what objective perturbation is proved for.
    """

    metric_name: ClassVar[str] = "accuracy"
    twice_smooth: ClassVar[bool] = False

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Loss:
        """The loss of a task's settings. Raises DecodingError."""
        return decode_dataclass(cls, settings)

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """G."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """L_s."""

    @property
    def outputs(self) -> int:
        """Margins a record has."""
        return 1

    @property
    def theta_radius(self) -> float:
        """R, infinite unless the loss needs the ball."""
        return math.inf

    @abstractmethod
    def compute_slopes(self, margins: Array, labels: NDArray[Any]) -> Array:
        """First derivative with respect to the margins; same shape as `margins`.

        A record's by + − × ÷, comparisons, rounding and tables on that record alone, in one order
        (`parley.client.models.exact_math`): its bits are the same whoever stands beside it.
        """

    @abstractmethod
    def compute_values(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Loss of each record `[…]`: a simulation's own figure, and nothing that is released."""

    @abstractmethod
    def compute_curvatures(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Second derivative; for K > 1 what `apply_curvature` needs to apply it."""

    @abstractmethod
    def predict(self, margins: Array) -> NDArray[Any]:
        """Predicted label of each record `[…]`."""

    def compute_probabilities(self, margins: Array) -> Array | None:
        """Probabilities `[…, K]` of the labels, −1's before +1's; None: margins only rank."""
        del margins
        return None

    @abstractmethod
    def to_nearest_labels(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Every finite label, by itself, as the nearest one that this loss is defined for.

        What a party learns from under a model that a server named: a label that the model has no
        use for is not a reason to refuse, which would tell of one record.
        """

    def from_signs(self, signs: NDArray[np.float64]) -> NDArray[Any]:
        """The labels farthest apart that this loss knows, +1's and −1's."""
        return signs

    def build_theta(self, direction: NDArray[np.float64]) -> NDArray[np.float64]:
        """`[d]` a model that tells +1 from −1 by θ·x along a direction `[p]`."""
        return direction

    def get_direction(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """`[p]` along which a model `[outputs, p]` tells +1 from −1: the inverse of
        `build_theta`.
        """
        first: NDArray[np.float64] = theta[0]
        return first

    @property
    def degenerate_reason(self) -> str:
        """Why parties would contribute next to nothing under these settings; empty: they do not."""
        return ""

    @property
    def has_full_slope_at_zero(self) -> bool:
        """Whether a record's gradient is as long as G allows at θ = 0 already."""
        margins = np.zeros((1, self.outputs) if self.outputs > 1 else 1)
        slopes = self.compute_slopes(margins, self.from_signs(np.ones(1)))
        return bool(self.compute_slope_norms(slopes)[0] >= self.lipschitz)

    @abstractmethod
    def check_labels(self, labels: NDArray[Any]) -> None:
        """Raise ValueError unless every label is one that this loss is defined for."""

    def apply_curvature(self, curvature: Array, change: Array) -> Array:
        """The Hessian in margin space times a change of the margins; shape of `change`."""
        return curvature * change

    def compute_slope_norms(self, slopes: Array) -> Array:
        """L2 norm of each record's slope, `[…]`; times ‖x‖₂ it is the gradient's norm."""
        return np.abs(slopes)

    def score(self, margins: Array, labels: NDArray[Any]) -> float:
        """Sum over records of what `metric_name` averages: hits, or squared errors."""
        return float(np.count_nonzero(self.predict(margins) == labels))


class SignLoss(Loss):
    """Of labels −1 and +1; the margin's sign predicts, +1 at zero."""

    def predict(self, margins: Array) -> NDArray[Any]:
        """The sign of the margin."""
        return np.where(margins >= 0, margins.dtype.type(1), margins.dtype.type(-1))

    def to_nearest_labels(self, labels: NDArray[Any]) -> NDArray[Any]:
        """+1 above 0, else −1."""
        return np.where(np.asarray(labels, np.float64) > 0, 1.0, -1.0)

    def check_labels(self, labels: NDArray[Any]) -> None:
        """Labels are −1 or +1."""
        if not np.isin(labels, (-1, 1)).all():
            raise ValueError("Expected labels −1 or +1, got others.")


class TargetLoss(Loss):
    """Of real targets, each clamped to ±`label_bound` by itself; the margin predicts."""

    metric_name: ClassVar[str] = "r2"
    label_bound: float

    def predict(self, margins: Array) -> NDArray[Any]:
        """The margin itself."""
        return margins

    def score(self, margins: Array, labels: NDArray[Any]) -> float:
        """Sum of squared errors."""
        error = np.subtract(margins, labels)
        return float(np.dot(error, error))

    def to_nearest_labels(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Clamped."""
        return np.asarray(np.clip(labels, -self.label_bound, self.label_bound))

    def from_signs(self, signs: NDArray[np.float64]) -> NDArray[Any]:
        """The ends of what a target may be."""
        return signs * self.label_bound

    def check_labels(self, labels: NDArray[Any]) -> None:
        """Targets are finite, and within their bound."""
        if not (np.abs(labels) <= self.label_bound).all():  # also refuses NaN
            raise ValueError(f"Expected labels in ±{self.label_bound:g}, got others.")
