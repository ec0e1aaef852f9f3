"""The layout of a record's slopes and curvatures in a vector, and the bound on its length.

    (T·z, α·Σ_k w_k·z_k z_kᵀ, β·T²·xxᵀ),   z_k = (c, x − centre_k),

Matrices are stored as triangles. Off-diagonal entries are multiplied by √2, so that a triangle is
as long as its matrix. The centres of K > 1 intervals are on a line in τ, from −½ to ½. The vector
then also contains every s_k and w_k, and Στ·w·(x − centre), from which the line is found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from parley.privacy.estimation.newton_regression import BaseSums, NewtonSums, compute_midpoints
from parley.privacy.sensitivity.fine_row_arithmetic import FINE

Numbers = NDArray[np.float64]

BASE = 0.5
"""The constant c."""
_INTERVALS = 0.35
"""Weight of s_k and w_k."""
_CURVATURES, _SQUARES = 1.0, 0.1
"""α²·‖z‖² and β²·‖z‖² of the longest z."""


@dataclass(frozen=True, kw_only=True)
class DecodedSums:
    """A decoded vector: sums over rows, and sums of each interval."""

    sums: NewtonSums
    base: BaseSums | None


@dataclass(frozen=True, kw_only=True)
class NewtonRowLayout:
    """A record's vector: Σs·z, triangles of w·zzᵀ and (Σs)²·zzᵀ; for K > 1 also s_k, w_k and drift.

    Attributes:
        rows: q = p + 1.
        intervals: K.
        max_squared_norm: the maximum of ‖z‖².
    """

    rows: int
    intervals: int
    max_squared_norm: float

    @property
    def _alpha(self) -> float:
        return math.sqrt(_CURVATURES / self.max_squared_norm)

    @property
    def _beta(self) -> float:
        return math.sqrt(_SQUARES / self.max_squared_norm)

    @property
    def size(self) -> int:
        """d, the length of the vector."""
        several = 2 * self.intervals + self.rows - 1 if self.intervals > 1 else 0
        return self.rows + self.rows**2 + several

    @property
    def _max_norm(self) -> float:
        """The maximum length of a record's vector.

        ‖z‖²·(T² + α²‖z‖²·w² + β²‖z‖²·T⁴) with T² + w² ≤ 5/4 and T² ≤ 1. For intervals, Σs_k² ≤ 2
        and Σw_k² ≤ 1, and a drift of half the longest row.
        """
        whole = self.max_squared_norm * (1 + _CURVATURES / 4 + _SQUARES)
        if self.intervals > 1:
            whole += 3 * _INTERVALS**2 + _CURVATURES / 16
        return math.sqrt(whole)

    @property
    def fine_squared(self) -> float:
        """Largest square of a record's vector in integer multiples of 2⁻³⁶, each rounded by ½."""
        return (FINE * self._max_norm + math.sqrt(self.size) / 2 + 1) ** 2

    def bound_squared_move(self, weight: int) -> int:
        """Return the square of how far a record moves a party's sum at this weight.

        The sum is rounded once, by less than 1 per coordinate. A length of 1 is more than what
        rounding a record's vector to 2⁻³⁶ adds at a weight up to 2³⁰.
        """
        return math.floor((weight * self._max_norm + math.sqrt(self.size) + 1) ** 2)

    def build_rows(
        self, x: Numbers, slopes: Numbers, curvatures: Numbers, centres: Numbers
    ) -> Numbers:
        """Return `[N, d]` vectors from covariates `[N, p]`, slopes and curvatures `[N, K]`."""
        s, w = _compute_moments(slopes, 2), _compute_moments(curvatures, 3)
        y = np.concatenate([np.full((len(x), 1), BASE), x - centres[0]], axis=1)
        drift = np.concatenate([[0.0], centres[1]])
        first, second, double = _list_triangle(self.rows)
        slope = s[0][:, None] * y - s[1][:, None] * drift
        apart = y[:, first] * drift[second] + y[:, second] * drift[first]
        curvature = w[0][:, None] * (y[:, first] * y[:, second]) - w[1][:, None] * apart
        curvature += w[2][:, None] * (drift[first] * drift[second])
        one, other, twice = _list_triangle(self.rows - 1)
        pieces = [
            slope,
            self._alpha * double * curvature,
            self._beta * twice * (slope[:, 1 + one] * slope[:, 1 + other]),
        ]
        if self.intervals > 1:
            moved = w[1][:, None] * y[:, 1:] - w[2][:, None] * drift[1:]
            pieces += [_INTERVALS * slopes, _INTERVALS * curvatures, self._alpha * moved]
        return np.concatenate(pieces, axis=1)

    def decode_sums(self, total: Numbers, noise: float, scale: float) -> DecodedSums:
        """Return the sums of a noisy total `[d]`.

        Args:
            scale: size of one unit of slopes and curvatures.
        """
        q = self.rows
        ends = np.cumsum([q, q * (q + 1) // 2, q * (q - 1) // 2, self.intervals, self.intervals])
        slope, curvature, squares, own, bent, moved = (
            np.split(total, ends)
            if (self.intervals > 1)
            else (*np.split(total, ends[:2]), *[np.empty(0)] * 3)
        )
        sums = NewtonSums(
            slope=slope * scale,
            curvature=_build_matrix(curvature / self._alpha) * scale,
            squares=_build_matrix(squares / self._beta) * scale**2,
            slope_noise=noise * scale,
            curvature_noise=noise / self._alpha * scale,
        )
        if self.intervals == 1:
            return DecodedSums(sums=sums, base=None)
        base = BaseSums(
            slopes=own / _INTERVALS,
            curvatures=bent / _INTERVALS,
            noise=noise / _INTERVALS,
            drift=moved / self._alpha,
            drift_noise=noise / self._alpha,
        )
        return DecodedSums(sums=sums, base=base)


@cache
def _list_triangle(rows: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Numbers]:
    """Return the positions of a triangle's entries, and the weights of their multiplicity."""
    first, second = np.triu_indices(rows)
    return first, second, np.where(first == second, 1.0, math.sqrt(2))


def _build_matrix(triangle: Numbers) -> Numbers:
    rows = (math.isqrt(8 * len(triangle) + 1) - 1) // 2
    first, second, double = _list_triangle(rows)
    found = np.zeros((rows, rows))
    found[first, second] = found[second, first] = triangle / double
    return found


def _compute_moments(values: Numbers, count: int) -> list[Numbers]:
    """Return `[N]` Σ_k τ_k^j·v_k of `[N, K]`, j from 0 on, in a fixed order."""
    found = [np.zeros(len(values)) for _ in range(count)]
    for k, tau in enumerate(compute_midpoints(values.shape[1])):
        for power, total in enumerate(found):
            np.add(total, float(tau) ** power * values[:, k], out=total)
    return found
