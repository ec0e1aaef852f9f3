"""Rounded Gaussian noise by exact inversion (see `inversion`).

The noise is the nearest integer of the continuous law, thus post-processing of it. So the guarantee
of the continuous mechanism (the exact Gaussian curve of Balle & Wang 2018) holds for an integer sum
plus this noise.

Statistical distance from the ideal law, assuming a uniform keystream: it is 0 if mpmath's
thresholds S(j) are correct to 159 of their ≥ 223 bits. The charged distance assumes less.
Thresholds correct to 128 bits are misplaced by at most 2⁻¹²⁸·S(j) each. This moves at most
2⁻¹²⁸·Σ_j S(j) = 2⁻¹²⁸·E|X| of the mass, and E|X| < 2⁴¹: `DISTANCE_PER_COORDINATE` = 2⁻⁸⁷.

`compute_quick_half_normal` computes an approximate |Z|, Z ~ N(0, 1), from words. This guess decides
nearly every lane of an inversion.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from parley.privacy.sampling.inversion import (
    FLOAT_ERROR,
    Enclosure,
    FloatArray,
    IntArray,
    Survival,
    WordArray,
    check_scale,
    check_size,
    invert,
    iterate_chunks,
    round_to_nearest,
    to_uniform_floats,
    widen,
)
from parley.privacy.sampling.random_stream import NoiseStream
from parley.privacy.special_functions import ndtri

QUICK_ERROR: Final = 2.0**-36
"""Bound on |f(U) − quick|, for every U in the cell of a word's 63 bits.

Chebyshev interpolation of degree 2 on a cell of relative width w = 2⁻¹⁰ has an error of at most
w³·max|u³f‴|/192 < 2⁻³⁷·⁵; the cell of the word and rounding add 2⁻⁴². It is tested in every cell.
"""

LARGEST_QUICK: Final = 5.0
"""Upper bound on a quick value: f(2⁻²⁰) = 4.9."""

_OCTAVES: Final = 20  # below u = 2⁻²⁰ there is no guess
_BITS: Final = 10
_MAGNITUDE: Final = np.int64(2**63 - 1)
_SHIFT: Final = np.int64(52 - _BITS)
# Leading bits of the float m = 2⁶³u at u = 2⁻²⁰, minus one: the first cell has no guess.
_FIRST: Final = np.int64(((1023 + 63 - _OCTAVES) << _BITS) - 1)


@functools.cache
def _fit_parabolas() -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return c₀, c₁, c₂ of every cell, in powers of m = 2⁶³u; NaN in the cell of no guess."""
    cell = np.arange(_OCTAVES << _BITS)
    octave, place = (cell >> _BITS) - _OCTAVES, cell & (2**_BITS - 1)
    left, width = np.ldexp(1 + place * 2.0**-_BITS, octave), np.ldexp(2.0**-_BITS, octave)
    nodes = (1 + np.cos(np.pi * np.array([[5.0], [3.0], [1.0]]) / 6)) / 2
    values = -ndtri(0.5 * (left + width * nodes))
    s0, s1, s2 = np.linalg.solve(np.vander(nodes[:, 0], increasing=True), values)
    # In s = (u − left)/width = (u/left − 1)·t: powers of u, without cancellation, as u ≈ left.
    t = left / width
    powers = (s0 - s1 * t + s2 * t**2, (s1 - 2 * s2 * t) / width, s2 / width**2)
    nothing = np.array([np.nan])
    scaled = (np.ldexp(c, -63 * power) for power, c in enumerate(powers))
    c0, c1, c2 = (np.concatenate([nothing, c]) for c in scaled)
    return c0, c1, c2


def compute_quick_half_normal(words: WordArray) -> FloatArray:
    """Return |Z| of every word [n] up to `QUICK_ERROR`, [n]; NaN for a word with U < 2⁻²⁰."""
    c0, c1, c2 = _fit_parabolas()
    cell = words.view(np.int64) & _MAGNITUDE
    magnitude = cell.astype(np.float64)
    np.right_shift(magnitude.view(np.int64), _SHIFT, out=cell)
    cell -= _FIRST
    # Clipped below to the cell without a guess; above, m rounds to 2⁶³, the end of the last cell.
    value: FloatArray = c2.take(cell, mode="clip")
    value *= magnitude
    power = c1.take(cell, mode="clip")
    value += power
    value *= magnitude
    value += c0.take(cell, mode="clip", out=power)
    return value


DISTANCE_PER_COORDINATE: Final = 2.0**-87
"""Bound on the statistical distance of one coordinate of a rounded law from the ideal one."""


def draw_rounded_gaussian(sigma: float, size: int, stream: NoiseStream) -> IntArray:
    """Return `size` independent round(σZ), Z ~ N(0, 1): int64 [size], in grid units.

    |X| = #{j ≥ 0 : U ≤ erfc((j + ½)/(σ√2))} with an independent sign. Each value uses one word; the
    float `sigma` is the exact rational it is. Raises ValueError for a `sigma` that is not within
    [2⁻²⁰, 2⁴⁰] and for a negative size.
    """
    check_size("size", size)
    noise = np.zeros(size, dtype=np.int64)
    add_rounded_gaussian(noise, sigma, stream)
    return noise


