"""Noise intervals: bounds on the value without noise, given the noisy one.

They cover the noise, with its public law, and the rounding of the noise-free value, with its public
bound. They use no records and are not charged.

They do not cover what a sample implies about a population.

    >>> (compute_laplace_half_width(4.0, 0.05),
    ... compute_laplace_half_width(4.0, compute_cell_alpha(0.05, 16)))
    (12, 23)
    >>> low, high = compute_ratio_interval(-500.0, 1800.0, build_gaussian_tail(30.0, 30.0), 0.05)
    >>> round(float(low), 4), round(float(high), 4)
    (-0.312, -0.2442)

The module also defines the noise on each cell of an integer sum: its deviation and its half-widths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from parley.privacy.accounting.rounding import check_positive
from parley.privacy.mechanisms.base import check_probability
from parley.privacy.special_functions import erfcx, ndtr, ndtri

Numbers = NDArray[np.float64]

RatioTail = Callable[[Numbers, Numbers], Numbers]
"""(r, c) → P[|X − rY| > c], for the noises X and Y of a ratio's numerator and denominator."""


def compute_normal_quantile(alpha: float) -> float:
    """Return z with P[|Z| > z] = α, Z ~ N(0, 1).

    >>> [round(compute_normal_quantile(compute_cell_alpha(0.05, cells)), 5) for cells in (1, 16,
    ...     112)]
    [1.95996, 2.94778, 3.50426]
    """
    check_probability(alpha)
    return -float(ndtri(alpha / 2))


def compute_cell_alpha(alpha: float, cells: int) -> float:
    """Return α of each of several independent cells such that all hold with 1 − `alpha`.

    1 − (1 − α)^(1/d) (Šidák).
    """
    check_probability(alpha)
    if cells < 1:
        raise ValueError(f"Expected at least one cell, got {cells}.")
    return -math.expm1(math.log1p(-alpha) / cells)


def compute_laplace_half_width(scale: float, alpha: float) -> int:
    """Return the least k with P[|X| > k] ≤ α for discrete Laplace noise of scale b.

    P[|X| > k] = 2q^(k+1)/(1+q), q = e^(−1/b).
    """
    check_positive("scale", scale)
    check_probability(alpha)
    # ln of 2/(1 + q), without subtracting nearly equal numbers.
    head = -math.log1p(0.5 * math.expm1(-1 / scale))

    def beyond(k: int) -> bool:
        return head - (k + 1) / scale > math.log(alpha)

    k = max(0, math.ceil(scale * (head - math.log(alpha)) - 1) - 1)
    while beyond(k):
        k += 1
    return k


def build_gaussian_tail(numerator: float, denominator: float) -> RatioTail:
    """Build the tail of two independent Gaussian noises with these standard deviations."""
    check_positive("numerator's scale", numerator)
    check_positive("denominator's scale", denominator)
    return lambda r, c: 2 * ndtr(-c / np.hypot(numerator, r * denominator))


def build_laplace_tail(numerator: float, denominator: float) -> RatioTail:
    """Build the tail of two independent Laplace noises of scales s and t.

    P[|X + Y| > c] = (s²e^(−c/s) − t²e^(−c/t))/(s² − t²), and (1 + c/2s)e^(−c/s) for s = t.
    """
    check_positive("numerator's scale", numerator)
    check_positive("denominator's scale", denominator)

    def tail(r: Numbers, c: Numbers) -> Numbers:
        other = np.abs(r) * denominator
        large = np.maximum(numerator, other)
        ratio, c = np.maximum(np.minimum(numerator, other) / large, 1e-300), c / large
        near = ratio > 1 - 1e-6
        with np.errstate(over="ignore"):  # e^−∞ is 0
            rest = ratio * ratio * np.exp(-c / ratio)
        apart = np.where(near, 1.0, 1 - ratio * ratio)
        return np.where(near, (1 + c / 2) * np.exp(-c), (np.exp(-c) - rest) / apart)

    return tail


def compute_ratio_interval(
    numerator: Numbers | float,
    denominator: Numbers | float,
    tail: RatioTail,
    alpha: float,
    *,
    rounding: float = 0.0,
) -> tuple[Numbers, Numbers]:
    """Return the ends of Fieller's interval: every ratio r that the noise explains.

    {r : P[|X − rY| > |A − rB|] ≥ α} covers the true ratio with probability 1 − α (Fieller 1954). An
    end is NaN if the interval is unbounded: B does not exceed its noise, which means too few
    records for this ε.

    Args:
        rounding: maximum error of A in addition to X.
    """
    check_probability(alpha)
    above, below = np.asarray(numerator, float), np.asarray(denominator, float)
    some = below > 0
    middle = np.divide(above, below, out=np.zeros_like(above), where=some)

    def explained(r: Numbers) -> NDArray[np.bool_]:
        return tail(r, np.maximum(np.abs(above - r * below) - rounding, 0.0)) >= alpha

    far = 1e9 * np.maximum(1.0, np.abs(middle))
    some &= ~(explained(far) | explained(-far))

    def end(side: float) -> Numbers:
        # Find the power of two first: at a large ε the half-width is a tiny part of the ratio.
        few, many = np.zeros(middle.shape, int), np.full(middle.shape, 128)
        for _ in range(7):
            between = (few + many) // 2
            inside = explained(middle + side * np.ldexp(far, -between))
            few, many = np.where(inside, few, between), np.where(inside, between, many)
        low, high = np.ldexp(far, -many), np.ldexp(far, -few)
        for _ in range(20):
            half = (low + high) / 2
            inside = explained(middle + side * half)
            low, high = np.where(inside, half, low), np.where(inside, high, half)
        return np.where(some, middle + side * high, np.nan)

    return end(-1.0), end(1.0)


