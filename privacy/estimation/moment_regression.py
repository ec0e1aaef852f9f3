"""Correlations and linear regressions from noisy second moments: Σ z zᵀ, z = (1, a record's row).

Let B_c mark the positions of entry c in the matrix M, and let e_c be its noise. The error of M is E
= Σ e_c·B_c. To first order (delta method), with a_i = e_i − m_i·e_0 the centred coordinate i:

    C_ij = a_iᵀM a_j,      off by a_iᵀE a_j                 (sums of squares about the mean) r_ij =
    C_ij/√(C_ii·C_jj), off by âᵢᵀE âⱼ − r/2·(âᵢᵀE âᵢ + âⱼᵀE âⱼ),   âᵢ = aᵢ/√C_ii b = M_XX⁻¹M_Xy,
    off by M_XX⁻¹·(E v)_X,           v = (−b on X, 1 on y)

Each is thus a linear function of the entries' independent noises. Sampling is added: (1 − r²)²/N
for a correlation, as for normal data, and s²·M_XX⁻¹ for coefficients, as for errors of one variance
(Fisher 1915; Greene 2012, section 4.3). A test of r = 0 uses 1/N and the noise at r = 0. For
independent columns its level holds for all their distributions.

**Too few records**: a variance, or the least eigenvalue of the regressors' correlations, is not
used as a divisor unless it exceeds `MIN_DEVIATIONS` deviations of its noise.
`benchmarks/correlations.py` measures how often intervals hold. Records are treated as independent
draws.

    >>> rows = np.array([[1, 0.5, 0.25], [1, -0.5, 0.5], [1, 0.25, -0.5], [1, -0.25, 0.0]])
    >>> pairs = tuple(zip(*map(np.ndarray.tolist, np.triu_indices(3))))
    >>> moments = NoisySecondMoments(
    ...     values=np.array([rows[:, i] @ rows[:, j] for i, j in pairs]),
    ...     pairs=pairs, tied=(False,) * 6, deviations=np.zeros(6), records=4)
    >>> round(float(moments.estimate_correlations().value[0, 1]), 4)
    -0.4276
    >>> moments.estimate_regression(2, (1,)).coefficients.round(4).tolist()
    [0.0625, -0.4]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

MIN_DEVIATIONS = 4.0
"""Deviations of its noise that a divisor must exceed."""


@dataclass(frozen=True, kw_only=True)
class CorrelationEstimate:
    """Correlations of p coordinates; NaN if a variance is within its noise.

    Attributes:
        value: `[p, p]`.
        noise_shifts: `[p, p, d]` change caused by one deviation of each entry's noise.
        sampling: `[p, p]` standard deviations.
        null_noise: `[p, p]` standard deviation of the noise of a correlation that is 0.
    """

    value: Numbers
    noise_shifts: Numbers
    sampling: Numbers
    null_noise: Numbers

    @property
    def noise(self) -> Numbers:
        """`[p, p]` standard deviations of the noise."""
        result: Numbers = np.linalg.norm(self.noise_shifts, axis=2)
        return result


@dataclass(frozen=True, kw_only=True)
class RegressionEstimate:
    """Regression of one coordinate on 1 and k others; all NaN with too few records for this ε.

    Attributes:
        coefficients: `[1 + k]`, that of 1 first.
        noise_shifts: `[1 + k, d]` change caused by one deviation of each entry's noise.
        sampling: `[1 + k, 1 + k]` their covariance.
        r_squared: R² with its deviation by sampling.
        r_squared_shifts: `[d]` like `noise_shifts`.
        residual: standard deviation of the residuals.
        needed: approximate minimum number of records for this ε.
    """

    coefficients: Numbers
    noise_shifts: Numbers
    sampling: Numbers
    r_squared: tuple[float, float]
    r_squared_shifts: Numbers
    residual: float
    needed: float

    @property
    def noise(self) -> Numbers:
        """`[1 + k, 1 + k]` covariance of the coefficients by noise."""
        return self.noise_shifts @ self.noise_shifts.T


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisySecondMoments:
    """Noisy sums of products of two of q coordinates, the first of which is 1 in every record.

    Attributes:
        values: `[d]` one entry per pair; a pair that is missing is 0 in every record.
        pairs: i ≤ j.
        tied: whether the entry of a pair (0, j) is also that of (j, j), for an indicator.
        deviations: `[d]` of the entries' noise, in records.
        records: the number of records if it is public; the entry of (0, 0) is then not used.
    """

    values: Numbers
    pairs: Sequence[tuple[int, int]]
    tied: Sequence[bool]
    deviations: Numbers
    records: float | None = None

    @cached_property
    def _noise(self) -> Numbers:
        first = 0.0 if self.records is not None else float(self.deviations[0])
        return np.array([first, *self.deviations[1:]])

    @cached_property
    def matrix(self) -> Numbers:
        """`[q, q]` matrix M."""
        known = self.values if self.records is None else [self.records, *self.values[1:]]
        size = 1 + max(j for _, j in self.pairs)
        found = np.zeros((size, size))
        for (i, j), tied, value in zip(self.pairs, self.tied, known, strict=True):
            found[i, j] = found[j, i] = value
            if tied:
                found[j, j] = value
        return found

    @property
    def count(self) -> float:
        """N, exact or noisy."""
        return float(self.matrix[0, 0])

    @property
    def _counted(self) -> bool:
        return bool(self.count > MIN_DEVIATIONS * self._noise[0])

    @property
    def mean(self) -> Numbers:
        """`[q]` means; NaN if N is within its noise."""
        result: Numbers = self.matrix[0] / (self.count if self._counted else np.nan)
        return result

    def _compute_noise_shifts(self, vectors: Numbers) -> Numbers:
        """Return `[k, q, d]` the change of M v by one deviation of each entry, for v `[k, q]`."""
        found = np.zeros((*vectors.shape, len(self.pairs)))
        for at, ((i, j), tied) in enumerate(zip(self.pairs, self.tied, strict=True)):
            found[:, i, at] += vectors[:, j]
            if i != j:
                found[:, j, at] += vectors[:, i]
            if tied:
                found[:, j, at] += vectors[:, j]
        return found * self._noise

    @cached_property
    def _centred(self) -> tuple[Numbers, Numbers]:
        """`[p, q]` â, NaN within the noise, and `[p]` the minimum number of records; without 1.

        A variance that is below its noise is assumed to be no more than that noise; if N is below
        its noise, the variance is assumed to be ¼.
        """
        axes = np.eye(len(self.matrix))[1:]
        if not self._counted:
            usual = 4 * MIN_DEVIATIONS * float(self._noise.max())
            return np.full_like(axes, np.nan), np.full(len(axes), usual)
        axes[:, 0] = -self.mean[1:]
        squares = np.einsum("iq,qr,ir->i", axes, self.matrix, axes)
        shifts = np.einsum("iq,iqd->id", axes, self._compute_noise_shifts(axes))
        noise = np.linalg.norm(shifts, axis=1)
        least = np.maximum(noise, 1e-12 * self.count)
        axes /= np.sqrt(np.where(squares > MIN_DEVIATIONS * least, squares, np.nan))[:, None]
        return axes, self.count * MIN_DEVIATIONS * least / np.maximum(squares, least)

    @property
    def spread(self) -> Numbers:
        """`[p]` standard deviations of all coordinates except the first; NaN within the noise."""
        result: Numbers = 1 / (np.diagonal(self._centred[0], 1) * np.sqrt(max(self.count, 1.0)))
        return result

    def estimate_correlations(self) -> CorrelationEstimate:
        """Estimate the correlation of every two coordinates."""
        axes, _ = self._centred
        value: Numbers = np.clip(axes @ self.matrix @ axes.T, -1, 1)
        moved = np.einsum("iq,jqd->ijd", axes, self._compute_noise_shifts(axes))
        own = np.einsum("iid->id", moved)
        records = max(self.count, 1.0)
        return CorrelationEstimate(
            value=value,
            noise_shifts=moved - value[..., None] / 2 * (own[:, None] + own),
            sampling=(1 - value**2) / np.sqrt(records),
            null_noise=np.linalg.norm(moved, axis=2),
        )

    def estimate_regression(self, target: int, predictors: Sequence[int]) -> RegressionEstimate:
        """Estimate the least-squares regression of a coordinate on 1 and others.

        Coordinates are given by their positions in the matrix.
        """
        axes, needs = self._centred
        rows, own = [0, *predictors], np.array([target, *predictors]) - 1
        least, noise = self._find_least_eigenvalue(axes[own[1:]])
        enough = self.count * MIN_DEVIATIONS * noise / max(least, noise)
        needed = max(float(needs[own].max()), enough)
        if not (np.isfinite(axes[own]).all() and least > MIN_DEVIATIONS * noise):
            nothing = np.full((len(rows), len(rows)), np.nan)
            return RegressionEstimate(
                coefficients=nothing[0],
                noise_shifts=np.full((len(rows), len(self.pairs)), np.nan),
                sampling=nothing,
                r_squared=(np.nan, np.nan),
                r_squared_shifts=np.full(len(self.pairs), np.nan),
                residual=np.nan,
                needed=needed,
            )
        inverse = np.linalg.inv(self.matrix[np.ix_(rows, rows)])
        coefficients = inverse @ self.matrix[rows, target]
        left = np.zeros(len(self.matrix))
        left[rows], left[target] = -coefficients, 1
        whole = axes[target - 1]
        of_left, of_whole = self._compute_noise_shifts(np.stack([left, whole]))
        error = inverse @ of_left[rows]
        squares = float(left @ self.matrix @ left)
        residual = max(squares, 0.0) / max(self.count - len(rows), 1.0)
        # R² = 1 − (residual sum of squares)/C_yy, for y scaled to C_yy = 1.
        left *= whole[target]
        share = float(np.clip(1 - squares * whole[target] ** 2, 0, 1))
        by_noise = (left @ of_left) * whole[target] - (1 - share) * (whole @ of_whole)
        by_sampling = 2 * np.sqrt(share / self.count) * (1 - share)
        return RegressionEstimate(
            coefficients=coefficients,
            noise_shifts=error,
            sampling=np.asarray(residual * inverse),
            r_squared=(share, float(by_sampling)),
            r_squared_shifts=by_noise,
            residual=float(np.sqrt(residual)),
            needed=needed,
        )

    def _find_least_eigenvalue(self, axes: Numbers) -> tuple[float, float]:
        """Return the least eigenvalue of coordinates' correlations, and its noise's deviation."""
        if not np.isfinite(axes).all():
            return 1.0, 0.0
        values, vectors = np.linalg.eigh(axes @ self.matrix @ axes.T)
        direction = vectors[:, 0] @ axes
        noise = float(np.linalg.norm(direction @ self._compute_noise_shifts(direction[None])[0]))
        return float(values[0]), max(noise, 1e-12)
