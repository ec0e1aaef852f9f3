"""Noise in shares: each party adds one, and only their sum is ever seen (`NoisePoint.SHARE`).

k is the least number of honest survivors. k shares of one of these laws sum to the law of the
mechanism; further independent shares only add noise; with fewer the claim is void and nothing may
be released.

| share | sum of k shares | sampled |
|---|---|---|
| `gaussian_share` | N(0, σ²) | float64 |
| `l2_laplace_share` | density ∝ exp(−‖z‖₂/b) | float64 |
| `discrete_gaussian_share` | near the discrete Gaussian, τ of Kairouz et al. 2021 | exactly |
| `discrete_laplace_share` | discrete Laplace | exactly |

The float shares are real vectors that a party adds before it rounds to the grid; the integer ones
are added after. Float shares are for sums whose least bits are hidden by that rounding, not for
floating-point release (Mironov 2012).
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import gammainccinv, gammaincinv, ndtri

from parley.privacy.sampling.discrete import discrete_gaussian
from parley.privacy.sampling.inversion import check_size, uniform_floats
from parley.privacy.sampling.negative_binomial import negative_binomial
from parley.privacy.sampling.stream import NoiseStream

__all__ = [
    "LEAST_SHARE_VARIANCE",
    "discrete_gaussian_share",
    "discrete_gaussian_sum_epsilon",
    "discrete_gaussian_sum_tau",
    "discrete_laplace_share",
    "gaussian_share",
    "l2_laplace_share",
    "skellam_rdp",
]

LEAST_SHARE_VARIANCE: Final = 4.0
"""σ² per share below which sums of discrete Gaussians are refused; from it on τ < 10⁻¹⁶."""

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]


def gaussian_share(sigma: float, dimension: int, survivors: int, stream: NoiseStream) -> FloatArray:
    """Return one of `survivors` = k shares of N(0, σ²I_d): N(0, σ²/k·I_d), float64 [dimension]."""
    _check_sum("sigma", sigma, dimension, survivors)
    return _standard_normals(dimension, stream) * (sigma / math.sqrt(survivors))


def l2_laplace_share(
    scale: float, dimension: int, survivors: int, stream: NoiseStream
) -> FloatArray:
    """Return one of `survivors` = k shares of the law ∝ exp(−‖z‖₂/b): float64 [dimension].

    √(2V)·b·N(0, I_d) with V ~ Gamma((d+1)/(2k), 1): its characteristic function is
    (1 + b²‖t‖²)^(−(d+1)/(2k)), the k-th root of the whole's. `scale` is b.
    """
    _check_sum("scale", scale, dimension, survivors)

    word = stream.words(1)
    tail = float(uniform_floats(word)[0][0]) / 2  # of the side that the top bit chooses
    shape = (dimension + 1) / (2 * survivors)
    mixing = float((gammaincinv if word[0] >> np.uint64(63) else gammainccinv)(shape, tail))
    return _standard_normals(dimension, stream) * (scale * math.sqrt(2 * mixing))


def discrete_gaussian_share(
    sigma: float, dimension: int, survivors: int, stream: NoiseStream
) -> IntArray:
    """Return one of `survivors` = k discrete Gaussian shares of parameter σ²/k: int64 [dimension].

    Charge the sum by `discrete_gaussian_sum_epsilon`. Raises ValueError where σ²/k < 4.
    """
    _check_sum("sigma", sigma, dimension, survivors)
    share = math.nextafter(sigma / math.sqrt(survivors), math.inf)  # rounded up: never less noise
    _check_share_variance(share**2)
    return discrete_gaussian(share, dimension, stream)


def discrete_gaussian_sum_tau(survivors: int, variance: float) -> float:
    """Return τ = 10·Σ_{1≤j<k} exp(−2π²σ²j/(j+1)) for k = `survivors` shares of σ² = `variance`.

    How far the sum of k discrete Gaussians is from one of kσ² (Theorem 1 of arXiv:2102.06387).

    >>> f"{discrete_gaussian_sum_tau(100, 1.0):.5e}"
    '5.47789e-04'
    """
    _check_sum("variance", variance, 1, survivors)
    exponents = (-2 * math.pi**2 * variance * j / (j + 1) for j in range(1, survivors))
    return 10 * math.fsum(math.exp(exponent) for exponent in exponents)


def discrete_gaussian_sum_epsilon(
    *, sensitivity: float, survivors: int, variance: float, dimension: int
) -> float:
    """Return ε such that the sum of k = `survivors` shares of σ² = `variance` is ½ε²-zCDP.

    ε = min{√(Δ²/(kσ²) + τd/2), Δ/√(kσ²) + τ√d} (Kairouz, Liu & Steinke 2021, Theorem 1), Δ the
    L2 sensitivity in grid units. Raises ValueError for a `variance` per share below 4.
    """
    _check_share_variance(variance)
    _check_positive("sensitivity", sensitivity)
    tau = discrete_gaussian_sum_tau(survivors, variance)
    ratio = sensitivity / math.sqrt(survivors * variance)
    return min(math.sqrt(ratio**2 + tau * dimension / 2), ratio + tau * math.sqrt(dimension))


def skellam_rdp(
    alpha: float, *, l2_sensitivity: float, l1_sensitivity: float, variance: float
) -> float:
    """Return the Rényi bound at order α > 1 of Skellam noise of `variance` μ a coordinate.

    αΔ²/(2μ) + min{((2α−1)Δ² + 6Δ₁)/(4μ²), 3Δ₁/(2μ)} (Agarwal, Kairouz & Liu 2021,
    arXiv:2110.04995). Skellam laws sum exactly: a share has variance μ/k.
    """
    if not alpha > 1:
        raise ValueError(f"Expected alpha > 1, got {alpha:g}.")
    for name, value in (
        ("l2_sensitivity", l2_sensitivity),
        ("l1_sensitivity", l1_sensitivity),
        ("variance", variance),
    ):
        _check_positive(name, value)
    squared = l2_sensitivity**2
    return alpha * squared / (2 * variance) + min(
        ((2 * alpha - 1) * squared + 6 * l1_sensitivity) / (4 * variance**2),
        3 * l1_sensitivity / (2 * variance),
    )


def discrete_laplace_share(
    scale: float, size: int, survivors: int, stream: NoiseStream
) -> IntArray:
    """Return one of `survivors` = k shares of the discrete Laplace of scale t: int64 [size].

    The difference of two NegativeBinomial(1/k, p), p = e^(−1/t): k of each sum to a geometric,
    and the difference of two geometrics is discrete Laplace. Sampled exactly. Raises
    ValueError for a `scale` that is not within [2⁻²⁰, 2⁴⁰].
    """
    _check_sum("scale", scale, size, survivors)
    draws = negative_binomial(scale, survivors, 2 * size, stream)
    return draws[:size] - draws[size:]


def _standard_normals(size: int, stream: NoiseStream) -> FloatArray:
    """Return `size` independent N(0, 1), float64 [size]: 63 bits of tail and a sign each."""

    words = stream.words(size)
    normals: FloatArray = ndtri(0.5 * uniform_floats(words)[0])
    return np.negative(normals, where=words.view(np.int64) < 0, out=normals)


def _check_sum(name: str, value: float, size: int, survivors: int) -> None:
    _check_positive(name, value)
    check_size("size", size)
    if survivors < 1:
        raise ValueError(f"Expected survivors ≥ 1, got {survivors}.")


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"Expected a finite {name} > 0, got {value:g}.")


def _check_share_variance(variance: float) -> None:
    if not variance >= LEAST_SHARE_VARIANCE:
        raise ValueError(
            f"Expected a variance per share ≥ {LEAST_SHARE_VARIANCE:g} grid units squared, "
            f"got {variance:g}. Use a finer grid."
        )
