"""Rounded Gaussian and rounded l2-laplace noise by exact inversion (see `inversion`).

Both are the nearest integers of the continuous law, thus post-processing of it: the guarantee of
the continuous mechanism (the exact Gaussian curve of Balle & Wang 2018; pure ε for l2-laplace,
Chaudhuri et al. 2011) holds for an integer sum plus this noise.

Statistical distance from the ideal law, the keystream taken as uniform: 0 if mpmath's thresholds
S(j) are right to 159 of their ≥ 223 bits. The distance charged asks for less: thresholds right to
128 bits are misplaced by at most 2⁻¹²⁸·S(j) each, which moves at most 2⁻¹²⁸·Σ_j S(j) = 2⁻¹²⁸·E|X|
of the mass, and E|X| < 2⁴¹: `DISTANCE_PER_COORDINATE` = 2⁻⁸⁷.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from parley.privacy.sampling.inversion import (
    FLOAT_ERROR,
    LARGEST_SCALE,
    Enclosure,
    Survival,
    Uniform,
    check_scale,
    check_size,
    chunks,
    invert,
    nearest,
    uniform_floats,
    widen,
    with_signs,
)
from parley.privacy.sampling.quick_normal import LARGEST_QUICK, QUICK_ERROR, quick_half_normal
from parley.privacy.sampling.stream import NoiseStream

__all__ = [
    "DISTANCE_PER_COORDINATE",
    "add_rounded_gaussian",
    "rounded_gaussian",
    "rounded_gaussian_distance",
    "rounded_l2_laplace",
    "rounded_l2_laplace_distance",
]

DISTANCE_PER_COORDINATE: Final = 2.0**-87
"""Bound on the statistical distance of one coordinate of a rounded law from the ideal one."""

IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]

_Parts: TypeAlias = Iterator[tuple[slice, IntArray | FloatArray]]


def rounded_gaussian(sigma: float, size: int, stream: NoiseStream) -> IntArray:
    """Return `size` independent round(σZ), Z ~ N(0, 1): int64 [size], in grid units.

    |X| = #{j ≥ 0 : U ≤ erfc((j + ½)/(σ√2))} with an independent sign. One word a value; the
    float `sigma` is the exact rational it is. Raises ValueError for a `sigma` that is not within
    [2⁻²⁰, 2⁴⁰] and for a negative size.

    >>> rounded_gaussian(1000.0, 4, NoiseStream.from_seed(1)).tolist()
    [-453, 655, -600, 994]
    """
    check_size("size", size)
    noise = np.empty(size, dtype=np.int64)
    for part, values in _gaussian_parts(sigma, size, stream):
        noise[part] = values
    return noise


def add_rounded_gaussian(values: FloatArray, sigma: float, stream: NoiseStream) -> None:
    """Add `rounded_gaussian(sigma, n, stream)` to integers `values` [n] in place.

    Exact while the sums are below 2⁵³ in size. Raises as `rounded_gaussian` does.

    >>> values = np.array([1.0, 0.0, 0.0, 6.0])
    >>> add_rounded_gaussian(values, 1000.0, NoiseStream.from_seed(1))
    >>> values.tolist()
    [-452.0, 655.0, -600.0, 1000.0]
    """
    for part, noise in _gaussian_parts(sigma, len(values), stream):
        values[part] += noise


def rounded_gaussian_distance(coordinates: int) -> float:
    """Return a bound on the statistical distance of `coordinates` draws together from the ideal.

    2⁻⁸⁷ a coordinate at any σ that is accepted: below 2⁻⁴⁰ up to 2⁴⁷ coordinates (d·T).

    >>> rounded_gaussian_distance(104 * 1000) < 2**-70
    True
    """
    check_size("coordinates", coordinates)
    return coordinates * DISTANCE_PER_COORDINATE


def rounded_l2_laplace(scale: float, dimension: int, stream: NoiseStream) -> IntArray:
    """Return the rounding of z ∈ R^d, density ∝ exp(−‖z‖₂/b): int64 [dimension], in grid units.

    z = b·√(2V)·N(0, I_d) with V ~ Gamma((d+1)/2): its characteristic function is
    E exp(−b²V‖t‖²) = (1 + b²‖t‖²)^(−(d+1)/2), that of this law, whose norm is Gamma(d, b) and
    whose direction is uniform. So z is a Gaussian vector of random σ, and V is
    −ln(U₁⋯U_⌊(d+1)/2⌋), plus E·cos²(πU) with E ~ Exp(1), half a squared Gaussian, if d is even.

    `scale` is b. Raises ValueError unless b ≥ 2⁻²⁰ and b·√d ≤ 2⁴⁰, and for a dimension < 1.
    """
    check_size("dimension", dimension)
    if dimension < 1:
        raise ValueError(f"Expected dimension ≥ 1, got {dimension}.")
    scale = check_scale("scale", scale)
    if scale * dimension**0.5 > LARGEST_SCALE:
        raise ValueError(
            f"Expected scale·√dimension ≤ 2⁴⁰ grid units, got {scale:g}·√{dimension} "
            f"= {scale * dimension**0.5:g}. Use a coarser grid."
        )
    mixing = _MixingScale(scale, dimension, stream)
    noise = np.empty(dimension, dtype=np.int64)
    for part, values in _parts(mixing.value, mixing.error, mixing.enclosure, dimension, stream):
        noise[part] = values
    return noise


def rounded_l2_laplace_distance(coordinates: int) -> float:
    """Return a bound on the statistical distance of draws of so many coordinates from the ideal.

    As for `rounded_gaussian_distance`: 2⁻⁸⁷ a coordinate.
    """
    return rounded_gaussian_distance(coordinates)


def _gaussian_parts(sigma: float, size: int, stream: NoiseStream) -> _Parts:
    sigma = check_scale("sigma", sigma)

    def exactly(mp: Any, bits: int) -> tuple[Any, Any]:
        del bits
        return mp.mpf(sigma), mp.mpf(sigma)

    return _parts(sigma, 0.0, exactly, size, stream)


def _parts(
    sigma: float, sigma_error: float, enclosure: Enclosure, size: int, stream: NoiseStream
) -> _Parts:
    """Yield `size` values round(σZ) by parts; σ is `sigma` up to a relative error or an enclosure.

    A part is an array of integers, int64 or float64: adding it while it is in the cache is cheap.
    """
    survival = _half_normal_survival(enclosure)
    # The last term is the rounding of the product.
    quick_error = sigma * (QUICK_ERROR + (sigma_error + FLOAT_ERROR) * LARGEST_QUICK)
    for part in chunks(size):
        words = stream.words(part.stop - part.start)
        if quick_error > 0.125:
            yield part, with_signs(_careful(words, sigma, sigma_error, survival, stream), words)
            continue
        position = quick_half_normal(words)
        position *= sigma
        counts, left = nearest(position, quick_error)
        if left.size:
            counts[left] = _careful(words[left], sigma, sigma_error, survival, stream)
        # The sign is a word's top bit, as it is a float's.
        yield part, np.copysign(counts, words.view(np.float64), out=counts)


def _careful(
    words: npt.NDArray[np.uint64],
    sigma: float,
    sigma_error: float,
    survival: Survival,
    stream: NoiseStream,
) -> IntArray:
    """Return |round(σZ)| of every word by scipy's ndtri, or mpmath where that leaves it open."""

    uniforms, slack = uniform_floats(words)
    standard = -ndtri(0.5 * uniforms)  # |Z|: P[|Z| > z] = 2Φ(−z) = U, dz/du ≤ 1.26/u
    error = sigma * (slack + (FLOAT_ERROR + sigma_error) * standard)
    return invert(words, sigma * standard + 0.5, error, lambda _: survival, stream)