def widen_by_rounding(
    low: Numbers, high: Numbers, largest: Numbers | float
) -> tuple[Numbers, Numbers]:
    """Return the ends moved out by the rounding of doubles: four units in the last place.

    Args:
        largest: the largest number used to compute them.

    >>> low, high = widen_by_rounding(np.array([2.0**53]), np.array([2.0**53]), 2.0**53)
    >>> low.tolist(), high.tolist()
    ([9007199254740984.0], [9007199254741000.0])
    """
    apart = 4 * np.spacing(np.abs(largest))
    return low - apart, high + apart


def clip_to_possible(
    value: Numbers, low: Numbers, high: Numbers, *, maximum: float = math.inf
) -> tuple[Numbers, Numbers, Numbers]:
    """Clip values and intervals to [0, `maximum`]; leave intervals entirely outside it unchanged.

    In that case the noise was larger than in 95 % of draws. An interval of one point, 0 … 0, would
    suggest that there is no uncertainty.

    >>> [part.tolist() for part in clip_to_possible(*np.array([[2.0, -9.0], [-3.0, -14.0],
    ...     [7.0, -4.0]]))]
    [[2.0, -9.0], [0.0, -14.0], [7.0, -4.0]]
    """
    beyond = (high < 0) | (low > maximum)
    found = [np.where(beyond, part, np.clip(part, 0, maximum)) for part in (value, low, high)]
    return found[0], found[1], found[2]


@dataclass(frozen=True, kw_only=True)
class CellNoise:
    """Noise that is independent from cell to cell, rounded to integers.

    Attributes:
        rounding: maximum error of a cell before noise is added, in its steps.
        together: number of an answer's rows that hold at once with the requested level.
        shared: whether these rows use the same noise and are therefore not independent.
        sampling: whether intervals are widened by sampling error.
    """

    law: str
    scale: float
    rounding: float = 0.0
    together: int = 1
    shared: bool = False
    sampling: bool = False

    def __post_init__(self) -> None:
        if self.law not in _LAWS:
            raise ValueError(f"Expected noise of {', '.join(_LAWS)}, got {self.law}.")

    def compute_alpha(self, level: float = 0.95) -> float:
        """Return the error probability of each row such that all rows hold with `level`.

        1 − level^(1/d) for independent rows (Šidák 1967), (1 − level)/d for others (Bonferroni).
        """
        if self.shared:
            return (1 - level) / self.together
        return compute_cell_alpha(1 - level, self.together)

    @property
    def deviation(self) -> float:
        """Standard deviation of a cell's noise."""
        return _LAWS[self.law].deviation(self.scale)

    def compute_half_width(self, level: float = 0.95, *, cells: int = 1) -> float:
        """Return h with |noise| + rounding ≤ h in `cells` cells at once, with at least `level`."""
        alpha = compute_cell_alpha(self.compute_alpha(level), cells)
        return _LAWS[self.law].half_width(self.scale, alpha) + self.rounding

    def compute_half_widths(self, parts: Numbers, level: float = 0.95) -> Numbers:
        """Return `[…]` half-widths of sums of several cells' noises, with the rounding of each.

        Args:
            parts: `[…, k]` the standard deviation of each noise in the sum.
        """
        deviation = np.linalg.norm(parts, axis=-1)
        squares = np.square(parts)
        peak = np.sqrt(np.square(squares).sum(axis=-1)) / np.maximum(deviation**2, 1e-300)
        rounded = self.rounding / self.deviation * np.abs(parts).sum(axis=-1)
        result: Numbers = self.compute_deviations_within(peak, level) * deviation + rounded
        return result

    def compute_deviations_within(self, peak: Numbers, level: float = 0.95) -> Numbers:
        """Return how many standard deviations bound a sum of noises with this level.

        Args:
            peak: √Σa⁴/Σa² of the noises' deviations a: 1 for a single noise, 0 for very many.
        """
        return _LAWS[self.law].mixed(np.asarray(peak), self.compute_alpha(level))

    def add_sampling_error(self, half: Numbers, deviation: Numbers, level: float = 0.95) -> Numbers:
        """Return half-widths of noise, with these sampling deviations if `sampling` is set.

        √(half² + (z·deviation)²): normal, exact with Gaussian noise. With Laplace noise it is
        slightly too wide, because single Laplace noises have heavier tails than sums.
        """
        if not self.sampling:
            return half
        return np.hypot(half, compute_normal_quantile(self.compute_alpha(level)) * deviation)

    def compute_p_value(self, apart: Numbers, noise: Numbers, sampling: Numbers) -> Numbers:
        """Return p: how often noise plus sampling error of these deviations are as large by chance.

        Sampling is normal. Laplace noise is treated as that of one cell, whose tails are the
        heaviest among sums of several.
        """
        return _LAWS[self.law].beyond(np.abs(apart), noise, sampling)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Numbers:
        """Draw noise with an answer's law, not rounded; for a test's simulation, not a release."""
        return _LAWS[self.law].draw(rng, self.scale, shape)

    def build_ratio_tail(self, numerator: float, denominator: float) -> RatioTail:
        """Build the tail of a ratio with this noise, multiplied by these factors.

        See `noise_intervals.compute_ratio_interval`.
        """
        return _LAWS[self.law].tail(self.scale * numerator, self.scale * denominator)


