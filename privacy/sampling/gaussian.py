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

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from parley.privacy.sampling.gamma import Gamma, product
from parley.privacy.sampling.inversion import (
    FLOAT_ERROR,
    LARGEST_SCALE,
    MAGNITUDE_BITS,
    Enclosure,
    Survival,
    Uniform,
    check_scale,
    check_size,
    chunks,
    context,
    invert,
    nearest,
    uniform_floats,
    widen,
    with_signs,
)
from parley.privacy.sampling.quick_normal import LARGEST_QUICK, QUICK_ERROR, quick_half_normal
from parley.privacy.sampling.stream import NoiseStream
from parley.privacy.special import ndtri

__all__ = [
    "DISTANCE_PER_COORDINATE",
    "add_rounded_gaussian",
    "add_rounded_mixture",
    "rounded_gaussian",
    "rounded_gaussian_distance",
    "rounded_l2_laplace",
    "rounded_l2_laplace_distance",
    "rounded_l2_laplace_vectors",
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


def add_rounded_gaussian(values: FloatArray | IntArray, sigma: float, stream: NoiseStream) -> None:
    """Add `rounded_gaussian(sigma, n, stream)` to integers `values` [n] in place.

    Exact in int64, and in float64 while the sums are below 2⁵³. Raises as `rounded_gaussian` does.

    >>> values = np.array([1.0, 0.0, 0.0, 6.0])
    >>> add_rounded_gaussian(values, 1000.0, NoiseStream.from_seed(1))
    >>> values.tolist()
    [-452.0, 655.0, -600.0, 1000.0]
    """
    _add_parts(values, _gaussian_parts(sigma, len(values), stream))


def add_rounded_mixture(
    values: FloatArray | IntArray,
    scale: float,
    shape: Fraction,
    jitter: float,
    stream: NoiseStream,
) -> None:
    """Add round(√(2Vb² + w)·N(0, I)) to integers `values` [n] in place, V ~ Gamma(`shape`, 1).

    One V for all of them: with `shape` (n + 1)/(2k) and without `jitter` w it is one of k shares
    of the law ∝ exp(−‖z‖₂/b). `scale` is b, `jitter` a variance. V is enclosed by at least 200
    bits. Raises ValueError unless b ≥ 2⁻²⁰, b·√n ≤ 2⁴⁰ and w ≥ 0.
    """
    scale = _check_l2_scale(scale, max(len(values), 1))
    if not 0 <= jitter <= LARGEST_SCALE:
        raise ValueError(f"Expected a jitter from 0 to 2⁴⁰, got {jitter:g}.")
    mixing = Gamma(shape, stream)

    def enclosure(mp: Any, bits: int) -> tuple[Any, Any]:
        low, high = mixing.enclosure(mp, bits)
        squared = 2 * mp.mpf(scale) ** 2
        return widen(mp, mp.sqrt(squared * low + jitter), mp.sqrt(squared * high + jitter))

    mp = context()
    mp.prec = MAGNITUDE_BITS + 160
    low, high = enclosure(mp, MAGNITUDE_BITS)
    # Where V underflows without a jitter, a least σ stands for it, with an error without bound.
    sigma = max(float(low), 2.0**-200)
    error = float(high / low) - 1 + FLOAT_ERROR if low > sigma / 2 else math.inf
    _add_parts(values, _parts(sigma, error, enclosure, len(values), stream))


def _add_parts(values: FloatArray | IntArray, parts: _Parts) -> None:
    for part, noise in parts:
        values[part] += noise if noise.dtype == values.dtype else noise.astype(values.dtype)


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

    The case of one vector of `rounded_l2_laplace_vectors`, which raises as this does.
    """
    alone: IntArray = rounded_l2_laplace_vectors(scale, dimension, 1, stream)[0]
    return alone


def rounded_l2_laplace_vectors(
    scale: float, dimension: int, count: int, stream: NoiseStream
) -> IntArray:
    """Return `count` independent such vectors: int64 [count, dimension], in grid units.

    z = b·√(2V)·N(0, I_d) with V ~ Gamma((d+1)/2): its characteristic function is
    E exp(−b²V‖t‖²) = (1 + b²‖t‖²)^(−(d+1)/2), that of this law, whose norm is Gamma(d, b) and
    whose direction is uniform. So z is a Gaussian vector of random σ, and V is
    −ln(U₁⋯U_⌊(d+1)/2⌋), plus E·cos²(πU) with E ~ Exp(1), half a squared Gaussian, if d is even.

    `scale` is b. Raises ValueError unless b ≥ 2⁻²⁰ and b·√d ≤ 2⁴⁰, and for a dimension < 1.
    """
    check_size("count", count)
    check_size("dimension", dimension)
    if dimension < 1:
        raise ValueError(f"Expected dimension ≥ 1, got {dimension}.")
    scale = _check_l2_scale(scale, dimension)
    mixing = _MixingScales(scale, dimension, count, stream)
    noise = np.empty(count * dimension, dtype=np.int64)
    for part in chunks(noise.size):
        words = stream.words(part.stop - part.start)
        rows = np.arange(part.start, part.stop) // dimension
        if rows[0] == rows[-1]:  # one σ for all: no array of them
            sigma, error = mixing.values[rows[0]], mixing.errors[rows[0]]
        else:
            sigma, error = mixing.values[rows], mixing.errors[rows]
        noise[part] = _mixed(words, sigma, error, rows, mixing, stream)
    return noise.reshape(count, dimension)


def rounded_l2_laplace_distance(coordinates: int) -> float:
    """Return a bound on the statistical distance of draws of so many coordinates from the ideal.

    As for `rounded_gaussian_distance`: 2⁻⁸⁷ a coordinate.
    """
    return rounded_gaussian_distance(coordinates)


def _check_l2_scale(scale: float, dimension: int) -> float:
    scale = check_scale("scale", scale)
    if scale * dimension**0.5 > LARGEST_SCALE:
        raise ValueError(
            f"Expected scale·√dimension ≤ 2⁴⁰ grid units, got {scale:g}·√{dimension} "
            f"= {scale * dimension**0.5:g}. Use a coarser grid."
        )
    return scale


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
            yield (
                part,
                with_signs(_careful(words, sigma, sigma_error, lambda _: survival, stream), words),
            )
            continue
        position = quick_half_normal(words)
        position *= sigma
        counts, left = nearest(position, quick_error)
        if left.size:
            counts[left] = _careful(words[left], sigma, sigma_error, lambda _: survival, stream)
        # The sign is a word's top bit, as it is a float's.
        yield part, np.copysign(counts, words.view(np.float64), out=counts)


def _careful(
    words: npt.NDArray[np.uint64],
    sigma: float | FloatArray,
    sigma_error: float | FloatArray,
    survival: Callable[[int], Survival],
    stream: NoiseStream,
) -> IntArray:
    """Return |round(σZ)| of every word by scipy's ndtri, or mpmath where that leaves it open."""

    uniforms, slack = uniform_floats(words)
    standard = -ndtri(0.5 * uniforms)  # |Z|: P[|Z| > z] = 2Φ(−z) = U, dz/du ≤ 1.26/u
    error = sigma * (slack + (FLOAT_ERROR + sigma_error) * standard)
    return invert(words, sigma * standard + 0.5, error, survival, stream)


def _half_normal_survival(enclosure: Enclosure) -> Survival:
    """Return S(j) = P[σ|Z| > j + ½] = erfc((j + ½)/(σ√2)), increasing in σ ≥ 0."""

    def survival(mp: Any, bits: int, j: int) -> tuple[Any, Any]:
        edge = (mp.mpf(j) + 0.5) / mp.sqrt(2)
        low, high = enclosure(mp, bits)
        upper = mp.erfc(edge / high)
        lower = upper if low == high else mp.erfc(edge / low) if low else mp.zero
        return widen(mp, lower, upper)

    return survival


def _mixed(
    words: npt.NDArray[np.uint64],
    sigma: Any,
    sigma_error: Any,
    rows: npt.NDArray[np.intp],
    mixing: _MixingScales,
    stream: NoiseStream,
) -> IntArray | FloatArray:
    """Return round(σZ) of every word; σ is a number or [n], each up to a relative error."""
    position = quick_half_normal(words)
    position *= sigma
    # The last term is the rounding of the product.
    error = sigma * (QUICK_ERROR + (sigma_error + FLOAT_ERROR) * LARGEST_QUICK)
    counts, left = nearest(position, error)
    if left.size:
        own, own_error = (np.broadcast_to(each, words.shape)[left] for each in (sigma, sigma_error))

        def survival(lane: int) -> Survival:
            return _half_normal_survival(mixing.of(int(rows[left[lane]])).enclosure)

        counts[left] = _careful(words[left], own, own_error, survival, stream)
    # The sign is a word's top bit, as it is a float's.
    return np.copysign(counts, words.view(np.float64), out=counts)


class _MixingScales:
    """σ = b·√(2V), V ~ Gamma((d+1)/2), of `count` vectors: floats `values` with relative `errors`.

    `of(row)` encloses one of them ever closer, which is rarely needed.
    """

    def __init__(self, scale: float, dimension: int, count: int, stream: NoiseStream) -> None:
        self._scale, self._even, self._stream = scale, dimension % 2 == 0, stream
        width = (dimension + 1) // 2 + 2 * self._even
        self._words = stream.words(count * width).reshape(count, width)
        uniforms, slack = uniform_floats(self._words)
        terms = -np.log(uniforms)
        errors = slack + FLOAT_ERROR * terms
        if self._even:  # the last two are E and the angle of E·cos²(πU)
            # |d cos²(πu)/du| ≤ π, and u is right to 2⁻⁵²: 2⁻⁴⁹ covers it.
            errors[:, -2] += 2.0**-49 * terms[:, -2]
            terms[:, -2] *= np.cos(np.pi * uniforms[:, -1]) ** 2
            terms, errors = terms[:, :-1], errors[:, :-1]
        total = np.maximum(terms.sum(axis=1), 2.0**-64)  # far below the least error, 2⁻⁵⁰
        self.values: FloatArray = scale * np.sqrt(2 * total)
        # That of V is no less than that of √V; FLOAT_ERROR covers the pairwise sum's.
        self.errors: FloatArray = errors.sum(axis=1) / total + FLOAT_ERROR
        self._opened: dict[int, _MixingScale] = {}

    def of(self, row: int) -> _MixingScale:
        """That of one vector, whose uniforms are extended by bits of the stream where needed."""
        if row not in self._opened:
            self._opened[row] = _MixingScale(
                self._scale, self._words[row], even=self._even, stream=self._stream
            )
        return self._opened[row]


class _MixingScale:
    """One vector's σ, as enclosures ever closer."""

    def __init__(
        self, scale: float, words: npt.NDArray[np.uint64], *, even: bool, stream: NoiseStream
    ) -> None:
        self._scale, self._even = scale, even
        self._uniforms = [Uniform(word, stream) for word in words.tolist()]
        self._bits = 0
        self._bounds: tuple[Any, Any] = (None, None)

    def enclosure(self, mp: Any, bits: int) -> tuple[Any, Any]:
        """Return bounds of σ from at least `bits` bits of every uniform, drawn where missing."""
        if bits > self._bits:
            self._bounds, self._bits = self._enclose(mp, bits), bits
        return self._bounds

    def _enclose(self, mp: Any, bits: int) -> tuple[Any, Any]:
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
        product_left = mp.ldexp(product(mp, [u.numerator for u in logarithms]), shift)
        product_right = mp.ldexp(product(mp, [u.numerator + 1 for u in logarithms]), shift)
        # −ln is decreasing: the right ends give the lower bound.
        low = -mp.log(product_right) - squared_low * mp.log(tail_right)
        high = -mp.log(product_left) - squared_high * mp.log(tail_left)
        scale = mp.mpf(self._scale)
        return widen(mp, scale * mp.sqrt(2 * max(low, mp.zero)), scale * mp.sqrt(2 * high))
