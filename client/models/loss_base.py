"""`Loss` of a linear model: value, slope and curvature in a record's margins, and G, L_s."""

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
    """One convex loss. Margins are `[…]`, or `[…, K]` if `outputs` = K > 1; labels are `[…]`.

    Attributes:
        outputs: margins per record: 1, or the number of classes.
        lipschitz: G, upper bound on a record's gradient in L2 norm if ‖x‖₂ ≤ 1.
        smoothness: L_s, upper bound on a record's Hessian in spectral norm.
        theta_radius: R of the ball ‖θ‖₂ ≤ R that G assumes; infinite if it assumes none.
        metric_name: metric of `score`: "accuracy" or "r2".
        twice_smooth: whether it has one margin and depends on the label only through its sign, is
            convex, with |ℓ′| ≤ G and a continuous ℓ″ ≤ L_s. Objective perturbation is proved for
            such losses.
    """

    metric_name: ClassVar[str] = "accuracy"
    twice_smooth: ClassVar[bool] = False

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Loss:
        """Build the loss from a task's settings. Raises DecodingError."""
        return decode_dataclass(cls, settings)

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """Lipschitz constant G."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """Smoothness L_s."""

    @property
    def outputs(self) -> int:
        """Margins per record."""
        return 1

    @property
    def theta_radius(self) -> float:
        """Radius R, infinite unless the loss needs the ball."""
        return math.inf

    @abstractmethod
    def compute_slopes(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return the first derivative with respect to the margins; same shape as `margins`.

        It uses + − × ÷, comparisons, rounding and tables on one record only, in one order
        (`parley.client.models.exact_math`). A record's bits are the same next to any other records.
        """

    @abstractmethod
    def compute_values(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return each record's loss `[…]`: a metric of simulations that is never released."""

    @abstractmethod
    def compute_curvatures(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return the second derivative; for K > 1 what `apply_curvature` needs to apply it."""

    @abstractmethod
    def predict(self, margins: Array) -> NDArray[Any]:
        """Return the predicted label of each record `[…]`."""

    def compute_probabilities(self, margins: Array) -> Array | None:
        """Return `[…, K]` probabilities of the labels, −1's first; None: margins only rank."""
        return None

    @abstractmethod
    def to_nearest_labels(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Return, for each finite label separately, the nearest one that the loss supports.

        A party applies it under a model that a server named. A label outside the model's range is
        no reason to refuse: the refusal would reveal something about one record.
        """

    def from_signs(self, signs: NDArray[np.float64]) -> NDArray[Any]:
        """Return the two most distant labels of this loss, for +1 and −1."""
        return signs

    def build_theta(self, direction: NDArray[np.float64]) -> NDArray[np.float64]:
        """Build `[d]`, a model that separates +1 from −1 by θ·x along a direction `[p]`."""
        return direction

    def get_direction(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return `[p]`, along which a model `[outputs, p]` separates +1 from −1.

        It is the inverse of `build_theta`.
        """
        return np.asarray(theta[0])

    @property
    def degenerate_reason(self) -> str:
        """Error if parties would contribute almost nothing with these settings; else empty."""
        return ""

    @property
    def has_full_slope_at_zero(self) -> bool:
        """Whether a record's gradient is already as long as G allows at θ = 0."""
        margins = np.zeros((1, self.outputs) if self.outputs > 1 else 1)
        slopes = self.compute_slopes(margins, self.from_signs(np.ones(1)))
        return bool(self.compute_slope_norms(slopes)[0] >= self.lipschitz)

    @abstractmethod
    def check_labels(self, labels: NDArray[Any]) -> None:
        """Raise ValueError unless this loss is defined for each label."""

    def apply_curvature(self, curvature: Array, change: Array) -> Array:
        """Apply the Hessian in margin space to a change of the margins; shape of `change`."""
        return curvature * change

    def compute_slope_norms(self, slopes: Array) -> Array:
        """Return `[…]` L2 norms of slopes; times ‖x‖₂ they are the gradients' norms."""
        return np.abs(slopes)

    def score(self, margins: Array, labels: NDArray[Any]) -> float:
        """Return the sum over records of what `metric_name` averages: hits, or squared errors."""
        return float(np.count_nonzero(self.predict(margins) == labels))


class SignLoss(Loss):
    """Loss of labels −1 and +1. The margin's sign predicts, +1 at zero."""

    def predict(self, margins: Array) -> NDArray[Any]:
        """Return the sign of the margin."""
        return np.where(margins >= 0, margins.dtype.type(1), margins.dtype.type(-1))

    def to_nearest_labels(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Return +1 above 0, else −1."""
        return np.where(np.asarray(labels, np.float64) > 0, 1.0, -1.0)

    def check_labels(self, labels: NDArray[Any]) -> None:
        """Check that labels are −1 or +1."""
        if not np.isin(labels, (-1, 1)).all():
            raise ValueError("Expected labels −1 or +1, got others.")


class TargetLoss(Loss):
    """Loss of real targets, each clamped to ±`label_bound`. The margin predicts."""

    metric_name: ClassVar[str] = "r2"
    label_bound: float

    def predict(self, margins: Array) -> NDArray[Any]:
        """Return the margin itself."""
        return margins

    def score(self, margins: Array, labels: NDArray[Any]) -> float:
        """Return the sum of squared errors."""
        error = np.subtract(margins, labels)
        return float(np.dot(error, error))

    def to_nearest_labels(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Return the clamped targets."""
        return np.asarray(np.clip(labels, -self.label_bound, self.label_bound))

    def from_signs(self, signs: NDArray[np.float64]) -> NDArray[Any]:
        """Return the ends of the range of targets."""
        return signs * self.label_bound

    def check_labels(self, labels: NDArray[Any]) -> None:
        """Check that targets are finite and within their bound."""
        if not (np.abs(labels) <= self.label_bound).all():  # also refuses NaN
            raise ValueError(f"Expected labels in ±{self.label_bound:g}, got others.")
