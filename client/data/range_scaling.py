"""The map of a number in a public range into [−1, 1]: a function of only the number and the schema.

With t = the transform, a number v of [low, high] becomes

    (t(v) − t(centre)) / max(t(high) − t(centre), t(centre) − t(low))   ∈ [−1, 1].

`"log1p"` is t(v) = log(1 + v). `"log"`, for a long tail, is log(1 + (v − low)/(centre − low)). It
gives the same result in grams and in kilograms.

    >>> costs = RangeScale(low=0, high=1000, centre=10, transform="log")
    >>> costs.encode(np.array([0.0, 10.0, 150.0, 1000.0])).round(2).tolist()
    [-0.18, 0.0, 0.53, 1.0]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Transform = Literal["none", "log1p", "log"]
Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class RangeScale:
    """The range, the value that becomes 0 (None: the middle of the transformed range), and t."""

    low: float
    high: float
    centre: float | None = None
    transform: Transform = "none"

    def __post_init__(self) -> None:
        low, high, centre = self.low, self.high, self.centre
        if self.transform == "log1p" and low <= -1:
            raise ValueError(f"Expected a range above -1 for log1p, got low = {low:g}.")
        if self.transform == "log" and (centre is None or not low < centre < high):
            got = "none" if centre is None else f"{centre:g}"
            expected = f"Expected a centre above {low:g} and below {high:g} for log"
            raise ValueError(f"{expected}, got {got}.")
        if self.transform != "none" and not self._ends[0] < self._ends[1] < float("inf"):
            expected = f"Expected a range whose ends are finite and differ after {self.transform}"
            raise ValueError(f"{expected}, got [{low:.17g}, {high:.17g}].")

    def encode(self, values: Values) -> Values:
        """Clamp values of any shape to the range and map them into [−1, 1]."""
        middle, half = self._middle_and_half
        clamped = np.clip(values, self.low, self.high)
        return np.asarray((self.apply_transform(clamped) - middle) / half)

    def decode(self, scaled: Values) -> Values:
        """Return values in the column's unit, within its range; the inverse of `encode`."""
        middle, half = self._middle_and_half
        return self.invert_transform(np.asarray(scaled * half + middle))

    def apply_transform(self, values: Values) -> Values:
        """Return t of values in the range."""
        if self.transform == "log1p":
            return np.log1p(values)
        if self.transform == "log":
            return np.log1p((values - self.low) / self._unit)
        return values

    def invert_transform(self, transformed: Values) -> Values:
        """Return the values, within the range, of which `transformed` are the transforms."""
        values = transformed
        if self.transform == "log1p":
            values = np.expm1(transformed)
        elif self.transform == "log":
            values = self.low + np.expm1(transformed) * self._unit
        return np.clip(values, self.low, self.high)

    @property
    def half(self) -> float:
        """Distance in t from the centre to ±1."""
        return self._middle_and_half[1]

    @property
    def _unit(self) -> float:
        """Unit of the logarithm: the distance from the low end to the centre."""
        return (self.low if self.centre is None else self.centre) - self.low

    @cached_property
    def _ends(self) -> tuple[float, float]:
        with np.errstate(over="ignore"):  # `__post_init__` refuses it
            low, high = self.apply_transform(np.array([self.low, self.high], np.float64)).tolist()
        return low, high

    @cached_property
    def _middle_and_half(self) -> tuple[float, float]:
        low, high = self._ends
        if self.centre is None:
            middle = (low + high) / 2
        else:
            middle = float(self.apply_transform(np.array(self.centre, np.float64)))
        return middle, max(high - middle, middle - low)
