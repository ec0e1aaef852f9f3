"""Estimate coefficients from noisy sums of slopes and curvatures: Newton steps and their errors.

Records have covariates x and rows z = (c, x − centre). Σs·z, Σw·zzᵀ and Σs²·zzᵀ are known at
parameters θ, with noise of known law. One step, θ + H⁻¹g, has an error from sampling and noise,

    H⁻¹ (M + σ_g²·I + ½σ_h²·(‖d‖²·I + ddᵀ)) H⁻¹,   d the remaining distance.

This is the sandwich estimate (Huber 1967; White 1982) plus the noise of slopes and the noise of
curvatures times the step. It holds for every origin of θ, provided θ is near (Le Cam 1956). M is
noisy itself. A negative sampling variance is replaced by 0, so on average it is too large, not too
small.

    >>> sums = NewtonSums(
    ...     slope=np.array([0.0, 30.0]), curvature=np.diag([500.0, 300.0]),
    ...     squares=np.array([[300.0]]), slope_noise=10.0, curvature_noise=10.0,
    ... )
    >>> found = sums.compute_step()
    >>> found.change.round(3).tolist(), found.deviation.round(4).tolist()
    ([0.1], [0.0667])
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

CLEAR_EIGENVALUE = 0.4
"""Minimum of the curvature's least eigenvalue, in units of its noise's usual largest eigenvalue."""


_MIN_SIGNAL_SHARE = 0.25
"""Minimum part of a step's square that is assumed not to be noise."""


@dataclass(frozen=True, kw_only=True)
class NewtonStep:
    """Newton step of `[p]` coefficients, with the standard deviation of its result.

    Attributes:
        peak: `[p]` √Σa⁴/Σa² of each noise's effect on a coefficient: 1 for a single noise.
        clearance: the curvature's excess over its noise, in units of the required excess.
    """

    change: Numbers
    deviation: Numbers
    noise: Numbers
    peak: Numbers
    clearance: float


@dataclass(frozen=True, kw_only=True)
class NewtonSums:
    """Noisy sums over records at some parameters, in coordinates z, the base first.

    Attributes:
        slope: `[1 + p]` Σs·z.
        curvature: `[1 + p, 1 + p]` Σw·zzᵀ.
        squares: `[p, p]` Σs²·zzᵀ without the base.
        slope_noise, curvature_noise: standard deviations. The latter is that of the diagonal; off
            the diagonal the deviation is smaller by √½.
    """

    slope: Numbers
    curvature: Numbers
    squares: Numbers
    slope_noise: float
    curvature_noise: float

    def reduce_base(self) -> tuple[float, Numbers, Numbers]:
        """Return the base's step, and slope `[p]` and curvature `[p, p]` without the base.

        Schur's complement. Covariates are measured from near their centre, so it removes little.
        """
        weight = max(float(self.curvature[0, 0]), 2 * self.curvature_noise)
        cross, base = self.curvature[0, 1:], float(self.slope[0]) / weight
        own = self.curvature[1:, 1:] - np.outer(cross, cross) / weight
        return base, self.slope[1:] - cross * base, own

    def compute_step(self, *, sampling: bool = True) -> NewtonStep:
        """Return one step with its total error, or with only the error from noise."""
        base, slope, curvature = self.reduce_base()
        eigen, axes = np.linalg.eigh(curvature)
        usual = math.sqrt(2 * len(slope)) * self.curvature_noise
        inverse = (axes / np.where(np.abs(eigen) < 1e-12, np.inf, eigen)) @ axes.T
        change, eye = inverse @ slope, np.eye(len(slope))
        # The step's square is the remaining distance's plus its noise; `part` is the distance's
        # part.
        length = float(change @ change)
        own_noise = self.slope_noise**2 * float(np.square(inverse).sum())
        part = min(max(1 - own_noise / max(length, 1e-300), _MIN_SIGNAL_SHARE), 1.0)
        apart = part * (length * eye + np.outer(change, change)) + base * base * eye
        own = self.slope_noise**2 * eye + self.curvature_noise**2 / 2 * apart
        noise, sampled = _compute_diagonal(inverse, own), np.zeros(len(slope))
        if sampling:
            sampled = np.maximum(_compute_diagonal(inverse, self.squares), 0)
        # Noise of slopes; the effect of many curvatures is treated as normal.
        single = self.slope_noise**2 * np.sqrt((inverse**4).sum(axis=1))
        return NewtonStep(
            change=change,
            deviation=np.sqrt(noise + sampled),
            noise=np.sqrt(noise),
            peak=single / np.maximum(noise, 1e-300),
            clearance=float(eigen[0]) / (CLEAR_EIGENVALUE * usual),
        )


def _compute_diagonal(outer: Numbers, inner: Numbers) -> Numbers:
    result: Numbers = np.einsum("ij,jk,ik->i", outer, inner, outer)
    return result


@dataclass(frozen=True, kw_only=True)
class BaseSums:
    """Noisy sums for the γ of K intervals: Σs and Σw of each, with the noise of both.

    Attributes:
        drift: `[p]` Σ τ·w·(x − centre), τ from −½ to ½ along the intervals.
    """

    slopes: Numbers
    curvatures: Numbers
    noise: float
    drift: Numbers
    drift_noise: float