def _half_normal_survival(enclosure: Enclosure) -> Survival:
    """Return S(j) = P[σ|Z| > j + ½] = erfc((j + ½)/(σ√2)), increasing in σ ≥ 0."""

    def survival(mp: Any, bits: int, j: int) -> tuple[Any, Any]:
        edge = (mp.mpf(j) + 0.5) / mp.sqrt(2)
        low, high = enclosure(mp, bits)
        upper = mp.erfc(edge / high)
        lower = upper if low == high else mp.erfc(edge / low) if low else mp.zero
        return widen(mp, lower, upper)

    return survival


class _MixingScale:
    """σ = b·√(2V), V ~ Gamma((d+1)/2), as a float with its error and as enclosures ever closer."""

    def __init__(self, scale: float, dimension: int, stream: NoiseStream) -> None:
        self._scale = scale
        self._even = dimension % 2 == 0
        words = stream.words((dimension + 1) // 2 + 2 * self._even)
        uniforms, slack = uniform_floats(words)
        terms = -np.log(uniforms)
        errors = slack + FLOAT_ERROR * terms
        if self._even:  # the last two are E and the angle of E·cos²(πU)
            # |d cos²(πu)/du| ≤ π, and u is right to 2⁻⁵²: 2⁻⁴⁹ covers it.
            terms[-2] *= np.cos(np.pi * uniforms[-1]) ** 2
            errors[-2] += 2.0**-49 * -np.log(uniforms[-2])
            terms, errors = terms[:-1], errors[:-1]
        total = max(float(terms.sum()), 2.0**-64)  # far below the least error, 2⁻⁵⁰
        self.value = scale * (2 * total) ** 0.5
        # That of V is no less than that of √V; FLOAT_ERROR covers the pairwise sum's.
        self.error = float(errors.sum()) / total + FLOAT_ERROR
        self._words, self._stream = words, stream
        self._uniforms: list[Uniform] = []  # made when first needed, which is rare
        self._bits = 0
        self._bounds: tuple[Any, Any] = (None, None)

    def enclosure(self, mp: Any, bits: int) -> tuple[Any, Any]:
        """Return bounds of σ from at least `bits` bits of every uniform, drawn where missing."""
        if bits > self._bits:
            self._bounds, self._bits = self._enclose(mp, bits), bits
        return self._bounds

    def _enclose(self, mp: Any, bits: int) -> tuple[Any, Any]:
        if not self._uniforms:
            self._uniforms = [Uniform(word, self._stream) for word in self._words.tolist()]
        for uniform in self._uniforms:
            while uniform.bits < bits or not uniform.numerator:
                uniform.extend()
        squared_low = squared_high = tail_left = tail_right = mp.one
        logarithms = self._uniforms
        if self._even:
            *logarithms, exponential, angle = self._uniforms
            tail_left, tail_right = exponential.bounds(mp)
            left, right = angle.bounds(mp)
            middle = mp.cos(mp.pi * left) ** 2
            reach = mp.pi * (right - left) + mp.ldexp(1, 64 - mp.prec)
            squared_low, squared_high = max(middle - reach, mp.zero), min(middle + reach, mp.one)
        shift = -sum(uniform.bits for uniform in logarithms)
        product_left = mp.ldexp(_product(mp, [u.numerator for u in logarithms]), shift)
        product_right = mp.ldexp(_product(mp, [u.numerator + 1 for u in logarithms]), shift)
        # −ln is decreasing: the right ends give the lower bound.
        low = -mp.log(product_right) - squared_low * mp.log(tail_right)
        high = -mp.log(product_left) - squared_high * mp.log(tail_left)
        scale = mp.mpf(self._scale)
        return widen(mp, scale * mp.sqrt(2 * max(low, mp.zero)), scale * mp.sqrt(2 * high))


def _product(mp: Any, factors: list[int]) -> Any:
    """Return the product of integers, rounded to the working precision after every 32 of them."""
    groups = (math.prod(factors[i : i + 32]) for i in range(0, len(factors), 32))
    return functools.reduce(lambda product, group: product * group, groups, mp.one)
