"""Discrete Laplace and discrete Gaussian noise, sampled exactly (see `inversion`).

The laws are those of Canonne, Kamath & Steinke 2020 (arXiv:2004.00010). Where their Algorithms
1–3 flip one exact Bernoulli(e^−γ) after another, a lane here compares one lazily expanded uniform
with e^−γ: as exact, and vectorised. The float `scale` or `sigma` is the exact rational it is.
Given uniform words there is no statistical distance to account for.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from parley.privacy.sampling.inversion import (
    FLOAT_ERROR,
    Enclosure,
    IntArray,
    Survival,
    WordArray,
    accept,
    check_scale,
    check_size,
    chunks,
    invert,
    uniform_floats,
    widen,
    with_signs,
)
from parley.privacy.sampling.stream import NoiseStream


def discrete_laplace(scale: float, size: int, stream: NoiseStream) -> IntArray:
    """Return `size` draws of P[X = x] ∝ exp(−|x|/t) on the integers: int64 [size].

    `scale` is t, in grid units; the variance is 2p/(1−p)², p = e^(−1/t). By inversion of
    P[|X| > j] = 2e^(−(j+1)/t)/(1 + e^(−1/t)) with an independent sign. One word a value. Raises
    ValueError for a `scale` that is not within [2⁻²⁰, 2⁴⁰] and for a negative size.
    """
    scale = check_scale("scale", scale)
    check_size("size", size)
    noise = np.empty(size, dtype=np.int64)
    for part in chunks(size):
        noise[part] = _laplace(scale, stream.words(part.stop - part.start), stream)
    return noise


def discrete_gaussian(sigma: float, size: int, stream: NoiseStream) -> IntArray:
    """Return `size` draws of P[X = x] ∝ exp(−x²/(2σ²)) on the integers: int64 [size].

    Algorithm 3 of arXiv:2004.00010: y from the discrete Laplace of scale t = ⌊σ⌋ + 1, kept with
    probability exp(−(|y| − σ²/t)²/(2σ²)), two words a proposal. Raises ValueError for a `sigma`
    that is not within [2⁻²⁰, 2⁴⁰] and for a negative size.
    """
    sigma = check_scale("sigma", sigma)
    check_size("size", size)
    noise = np.empty(size, dtype=np.int64)
    for part in chunks(size):
        filled = part.start
        while filled < part.stop:
            missing = part.stop - filled
            # Proposals are independent: keeping the first `missing` accepted ones changes nothing.
            kept = _gaussian_proposals(sigma, missing + missing // 2 + 16, stream)[:missing]
            noise[filled : filled + kept.size] = kept
            filled += kept.size
    return noise


def _laplace(scale: float, words: WordArray, stream: NoiseStream) -> IntArray:
    """Return one discrete Laplace draw for each word, int64 [n]."""
    uniforms, slack = uniform_floats(words)
    # |X| = ⌊t(−ln U + c)⌋, c = ln 2 − ln(1 + e^(−1/t)); the cancellation is avoided.
    constant = -np.log1p(0.5 * np.expm1(-1 / scale))
    standard = constant - np.log(uniforms)
    error = scale * (slack + FLOAT_ERROR * standard)
    survival = _laplace_survival(scale)
    return with_signs(
        invert(words, scale * standard, error, lambda _: survival, lambda _: stream), words
    )


def _laplace_survival(scale: float) -> Survival:
    """Return S(j) = P[|X| > j] = 2e^(−(j+1)/t)/(1 + e^(−1/t))."""

    def survival(mp: Any, bits: int, j: int) -> tuple[Any, Any]:
        del bits
        rate = 1 / mp.mpf(scale)
        value = 2 * mp.exp(-(j + 1) * rate) / (1 + mp.exp(-rate))
        return widen(mp, value, value)

    return survival


def _gaussian_proposals(sigma: float, count: int, stream: NoiseStream) -> IntArray:
    """Return the accepted ones among `count` proposals, int64 [≤ count], in order."""
    words = stream.words(2 * count)
    scale = int(sigma) + 1
    proposals = _laplace(float(scale), words[:count], stream)
    uniforms, slack = uniform_floats(words[count:])
    # U ≤ e^−γ where −ln U ≥ γ = (s − σ/t)²/2, s = |y|/σ and σ/t < 1: the terms are at most s + 1.
    multiples = np.abs(proposals) / sigma
    exponent = 0.5 * (multiples - sigma / scale) ** 2
    exponential = -np.log(uniforms)
    error = slack + FLOAT_ERROR * (exponential + (multiples + 1) ** 2)

    def threshold(lane: int) -> Enclosure:
        return _gaussian_acceptance(Fraction(sigma), scale, abs(int(proposals[lane])))

    kept = accept(words[count:], exponential - exponent, error, threshold, stream)
    return proposals[kept]


def _gaussian_acceptance(sigma: Fraction, scale: int, magnitude: int) -> Enclosure:
    """Return exp(−γ), γ = (|y|t − σ²)²/(2σ²t²) in exact rational arithmetic."""
    gamma = (magnitude * scale - sigma**2) ** 2 / (2 * sigma**2 * scale**2)

    def threshold(mp: Any, bits: int) -> tuple[Any, Any]:
        del bits
        value = mp.exp(-mp.mpf(gamma.numerator) / gamma.denominator)
        return widen(mp, value, value)

    return threshold
