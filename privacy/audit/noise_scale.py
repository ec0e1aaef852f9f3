"""Bound the scale of the noise from residuals: releases minus the noise-free sum.

If the noise's law is known, its residuals bound its scale from above, and with it a claim of
Δ/scale. The bound is tight in any dimension. It assumes the shape of the law; `shape_p` tests that
shape (Kolmogorov–Smirnov).

| law | statistic | its law, in units of the scale |
|---|---|---|
| gaussian | Σ z_i² | χ² of N·d degrees |
| l2-laplace | Σ ‖z‖₂ | Gamma(N·d) |
| laplace-l1, laplace-as-printed | Σ ‖z‖₁ | Gamma(N·d) |

    >>> sums = Residuals(law="gaussian", vectors=1000, dimension=1, total=1000.0)
    >>> round(1 / sums.scale_upper(0.05), 6)
    0.963117

`repeated_lag` tests whether noise repeats across coordinates, rounds, parties or worlds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len
from scipy.special import chdtr, gammaincc, gammainccinv, gammaincinv, ndtr

from parley.privacy.accounting.rounding import check_delta, check_positive
from parley.privacy.audit.event_counts import LowerBound, compute_alpha
from parley.privacy.audit.two_world_bounds import compute_gaussian_lower

FactorLaw = Literal["gaussian", "l2-laplace", "laplace-l1"]
Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class _Law:
    """A row of the table above.

    Attributes:
        power: the statistic is 2·scale² or scale times a Gamma variable of N·d/power.
        total: residuals `[N, d]` → the statistic.
        p: residuals in units of the scale → p-value of a Kolmogorov–Smirnov test of their shape.
        cost: Δ/scale, δ → ε, rounded down.
    """

    power: int
    total: Callable[[Values], float]
    p: Callable[[Values], float]
    cost: Callable[[float, float], float] = lambda ratio, _: ratio


def _compute_norms(z: Values) -> Values:
    return np.asarray(np.sqrt(np.vecdot(z, z)))


def _bound_ks_p(values: Values, below: Callable[[Values], Values]) -> float:
    """Return an upper bound on the p-value of a Kolmogorov–Smirnov test.

    The bound 2·exp(−2·N·D²) holds for every N and is nearly exact if it is small (Massart 1990).
    scipy.stats has such a test, but importing it takes 45 MiB.
    """
    rates = below(np.sort(values))
    rates -= np.arange(values.size) / values.size
    distance = max(float(rates.max()), 1 / values.size - float(rates.min()))
    return min(1.0, 2 * math.exp(-2 * values.size * distance**2))


_LAWS: dict[str, _Law] = {
    "gaussian": _Law(
        power=2,
        total=lambda z: float(np.square(z).sum()),
        p=lambda z: _bound_ks_p(z.ravel(), ndtr),
        cost=compute_gaussian_lower,
    ),
    "l2-laplace": _Law(
        power=1,
        total=lambda z: float(_compute_norms(z).sum()),
        p=lambda z: _bound_ks_p(_compute_norms(z), lambda x: 1 - gammaincc(z.shape[1], x)),
    ),
    "laplace-l1": _Law(
        power=1,
        total=lambda z: float(np.abs(z).sum()),
        p=lambda z: _bound_ks_p(np.abs(z.ravel()), lambda x: chdtr(2, 2 * x)),
    ),
}
FACTOR_LAWS: tuple[str, ...] = tuple(_LAWS)


@dataclass(frozen=True, kw_only=True)
class Residuals:
    """Summary statistic of N noise vectors of dimension d.

    Attributes:
        law: law whose shape is assumed. A discrete law counts as its continuous one, on a grid of
            at least 2¹⁰ steps per scale.
        total: Σz² (gaussian), Σ‖z‖₂ (l2-laplace) or Σ‖z‖₁ (laplace-l1).
    """

    law: FactorLaw
    vectors: int
    dimension: int
    total: float

    def __post_init__(self) -> None:
        if self.law not in FACTOR_LAWS:
            raise ValueError(f"Expected a law of {', '.join(FACTOR_LAWS)}, got {self.law!r}.")
        if min(self.vectors, self.dimension) < 1:
            raise ValueError(f"Expected vectors and d >= 1, got {self.vectors}, {self.dimension}.")
        check_positive("the residuals' total", self.total)

    @classmethod
    def of(cls, law: FactorLaw, residuals: NDArray[np.float64]) -> Residuals:
        """Summarize the vectors `[N, d]`."""
        vectors, dimension = residuals.shape
        total = _LAWS[law].total(residuals)
        return cls(law=law, vectors=vectors, dimension=dimension, total=total)

    @property
    def power(self) -> int:
        """Power of the scale in `total`."""
        return _LAWS[self.law].power

    @classmethod
    def from_mean_norm(
        cls, law: str, *, vectors: int, dimension: int, mean_norm: float
    ) -> Residuals:
        """Build from the mean of the vectors' norms.

        That is the mean of the L2 norms (l2-laplace) or L1 norms (laplace-l1), or the root of their
        mean square (gaussian).
        """
        # __post_init__ refuses an unknown name.
        known = cast(FactorLaw, law)
        total = vectors * mean_norm ** (_LAWS[law].power if law in _LAWS else 1)
        return cls(law=known, vectors=vectors, dimension=dimension, total=total)

    def __add__(self, other: Residuals) -> Residuals:
        vectors, total = self.vectors + other.vectors, self.total + other.total
        return replace(self, vectors=vectors, total=total)

    def scale_upper(self, alpha: float) -> float:
        """Return a limit that the scale exceeds with chance at most `alpha`."""
        return self._compute_scale(float(gammaincinv(self._shape, alpha)))

    def scale_lower(self, alpha: float) -> float:
        """Return a limit that the scale is below with chance at most `alpha`."""
        return self._compute_scale(float(gammainccinv(self._shape, alpha)))

    @property
    def _shape(self) -> float:
        return self.vectors * self.dimension / self.power

    def _compute_scale(self, gamma: float) -> float:
        return float((self.total / (self.power * gamma)) ** (1 / self.power))


def factor_bound(
    residuals: Residuals,
    *,
    sensitivity: float = 1.0,
    reach: float = 1.0,
    confidence: float,
    delta: float,
) -> LowerBound:
    """Return reach·Δ divided by the scale's upper limit: ε of a Laplace law, μ of a Gaussian one.

    Args:
        sensitivity: Δ, in the unit of the residuals: L2 for gaussian and l2-laplace, L1 for
            laplace-l1.
        reach: the observed difference of two neighbours, as a fraction of Δ.
        delta: δ of the claim; a Laplace law's ε does not depend on it.
    """
    check_delta(delta)
    check_positive("sensitivity", sensitivity)
    check_positive("reach", reach)
    alpha = compute_alpha(confidence)
    ratio = reach * sensitivity / residuals.scale_upper(alpha)
    epsilon = _LAWS[residuals.law].cost(ratio, delta)
    return LowerBound(
        method="factor",
        epsilon_lower=epsilon,
        mu_lower=ratio if residuals.power == 2 else None,  # the ratio of a Gaussian is its μ
        confidence=confidence,
        delta=delta,
    )


def shape_p(law: FactorLaw, residuals: NDArray[np.float64], scale: float) -> float:
    """Return an upper bound on the p-value that `[N, d]` residuals have the law at this scale.

    The Kolmogorov–Smirnov test uses coordinates for the Gaussian and the coordinatewise Laplace,
    and norms for l2-laplace.
    """
    return _LAWS[law].p(residuals / scale)


ALPHA = 1e-6
_MIN_PAIRS = 64
"""Minimum number of pairs; with fewer, no lag can reach its threshold."""


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """A lag at which noise repeats.

    Attributes:
        lag: distance between the repeated values; a negative z means that the sign is flipped.
        z: Σ s_i·s_{i+lag} over √(n − lag).
        threshold: |z| of honest noise exceeds it with chance at most α, over all lags.
    """

    lag: int
    z: float
    threshold: float


def repeated_lag(residuals: NDArray[np.float64], *, alpha: float = ALPHA) -> Repetition | None:
    """Return the most suspicious lag if honest noise would not have it, else None.

    Args:
        residuals: array of any shape, in the order in which the noise was drawn.
    """
    flat = np.ravel(residuals)
    # A rounded law produces zeros, which are not fair coins.
    signs = np.sign(flat)
    count = signs.size
    if count <= _MIN_PAIRS:
        return None
    size = next_fast_len(2 * count, real=True)
    spectrum = np.fft.rfft(signs, size)
    products = np.fft.irfft(np.abs(spectrum) ** 2, size)[1 : count - _MIN_PAIRS + 1]
    lags = np.arange(1, products.size + 1)
    scores = np.rint(products) / np.sqrt(count - lags)
    threshold = math.sqrt(2 * math.log(2 * products.size / alpha))
    worst = int(np.abs(scores).argmax())
    if abs(scores[worst]) <= threshold:
        return None
    return Repetition(lag=int(lags[worst]), z=float(scores[worst]), threshold=threshold)
