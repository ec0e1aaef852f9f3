"""User-defined loss for a linear model, as a public table of its slopes.

The function is called only at public points, never at a record. Its slope in the margin z is
tabulated at `NODES` points of ±`REACH`. A record's slope is read off separately, linearly between
two points and constant beyond the last. The table *is* the loss. It is convex because the entries
never decrease, and its constants follow from it: G = max |s_k|, L_s = max (s_{k+1} − s_k)/h. The
table travels in the task: no party runs, or trusts, the code that built it.

    >>> hinge = [-1.0] * (NODES // 2 + 1) + [0.0] * (NODES // 2)
    >>> TabledResidualLoss(slopes=(tuple(hinge),), starts=(REACH,)).lipschitz
    1.0
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.strict_decoding import DecodingError, decode_value
from parley.client.models.loss_base import Array, Loss, SignLoss, TargetLoss
from parley.safe_io.error_translation import translate_errors

NODES: Final = 513
REACH: Final = 16.0
STEP: Final = 2 * REACH / (NODES - 1)
"""Distance between two points."""

MAX_SLOPE: Final = 2.0**20
"""Maximum slope or loss. A table with larger numbers is not a loss that could be learned from."""

Real = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TabledLoss(Loss):
    """ℓ(u; row), by its slopes.

    Attributes:
        slopes: a row per table, `NODES` slopes each.
        starts: ℓ(−REACH) of each row.
    """

    rows: ClassVar[int]

    slopes: tuple[tuple[float, ...], ...]
    starts: tuple[float, ...]

    def __post_init__(self) -> None:
        shape = [len(row) for row in self.slopes]
        if shape != [NODES] * self.rows or len(self.starts) != self.rows:
            raise ValueError(f"Expected {self.rows} x {NODES} slopes, got rows of {shape[:4]}.")
        every = [*self.starts, *(slope for row in self.slopes for slope in row)]
        if not all(abs(number) <= MAX_SLOPE for number in every):  # also refuses NaN
            raise ValueError(f"Expected slopes and values within {MAX_SLOPE:g}, got others.")
        if any(one > two for row in self.slopes for one, two in pairwise(row)):
            raise ValueError("Expected slopes that never decrease (a convex loss), got others.")
        if not self.lipschitz > 0:
            raise ValueError("Expected a loss that depends on the margin, got none.")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Loss:
        """Build the loss as `Loss.from_settings` does; check the exact lengths of its lists."""
        slopes, starts = settings.get("slopes"), settings.get("starts")
        if set(settings) != {"slopes", "starts"} or not isinstance(starts, list):
            raise DecodingError("Expected slopes and their starts, got other keys.")
        rows: list[Any] = slopes if isinstance(slopes, list) else []
        lengths = [len(row) if isinstance(row, list) else 0 for row in rows]
        if lengths != [NODES] * cls.rows or len(starts) != cls.rows:
            raise DecodingError(f"Expected {cls.rows} rows of {NODES} slopes, got others.")
        with translate_errors(ValueError, DecodingError):
            return cls(
                slopes=tuple(tuple(decode_value(float, s, "slope") for s in row) for row in rows),
                starts=tuple(decode_value(float, value, "start") for value in starts),
            )

    @abstractmethod
    def _find_row(self, labels: NDArray[Any]) -> NDArray[np.int64] | int:
        """Return the row that a label reads."""

    @abstractmethod
    def _find_position(self, margins: Array, labels: NDArray[Any]) -> Real:
        """Return a record's position in its row: z, or its residual."""

    @cached_property
    def lipschitz(self) -> float:
        """Lipschitz constant, max |s_k|."""
        return max(abs(slope) for row in self.slopes for slope in row)

    @cached_property
    def smoothness(self) -> float:
        """Smoothness, max (s_{k+1} − s_k)/h plus a margin for its rounding."""
        steepest = max(two - one for row in self.slopes for one, two in pairwise(row))
        return max(steepest / STEP * (1 + 2.0**-40), 2.0**-20)

    @cached_property
    def _table(self) -> Real:
        """`[rows·NODES]` slopes."""
        return np.array(self.slopes).ravel()

    @cached_property
    def _values(self) -> Real:
        """`[rows·NODES]` ℓ at the points: the integral of the slopes."""
        slopes = np.array(self.slopes)
        steps = np.cumsum((slopes[:, 1:] + slopes[:, :-1]) * (STEP / 2), axis=1)
        values: Real = np.pad(steps, ((0, 0), (1, 0))) + np.array(self.starts)[:, None]
        return values.ravel()

    def _find_segment(self, margins: Array, labels: NDArray[Any]) -> tuple[Real, Real, Codes]:
        """Return position u, the fraction of the way to the next point, and the point before it.

        Each record's result is computed by arithmetic on that record only.
        """
        place = np.asarray(self._find_position(margins, labels), np.float64)
        known = np.where(np.isnan(place), 0.0, place)
        at = (np.clip(known, -REACH, REACH) + REACH) / STEP
        before = np.minimum(at.astype(np.int64), NODES - 2)
        return place, at - before, before + NODES * np.asarray(self._find_row(labels), np.int64)

    def compute_slopes(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Read the slopes off the table."""
        place, share, before = self._find_segment(margins, labels)
        low, high = self._table[before], self._table[before + 1]
        slope = np.clip(low + share * (high - low), -self.lipschitz, self.lipschitz)
        # NaN is dropped, as for other losses
        return np.where(np.isnan(place), np.nan, slope).astype(margins.dtype)

    def compute_values(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return the integral of the slopes."""
        place, share, before = self._find_segment(margins, labels)
        low, high = self._table[before], self._table[before + 1]
        within = STEP * share * (low + share / 2 * (high - low))
        beyond = np.where(place > REACH, place - REACH, np.minimum(place + REACH, 0.0))
        value = self._values[before] + within + beyond * np.where(place > 0, high, low)
        return np.asarray(value.astype(margins.dtype))

    def compute_curvatures(self, margins: Array, labels: NDArray[Any]) -> Array:
        """Return (s_{k+1} − s_k)/h; 0 beyond the table."""
        place, _, before = self._find_segment(margins, labels)
        bent = (self._table[before + 1] - self._table[before]) / STEP
        return np.where(np.abs(place) < REACH, bent, 0.0).astype(margins.dtype)


@dataclass(frozen=True, kw_only=True)
class TabledSignLoss(TabledLoss, SignLoss):
    """Loss of labels −1 and +1: one table of z per label, −1's first."""

    rows: ClassVar[int] = 2

    def _find_row(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        return (np.asarray(labels) > 0).astype(np.int64)

    def _find_position(self, margins: Array, labels: NDArray[Any]) -> Real:
        return np.asarray(margins, np.float64)


@dataclass(frozen=True, kw_only=True)
class TabledResidualLoss(TabledLoss, TargetLoss):
    """Loss of targets in [−1, 1]: a table of the residual z − y."""

    rows: ClassVar[int] = 1
    label_bound = 1.0

    def _find_row(self, labels: NDArray[Any]) -> int:
        return 0

    def _find_position(self, margins: Array, labels: NDArray[Any]) -> Real:
        return np.asarray(np.subtract(margins, labels, dtype=np.float64))
