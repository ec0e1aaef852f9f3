"""Discrete Laplace and discrete Gaussian noise, sampled exactly (see `inversion`).

The laws are those of Canonne, Kamath & Steinke 2020 (arXiv:2004.00010). Their Algorithms 1–3 flip
one exact Bernoulli(e^−γ) after another. Here a lane compares one lazily expanded uniform with e^−γ
instead, which is equally exact and vectorised. The float `scale` or `sigma` is the exact rational
it is. Given uniform words, the statistical distance is 0.

The module also samples NegativeBinomial(1/k, p), p = e^(−1/t), exactly: k draws sum to a geometric
variable.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from parley.privacy.sampling.inversion import (
    FLOAT_ERROR,
    Enclosure,
    IntArray,
    Survival,
    Uniform,
    WordArray,
    accept,
    apply_signs,
    check_scale,
    check_size,
    invert,
    iterate_chunks,
    to_uniform_floats,
    widen,
)
from parley.privacy.sampling.random_stream import NoiseStream
from parley.privacy.special_functions import gammainc


def discrete_laplace(scale: float, size: int, stream: NoiseStream) -> IntArray:
    """Return `size` draws of P[X = x] ∝ exp(−|x|/t) on the integers: int64 [size].

    `scale` is t, in grid units; the variance is 2p/(1−p)², p = e^(−1/t). By inversion of P[|X| > j]
    = 2e^(−(j+1)/t)/(1 + e^(−1/t)) with an independent sign. Each value uses one word. Raises
    ValueError for a `scale` that is not within [2⁻²⁰, 2⁴⁰] and for a negative size.
    """
    scale = check_scale("scale", scale)
    check_size("size", size)
    noise = np.empty(size, dtype=np.int64)
    for part in iterate_chunks(size):
        noise[part] = _draw_laplace(scale, stream.draw_words(part.stop - part.start), stream)
    return noise


def discrete_gaussian(sigma: float, size: int, stream: NoiseStream) -> IntArray:
    """Return `size` draws of P[X = x] ∝ exp(−x²/(2σ²)) on the integers: int64 [size].

    Algorithm 3 of arXiv:2004.00010: y from the discrete Laplace of scale t = ⌊σ⌋ + 1, kept with
    probability exp(−(|y| − σ²/t)²/(2σ²)), two words per proposal. Raises ValueError for a `sigma`
    that is not within [2⁻²⁰, 2⁴⁰] and for a negative size.
    """
    sigma = check_scale("sigma", sigma)
    check_size("size", size)
    noise = np.empty(size, dtype=np.int64)
    for part in iterate_chunks(size):
        filled = part.start
        while filled < part.stop:
            missing = part.stop - filled
            # Proposals are independent, so keeping only the first `missing` accepted ones is exact.
            kept = _draw_gaussian_proposals(sigma, missing + missing // 2 + 16, stream)[:missing]
            noise[filled : filled + kept.size] = kept
            filled += kept.size
    return noise


def _draw_laplace(scale: float, words: WordArray, stream: NoiseStream) -> IntArray:
    """Return one discrete Laplace draw for each word, int64 [n]."""
    uniforms, slack = to_uniform_floats(words)
    # |X| = ⌊t(−ln U + c)⌋, c = ln 2 − ln(1 + e^(−1/t)); the cancellation is avoided.
    constant = -np.log1p(0.5 * np.expm1(-1 / scale))
    standard = constant - np.log(uniforms)
    error = scale * (slack + FLOAT_ERROR * standard)
    survival = _build_laplace_survival(scale)
    counts = invert(words, scale * standard, error, lambda _: survival, lambda _: stream)
    return apply_signs(counts, words)


def _build_laplace_survival(scale: float) -> Survival:
    """Return S(j) = P[|X| > j] = 2e^(−(j+1)/t)/(1 + e^(−1/t))."""

    def survival(mp: Any, bits: int, j: int) -> tuple[Any, Any]:
        rate = 1 / mp.mpf(scale)
        value = 2 * mp.exp(-(j + 1) * rate) / (1 + mp.exp(-rate))
        return widen(mp, value, value)

    return survival


def _draw_gaussian_proposals(sigma: float, count: int, stream: NoiseStream) -> IntArray:
    """Return the accepted proposals among `count`, int64 [≤ count], in order."""
    words = stream.draw_words(2 * count)
    scale = int(sigma) + 1
    proposals = _draw_laplace(float(scale), words[:count], stream)
    uniforms, slack = to_uniform_floats(words[count:])
    # U ≤ e^−γ if −ln U ≥ γ = (s − σ/t)²/2, s = |y|/σ and σ/t < 1, so the terms are at most s + 1.
    multiples = np.abs(proposals) / sigma
    exponent = 0.5 * (multiples - sigma / scale) ** 2
    exponential = -np.log(uniforms)
    error = slack + FLOAT_ERROR * (exponential + (multiples + 1) ** 2)

    def threshold(lane: int) -> Enclosure:
        return _build_gaussian_acceptance(Fraction(sigma), scale, abs(int(proposals[lane])))

    kept = accept(words[count:], exponential - exponent, error, threshold, stream)
    return proposals[kept]


def _build_gaussian_acceptance(sigma: Fraction, scale: int, magnitude: int) -> Enclosure:
    """Return exp(−γ), γ = (|y|t − σ²)²/(2σ²t²) in exact rational arithmetic."""
    gamma = (magnitude * scale - sigma**2) ** 2 / (2 * sigma**2 * scale**2)

    def threshold(mp: Any, bits: int) -> tuple[Any, Any]:
        value = mp.exp(-mp.mpf(gamma.numerator) / gamma.denominator)
        return widen(mp, value, value)

    return threshold


def draw_negative_binomial(scale: float, divisor: int, size: int, stream: NoiseStream) -> IntArray:
    """Return `size` draws of NegativeBinomial(1/k, p) on {0, 1, …}, k = `divisor`: int64 [size].

    P[X = x] = Γ(x + 1/k)/(x!·Γ(1/k))·(1 − p)^(1/k)·p^x, p = e^(−1/t), t = `scale`. Raises
    ValueError for a scale that is not within [2⁻²⁰, 2⁴⁰], a divisor < 1 or a negative size.
    """
    scale = check_scale("scale", scale)
    check_size("size", size)
    if divisor < 1:
        raise ValueError(f"Expected divisor ≥ 1, got {divisor}.")
    terms = _draw_poisson(scale, divisor, size, stream)
    values = _draw_logarithmic(scale, int(terms.sum()), stream)
    totals = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(values)))
    ends = np.cumsum(terms)
    return np.asarray(totals[ends] - totals[ends - terms], dtype=np.int64)


def _draw_poisson(scale: float, divisor: int, size: int, stream: NoiseStream) -> IntArray:
    """Return `size` draws of N ~ Poisson(κ/k), int64 [size]; κ/k < 28."""
    words = stream.draw_words(size)
    uniforms, slack = to_uniform_floats(words)
    mean = _compute_kappa_float(scale) / divisor
    tails = gammainc(np.arange(1.0, 256.0), mean)  # S(j) = P[N > j], below 2⁻⁶³ before the end
    counts = np.searchsorted(-tails, -uniforms, side="right")
    # Relative distance to the nearest threshold, instead of that to the nearest integer.
    above = np.concatenate(([np.inf], tails))[counts] / uniforms - 1
    below = 1 - np.concatenate((tails, [0.0]))[counts] / uniforms
    position = counts.astype(np.float64) + np.minimum(0.25, np.minimum(above, below))
    # A generous bound for gammainc: U has no scale that would magnify its error.
    error = slack + 2.0**-30
    survival = _build_poisson_survival(scale, divisor)
    return invert(words, position, error, lambda _: survival, lambda _: stream)


def _build_poisson_survival(scale: float, divisor: int) -> Survival:
    """Return S(j) = P[N > j] = e^(−λ)·Σ_{i>j} λ^i/i!, λ = κ/k, a sum of positive terms."""

    def survival(mp: Any, bits: int, j: int) -> tuple[Any, Any]:
        mean = _compute_kappa(mp, scale) / divisor
        term = total = mp.exp(-mean) * mean ** (j + 1) / mp.factorial(j + 1)
        i = j + 1
        # From i ≥ 2λ on, each term is at most half the one before, so the rest is at most the last.
        while i < 2 * mean or term > mp.ldexp(total, -mp.prec):
            i += 1
            term *= mean / i
            total += term
        return widen(mp, total, total + term)

    return survival


def _draw_logarithmic(scale: float, size: int, stream: NoiseStream) -> IntArray:
    """Return `size` draws of P[L = x] = p^x/(xκ) on {1, 2, …}, int64 [size]; 2 words per value."""
    words = stream.draw_words(2 * size)
    uniforms, slack = to_uniform_floats(words)
    x = _compute_kappa_float(scale) * uniforms[:size]
    # L − 1 = ⌊−ln V/r⌋, r = −ln Y = −ln(1 − e^(−x)), by the form that keeps its digits.
    rate = np.where(x < 1, -np.log(-np.expm1(-x)), -np.log1p(-np.exp(-x)))
    position = -np.log(uniforms[size:]) / rate
    # The error of x is at most slack·x, and |dr/dx|·x = x/(e^x − 1); κ and rounding add < 28·2⁻⁴⁹.
    rate_error = 8 * FLOAT_ERROR + slack[:size] * x / np.expm1(x) / rate
    error = slack[size:] / rate + 2 * rate_error * position

    def survival(lane: int) -> Survival:
        return _build_geometric_survival(scale, Uniform(int(words[lane]), stream))

    return invert(words[size:], position, error, survival, lambda _: stream) + 1


def _build_geometric_survival(scale: float, mixer: Uniform) -> Survival:
    """Return S(j) = P[L > j + 1 | U] = Y^(j+1), Y = 1 − e^(−κU), increasing in U."""

    def survival(mp: Any, bits: int, j: int) -> tuple[Any, Any]:
        while mixer.bits < bits:
            mixer.extend()
        kappa = _compute_kappa(mp, scale)
        low, high = (-mp.expm1(-kappa * end) for end in mixer.compute_bounds(mp))
        return widen(mp, low ** (j + 1), high ** (j + 1))

    return survival


def _compute_kappa_float(scale: float) -> float:
    """Return κ = −ln(1 − e^(−1/t)) with full relative precision; 0 if e^(−1/t) underflows."""
    if scale < 1:
        return -math.log1p(-math.exp(-1 / scale))
    return -math.log(-math.expm1(-1 / scale))


def _compute_kappa(mp: Any, scale: float) -> Any:
    """Return κ = −ln(1 − e^(−1/t))."""
    return -mp.log1p(-mp.exp(-1 / mp.mpf(scale)))