@dataclass(frozen=True, kw_only=True)
class SearchPoint:
    """Parameters at which sums are requested.

    Attributes:
        base: `[K]` γ.
        coefficients: `[p]` β.
        centres: `[2, p]` centres subtracted from covariates: in the middle, and per unit of τ.
    """

    base: Numbers
    coefficients: Numbers
    centres: Numbers

    @property
    def midpoints(self) -> Numbers:
        """`[K]` midpoints τ of the intervals."""
        return compute_midpoints(len(self.base))

    @property
    def centre(self) -> Numbers:
        """`[K, p]` centre in each interval."""
        result: Numbers = self.centres[0] + self.midpoints[:, None] * self.centres[1]
        return result


def compute_midpoints(intervals: int) -> Numbers:
    """Return `[K]` the midpoints of K intervals, from −½ to ½; 0 for a single interval."""
    return (np.arange(intervals) + 0.5) / intervals - 0.5


_FORGETTING, _PRIOR = 0.5, 1.0
"""Weight of earlier steps in a start's precision, and the assumed standard deviation of a β."""
_MAX_COEFFICIENT = 20.0


@dataclass(kw_only=True)
class NewtonSearch:
    """Search for the next point from all steps so far, each a noisy linear equation for β.

    A step gives H·β = H·β_t + g, up to noise. The equations are combined by precision, earlier ones
    count half, and β is assumed to be about N(0, 1) in scaled columns. γ follows the total. If all
    records share one γ, its secant is exactly 2·artanh(d/2)
    (`client.queries.regression.response_likelihoods`).
    """

    precision: Numbers
    weighed: Numbers

    @classmethod
    def create(cls, count: int) -> NewtonSearch:
        """Start a search for `count` coefficients, without information."""
        return cls(precision=np.zeros((count, count)), weighed=np.zeros(count))

    def find_next(
        self,
        point: SearchPoint,
        sums: NewtonSums,
        base: BaseSums | None,
        scale: float,
        *,
        first: bool,
    ) -> SearchPoint:
        """Return the next point, from the sums at this one.

        Args:
            scale: c.
            first: γ was arbitrary, so these sums contain no information about β.
        """
        base_step, slope, own = sums.reduce_base()
        eigen, axes = np.linalg.eigh(own)
        own = (axes * np.maximum(eigen, 0)) @ axes.T
        beta = point.coefficients
        if not first:
            self.precision = _FORGETTING * self.precision + own @ own / sums.slope_noise**2
            self.weighed = (
                _FORGETTING * self.weighed + own @ (slope + own @ beta) / sums.slope_noise**2
            )
            eye = np.eye(len(beta)) / _PRIOR**2
            beta = np.clip(
                np.linalg.solve(self.precision + eye, self.weighed),
                -_MAX_COEFFICIENT,
                _MAX_COEFFICIENT,
            )
        shifts, moved = self._solve_base(point, sums, base, scale, scale * base_step)
        centres = np.clip(point.centres + moved, -1, 1)
        after = SearchPoint(base=point.base, coefficients=beta, centres=centres)
        change = shifts - after.centre @ (beta - point.coefficients)
        return SearchPoint(
            base=np.clip(point.base + change, -2 * _MAX_COEFFICIENT, _MAX_COEFFICIENT),
            coefficients=beta,
            centres=centres,
        )

    def _solve_base(
        self,
        point: SearchPoint,
        sums: NewtonSums,
        base: BaseSums | None,
        scale: float,
        total: float,
    ) -> tuple[Numbers, Numbers]:
        """Return `[K]` the change of γ for x at its centre, and `[2, p]` the centres."""
        cross, noise = sums.curvature[0, 1:] / scale, sums.curvature_noise
        whole = max(float(sums.curvature[0, 0]), 2 * noise) / scale**2
        level = noise / scale**2
        if base is None:
            moved = np.stack([cross / whole, np.zeros_like(cross)])
            return _compute_secant(np.array([total]), level / whole), moved
        floor = np.maximum(base.curvatures, 2 * base.noise)
        shifts = (base.slopes + base.noise * total) / (floor + base.noise)
        tau = point.midpoints
        first, second = floor @ tau, floor @ (tau * tau)
        both = np.array([[floor.sum(), first], [first, second]])
        # Least squares of Σw(x − centre) and Στw(x − centre); a drift is assumed to be about 0.15.
        apart = np.array([noise / scale, base.drift_noise])
        normal = both.T @ (both / apart[:, None] ** 2) + np.diag([1.0, 1 / 0.15**2])
        right = both.T @ (np.stack([cross, base.drift]) / apart[:, None] ** 2)
        return _compute_secant(shifts, base.noise / floor), np.linalg.solve(normal, right)


def _compute_secant(shifts: Numbers, noise: Numbers | float) -> Numbers:
    """Return 2·artanh(d/2), kept away from its ends by the noise."""
    most = 1 - np.clip(noise, 0.02, 0.5)
    return 2 * np.arctanh(np.clip(shifts / 2, -most, most))