@dataclass(frozen=True, kw_only=True)
class _Law:
    deviation: Callable[[float], float]
    half_width: Callable[[float, float], float]
    tail: Callable[[float, float], RatioTail]
    draw: Callable[[np.random.Generator, float, tuple[int, ...]], Numbers]
    beyond: Callable[[Numbers, Numbers, Numbers], Numbers]
    mixed: Callable[[Numbers, float], Numbers]


def _compute_laplace_deviation(scale: float) -> float:
    return math.sqrt(2 * math.exp(-1 / scale)) / -math.expm1(-1 / scale)


def compute_mixed_tail(t: Numbers, scale: Numbers, deviation: Numbers) -> Numbers:
    """Return P[|X + Z| > t] of Laplace noise X of this scale b and Z ~ N(0, s²), s > 0.

    2Φ(−t/s) + e^(s²/2b²)·(e^(−t/b)·Φ(t/s − s/b) − e^(t/b)·Φ(−t/s − s/b)), without large powers.

    >>> [round(float(compute_mixed_tail(3.0, b, s)), 4) for b, s in ((1.0, 1e-6), (1e-9, 1.0))]
    [0.0498, 0.0027]
    """
    ratio, far = deviation / np.maximum(scale, 1e-9 * deviation), t / deviation
    near = np.exp(-np.square(far) / 2) / 2
    below = near * erfcx(np.maximum(ratio - far, 0) * math.sqrt(0.5))
    above = np.exp(np.minimum(ratio * (ratio / 2 - far), 0)) * ndtr(far - ratio)
    result: Numbers = (
        2 * ndtr(-far)
        + np.where(far > ratio, above, below)
        - near * erfcx((ratio + far) * math.sqrt(0.5))
    )
    return result


_PEAKS = np.linspace(0, 1, 65)
_MATCHED = 0.07
"""Factor of w(1 − w): adds up to 1.8 %, which is more than the match below misses of 95 %."""


@lru_cache
def _compute_laplace_quantiles(alpha: float) -> Numbers:
    """Return `[65]` t with P[|X| > t] = α, by `_PEAKS`, of sums X of Laplace noises of variance 1.

    X is treated as one Laplace noise of variance w plus a normal one of variance 1 − w. With w =
    √Σa⁴/Σa² this sum has the kurtosis of X, 3 + 3w².
    """
    scale, rest = np.sqrt(_PEAKS / 2), np.sqrt(np.maximum(1 - _PEAKS, 1e-12))
    low, high = np.zeros_like(_PEAKS), np.full_like(_PEAKS, 2 - 2 * math.log(alpha))
    for _ in range(50):
        middle = (low + high) / 2
        beyond = compute_mixed_tail(middle, scale, rest) > alpha
        low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
    return high * (1 + _MATCHED * _PEAKS * (1 - _PEAKS))


def _compute_laplace_mixed(peak: Numbers, alpha: float) -> Numbers:
    return np.interp(peak, _PEAKS, _compute_laplace_quantiles(alpha))


def _compute_gaussian_half(sigma: float, alpha: float) -> float:
    # Rounded: |noise| ≤ k if the Gaussian is within k + ½.
    return float(max(0, math.ceil(compute_normal_quantile(alpha) * sigma - 0.5 - 1e-9)))


_LAWS: Mapping[str, _Law] = MappingProxyType(
    {
        "laplace": _Law(
            deviation=_compute_laplace_deviation,
            half_width=lambda scale, alpha: float(compute_laplace_half_width(scale, alpha)),
            tail=build_laplace_tail,
            draw=lambda rng, scale, shape: rng.laplace(0.0, scale, shape),
            beyond=lambda t, x, z: compute_mixed_tail(t, x / math.sqrt(2), z),
            mixed=_compute_laplace_mixed,
        ),
        "gaussian": _Law(
            deviation=lambda sigma: math.sqrt(sigma**2 + 1 / 12),
            half_width=_compute_gaussian_half,
            tail=build_gaussian_tail,
            draw=lambda rng, sigma, shape: rng.normal(0.0, sigma, shape),
            beyond=lambda t, x, z: 2 * ndtr(-t / np.hypot(x, z)),
            mixed=lambda peak, alpha: np.full(peak.shape, compute_normal_quantile(alpha)),
        ),
    }
)
