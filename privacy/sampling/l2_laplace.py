"""Rounded l2-laplace noise: Gaussian vectors of a random σ, by exact inversion (see `gaussian`).

The noise is the nearest integers of the continuous law, thus post-processing of it: pure ε
(Chaudhuri et al. 2011). `parley.privacy.sampling.rounded_gaussian.compute_rounded_distance` gives
the distance from it per coordinate.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from parley.privacy.sampling.gamma import GammaDraws, HalfGammaDraws
from parley.privacy.sampling.inversion import (
    FLOAT_ERROR,
    LARGEST_SCALE,
    Enclosure,
    FloatArray,
    IntArray,
    Survival,
    check_scale,
    check_size,
    iterate_chunks,
    widen,
)
from parley.privacy.sampling.random_stream import NoiseStream
from parley.privacy.sampling.rounded_gaussian import build_half_normal_survival, round_normals

_SMALLEST_GAMMA: Final = 2.0**-400
"""Value, and error, of a V that underflows."""


def add_rounded_mixtures(
    values: IntArray, scale: float, shape: Fraction, jitter: float, stream: NoiseStream
) -> None:
    """Add round(√(2Vb² + w)·N(0, I)) to every row of `values` [n, d] in place, V ~ Gamma(`shape`).

    Each row has one V. With `shape` (d + 1)/(2k) and without `jitter` w it is one of k shares of
    the law ∝ exp(−‖z‖₂/b). `scale` is b, `jitter` a variance. V is computed to as many bits as
    needed. Raises ValueError unless b ≥ 2⁻²⁰, b·√d ≤ 2⁴⁰ and 0 ≤ w ≤ 2⁴⁰.
    """
    rows, dimension = values.shape
    scale = _check_l2_scale(scale, max(dimension, 1))
    if not 0 <= jitter <= LARGEST_SCALE:
        raise ValueError(f"Expected a jitter from 0 to 2⁴⁰, got {jitter:g}.")
    mixing = _MixingScales(scale, GammaDraws(shape, rows, stream), jitter)
    values += _draw_mixture(mixing, rows, dimension, stream)


def draw_rounded_l2_laplace(
    scale: float, dimension: int, count: int, stream: NoiseStream
) -> IntArray:
    """Return `count` roundings of z ∈ R^d, density ∝ exp(−‖z‖₂/b): int64 [count, d], in grid units.

    z = b·√(2V)·N(0, I_d) with V ~ Gamma((d+1)/2): its characteristic function is E exp(−b²V‖t‖²) =
    (1 + b²‖t‖²)^(−(d+1)/2). This is that of the law with norm Gamma(d, b) and uniform direction. So
    z is a Gaussian vector of random σ. V is −ln(U₁⋯U_⌊(d+1)/2⌋), plus E·cos²(πU) with E ~ Exp(1),
    half a squared Gaussian, if d is even.

    `scale` is b. Raises ValueError unless b ≥ 2⁻²⁰ and b·√d ≤ 2⁴⁰, and for a dimension < 1.
    """
    check_size("count", count)
    check_size("dimension", dimension)
    if dimension < 1:
        raise ValueError(f"Expected dimension ≥ 1, got {dimension}.")
    scale = _check_l2_scale(scale, dimension)
    mixing = _MixingScales(scale, HalfGammaDraws(dimension + 1, count, stream))
    return _draw_mixture(mixing, count, dimension, stream)


def _check_l2_scale(scale: float, dimension: int) -> float:
    scale = check_scale("scale", scale)
    if scale * dimension**0.5 > LARGEST_SCALE:
        raise ValueError(
            f"Expected scale·√dimension ≤ 2⁴⁰ grid units, got {scale:g}·√{dimension} "
            f"= {scale * dimension**0.5:g}. Use a coarser grid."
        )
    return scale


def _draw_mixture(
    mixing: _MixingScales, count: int, dimension: int, stream: NoiseStream
) -> IntArray:
    """Return round(σZ) of all coordinates for each of `count` σ: int64 [count, dimension]."""
    noise = np.empty(count * dimension, dtype=np.int64)
    for part in iterate_chunks(noise.size):
        words = stream.draw_words(part.stop - part.start)
        rows = np.arange(part.start, part.stop) // dimension

        def survival(lane: int, rows: npt.NDArray[np.intp] = rows) -> Survival:
            return build_half_normal_survival(mixing.get_enclosure(int(rows[lane])))

        if rows[0] == rows[-1]:  # one σ for all, so no array is needed
            sigma, error = mixing.values[rows[0]], mixing.errors[rows[0]]
        else:
            sigma, error = mixing.values[rows], mixing.errors[rows]
        noise[part] = round_normals(words, sigma, error, survival, lambda _: stream)
    return noise.reshape(count, dimension)


class _MixingScales:
    """σ = √(2Vb² + w) of many V: floats `values` with relative `errors`.

    `get_enclosure(row)` encloses one of them to any precision, which is rarely needed.
    """

    def __init__(
        self, scale: float, drawn: HalfGammaDraws | GammaDraws, jitter: float = 0.0
    ) -> None:
        self._scale, self._jitter, self._drawn = scale, jitter, drawn
        twice = 2 * scale**2
        variance = twice * np.maximum(drawn.values, _SMALLEST_GAMMA) + jitter
        self.values: FloatArray = np.sqrt(variance)
        # The relative error of σ² is no smaller than that of σ.
        self.errors: FloatArray = twice * (drawn.errors + _SMALLEST_GAMMA) / variance + FLOAT_ERROR

    def get_enclosure(self, row: int) -> Enclosure:
        """Return the enclosure of one vector's σ."""

        def enclosure(mp: Any, bits: int) -> tuple[Any, Any]:
            low, high = self._drawn.get_draw(row).refine_bounds(mp, bits)
            twice, jitter = 2 * mp.mpf(self._scale) ** 2, self._jitter
            return widen(mp, mp.sqrt(twice * low + jitter), mp.sqrt(twice * high + jitter))

        return enclosure
