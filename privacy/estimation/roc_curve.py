"""Shares and the area under a ROC curve from a noisy histogram, each with a noise interval.

A share is the sum of some cells divided by that of more cells. r = A/U makes A − rU = 0. The noise
on the cells moves A − rU by at most q·‖c(r)‖₂ with the level of q, where c(r) are the cells'
coefficients. The interval is {r : (A − rU)² ≤ q²‖c(r)‖²} for noisy A and U (Fieller 1954). It is
exact for Gaussian noise and any other that is the same in every direction. For independent Laplace
noise it is slightly wide, because its sums have lighter tails than a single one.

The area is P[score of a positive > score of a negative] + ½ P[same cell], r = pᵀWn/(ΣpΣn) for
counts p and n: pᵀ(W − r)n = 0. The noise moves this linearly through each class, and by the product
of both. The product is not part of the bound, but it is small compared with the noise that p and n
add to it. The level is simulated (`benchmarks/judging.py`). The order of scores within a cell is
unknown, so the interval does not cover the area of ungrouped scores.

    >>> found = NoisyHistogram(cells=np.array([[90.0, 0.0], [10.0, 10.0], [0.0, 90.0]]), within=2.0)
    >>> found.compute_area().value
    0.995
    >>> positive = np.array([False, True]) & np.ones((3, 1), bool)
    >>> [round(end, 4) for end in found.compute_share(positive)]
    [0.5, 0.4877, 0.5123]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parley.privacy.estimation.marginals import project_onto_simplex

Counts = NDArray[np.float64]
Cells = NDArray[np.bool_]


class IntervalEstimate(NamedTuple):
    """A value with the ends of an interval for the value without noise."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class NoisyHistogram:
    """Counts with noise.

    Attributes:
        cells: `[…]`; for `compute_area` `[B, 2]`, rows by rising score with the positives second.
        within: q, a bound on the noise of one cell at the intervals' level.
    """

    cells: Counts
    within: float

    @cached_property
    def counts(self) -> Counts:
        """Nearest non-negative counts with the noisy total; zeros if it is not positive."""
        total = max(0.0, float(self.cells.sum()))
        return project_onto_simplex(self.cells.ravel(), total=total).reshape(self.cells.shape)

    def compute_share(self, part: Cells, of: Cells | None = None) -> IntervalEstimate | None:
        """Return the share of some cells in those `of` (default: all); None without counts."""
        whole = np.ones_like(part) if of is None else of
        part = part & whole
        total = float(self.counts[whole].sum())
        if not total > 0:
            return None
        inner, outer = int(part.sum()), int(whole.sum())
        return self._build_estimate(
            float(self.counts[part].sum()) / total,
            lines=(float(self.cells[part].sum()), float(self.cells[whole].sum())),
            spread=(inner, inner, outer),  # ‖1_A − r·1_U‖² = a − 2ra + r²u
        )

    def compute_area(self) -> IntervalEstimate | None:
        """Return the area under the ROC curve; None without counts of both classes."""
        above = np.tri(len(self.cells), k=-1) + np.eye(len(self.cells)) / 2
        n, p = self.counts.T
        if not p.sum() > 0 or not n.sum() > 0:
            return None
        negative, positive = self.cells.T
        no, yes = float(negative.sum()), float(positive.sum())
        beaten, beating = above @ negative, positive @ above
        return self._build_estimate(
            float(p @ above @ n / (p.sum() * n.sum())),
            lines=(float(positive @ beaten), yes * no),
            spread=(
                float(beaten @ beaten + beating @ beating),
                float(no * beaten.sum() + yes * beating.sum()),
                len(self.cells) * (yes**2 + no**2),
            ),
        )

    def _build_estimate(
        self, value: float, *, lines: tuple[float, float], spread: tuple[float, float, float]
    ) -> IntervalEstimate:
        """Return the value with an interval that contains it.

        The interval is {r in [0, 1] : (t₀ − r·t₁)² ≤ q²(v₀ − 2r·v₁ + r²·v₂)}, extended to the
        value. It is all of [0, 1] if the set is unbounded: t₁ does not exceed its noise.
        """
        (t0, t1), (v0, v1, v2) = lines, (self.within**2 * each for each in spread)
        a, b, c = t1**2 - v2, t0 * t1 - v1, t0**2 - v0
        if not (a > 0 and t1 > 0):
            return IntervalEstimate(value, 0.0, 1.0)
        root = math.sqrt(max(0.0, b**2 - a * c))
        low, high = (b - root) / a, (b + root) / a
        return IntervalEstimate(value, max(0.0, min(low, value)), min(1.0, max(high, value)))