def add_rounded_gaussian(values: FloatArray | IntArray, sigma: float, stream: NoiseStream) -> None:
    """Add `draw_rounded_gaussian(sigma, n, stream)` to integers `values` [n] in place.

    It is exact in int64, and in float64 while the sums are below 2⁵³. It works in parts that fit
    the cache.
    """
    sigma, survival = _build_survival(sigma)
    for part in iterate_chunks(len(values)):
        words = stream.draw_words(part.stop - part.start)
        noise = round_normals(words, sigma, 0.0, survival, lambda _: stream)
        values[part] += noise.astype(values.dtype, copy=False)


def add_rounded_gaussian_rows(
    values: FloatArray | IntArray, sigma: float, streams: Sequence[NoiseStream]
) -> None:
    """Apply `add_rounded_gaussian` to each row of `values` [n, d] with its stream, bit for bit."""
    sigma, survival = _build_survival(sigma)
    rows, dimension = values.shape
    if len(streams) != rows:
        raise ValueError(f"Expected {rows} streams, one per row, got {len(streams)}.")
    for part in iterate_chunks(rows, dimension):
        own = streams[part]
        if len(own) == 1:  # a long row is drawn part by part
            add_rounded_gaussian(values[part.start], sigma, own[0])
            continue
        words = np.concatenate([each.draw_words(dimension) for each in own])
        noise = round_normals(words, sigma, 0.0, survival, partial(_get_row_stream, own, dimension))
        values[part] += noise.reshape(-1, dimension).astype(values.dtype, copy=False)


def compute_rounded_distance(coordinates: int) -> float:
    """Return a bound on the statistical distance of draws from the ideal law.

    It is 2⁻⁸⁷ per coordinate at any accepted scale: below 2⁻⁴⁰ up to 2⁴⁷ coordinates (d·T).
    """
    check_size("coordinates", coordinates)
    return coordinates * DISTANCE_PER_COORDINATE


def _get_row_stream(streams: Sequence[NoiseStream], dimension: int, lane: int) -> NoiseStream:
    return streams[lane // dimension]


def _build_survival(sigma: float) -> tuple[float, Callable[[int], Survival]]:
    """Return σ and the law of any lane."""
    sigma = check_scale("sigma", sigma)
    survival = build_half_normal_survival(lambda mp, _: (mp.mpf(sigma), mp.mpf(sigma)))
    return sigma, lambda _: survival


def round_normals(
    words: WordArray,
    sigma: Any,
    sigma_error: Any,
    survival: Callable[[int], Survival],
    stream: Callable[[int], NoiseStream],
) -> FloatArray:
    """Return round(σZ) of every word; σ is a number or [n], each up to a relative error."""
    position = compute_quick_half_normal(words)
    position *= sigma
    # The last term covers the rounding of the product.
    error = sigma * (QUICK_ERROR + (sigma_error + FLOAT_ERROR) * LARGEST_QUICK)
    counts, left = round_to_nearest(position, error)
    if left.size:
        own, own_error = (np.broadcast_to(each, words.shape)[left] for each in (sigma, sigma_error))
        counts[left] = _invert_carefully(
            words[left],
            own,
            own_error,
            lambda lane: survival(int(left[lane])),
            lambda lane: stream(int(left[lane])),
        )
    # The top bit is the sign of a word and of a float.
    return np.copysign(counts, words.view(np.float64), out=counts)


def _invert_carefully(
    words: WordArray,
    sigma: float | FloatArray,
    sigma_error: float | FloatArray,
    survival: Callable[[int], Survival],
    stream: Callable[[int], NoiseStream],
) -> IntArray:
    """Return |round(σZ)| of every word by scipy's ndtri, or by mpmath if that is undecided."""
    uniforms, slack = to_uniform_floats(words)
    standard = -ndtri(0.5 * uniforms)  # |Z|: P[|Z| > z] = 2Φ(−z) = U, dz/du ≤ 1.26/u
    error = sigma * (slack + (FLOAT_ERROR + sigma_error) * standard)
    return invert(words, sigma * standard + 0.5, error, survival, stream)


def build_half_normal_survival(enclosure: Enclosure) -> Survival:
    """Return S(j) = P[σ|Z| > j + ½] = erfc((j + ½)/(σ√2)), increasing in σ ≥ 0."""

    def survival(mp: Any, bits: int, j: int) -> tuple[Any, Any]:
        edge = (mp.mpf(j) + 0.5) / mp.sqrt(2)
        low, high = enclosure(mp, bits)
        upper = mp.erfc(edge / high)
        lower = upper if low == high else mp.erfc(edge / low) if low else mp.zero
        return widen(mp, lower, upper)

    return survival
