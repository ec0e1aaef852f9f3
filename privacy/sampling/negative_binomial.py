"""NegativeBinomial(1/k, p), p = e^(−1/t), sampled exactly: k draws sum to a geometric variable.

A negative binomial is a Poisson(κ/k) number of logarithmic variables, κ = −ln(1 − p) (Quenouille
1949), P[L = x] = p^x/(xκ). A logarithmic variable is a geometric one of random parameter (Kemp
1981): P[L > x | U] = Y^x with Y = 1 − (1 − p)^U = 1 − e^(−κU). Both laws are inverted exactly by
`parley.privacy.sampling.inversion`; the float t is the exact rational it is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from parley.privacy.sampling.inversion import (
    FLOAT_ERROR,
    IntArray,
    Survival,
    Uniform,
    check_scale,
    check_size,
    invert,
    uniform_floats,
    widen,
)
from parley.privacy.sampling.stream import NoiseStream
from parley.privacy.special import gammainc


def negative_binomial(scale: float, divisor: int, size: int, stream: NoiseStream) -> IntArray:
    """Return `size` draws of NegativeBinomial(1/k, p) on {0, 1, …}, k = `divisor`: int64 [size].

    P[X = x] = Γ(x + 1/k)/(x!·Γ(1/k))·(1 − p)^(1/k)·p^x, p = e^(−1/t), t = `scale`. Raises
    ValueError for a scale that is not within [2⁻²⁰, 2⁴⁰], a divisor < 1 or a negative size.
    """
    scale = check_scale("scale", scale)
    check_size("size", size)
    if divisor < 1:
        raise ValueError(f"Expected divisor ≥ 1, got {divisor}.")
    terms = _poisson(scale, divisor, size, stream)
    values = _logarithmic(scale, int(terms.sum()), stream)
    totals = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(values)))
    ends = np.cumsum(terms)
    return np.asarray(totals[ends] - totals[ends - terms], dtype=np.int64)


def _poisson(scale: float, divisor: int, size: int, stream: NoiseStream) -> IntArray:
    """Return `size` draws of N ~ Poisson(κ/k), int64 [size]; κ/k < 28."""
    words = stream.words(size)
    uniforms, slack = uniform_floats(words)
    mean = _kappa_float(scale) / divisor
    tails = gammainc(np.arange(1.0, 256.0), mean)  # S(j) = P[N > j], below 2⁻⁶³ before the end
    counts = np.searchsorted(-tails, -uniforms, side="right")
    # Relative distance to the nearest threshold, in the place of that to the nearest integer.
    above = np.concatenate(([np.inf], tails))[counts] / uniforms - 1
    below = 1 - np.concatenate((tails, [0.0]))[counts] / uniforms
    position = counts.astype(np.float64) + np.minimum(0.25, np.minimum(above, below))
    error = slack + 2.0**-30  # generous to gammainc: U has no scale that would magnify it
    survival = _poisson_survival(scale, divisor)
    return invert(words, position, error, lambda _: survival, lambda _: stream)


def _poisson_survival(scale: float, divisor: int) -> Survival:
    """Return S(j) = P[N > j] = e^(−λ)·Σ_{i>j} λ^i/i!, λ = κ/k: a sum of positive terms."""

    def survival(mp: Any, bits: int, j: int) -> tuple[Any, Any]:
        del bits
        mean = _kappa(mp, scale) / divisor
        term = total = mp.exp(-mean) * mean ** (j + 1) / mp.factorial(j + 1)
        i = j + 1
        # Beyond i ≥ 2λ terms at least halve, so that the rest is at most the last one.
        while i < 2 * mean or term > mp.ldexp(total, -mp.prec):
            i += 1
            term *= mean / i
            total += term
        return widen(mp, total, total + term)

    return survival


def _logarithmic(scale: float, size: int, stream: NoiseStream) -> IntArray:
    """Return `size` draws of P[L = x] = p^x/(xκ) on {1, 2, …}, int64 [size]. Two words a value."""
    words = stream.words(2 * size)
    uniforms, slack = uniform_floats(words)
    x = _kappa_float(scale) * uniforms[:size]
    # L − 1 = ⌊−ln V/r⌋, r = −ln Y = −ln(1 − e^(−x)), by whichever form keeps its digits.
    rate = np.where(x < 1, -np.log(-np.expm1(-x)), -np.log1p(-np.exp(-x)))
    position = -np.log(uniforms[size:]) / rate
    # x is right to slack·x and |dr/dx|·x = x/(e^x − 1); κ and the roundings cost < 28·2⁻⁴⁹.
    rate_error = 8 * FLOAT_ERROR + slack[:size] * x / np.expm1(x) / rate
    error = slack[size:] / rate + 2 * rate_error * position

    def survival(lane: int) -> Survival:
        return _geometric_survival(scale, Uniform(int(words[lane]), stream))

    return invert(words[size:], position, error, survival, lambda _: stream) + 1


def _geometric_survival(scale: float, mixer: Uniform) -> Survival:
    """Return S(j) = P[L > j + 1 | U] = Y^(j+1), Y = 1 − e^(−κU), increasing in U."""

    def survival(mp: Any, bits: int, j: int) -> tuple[Any, Any]:
        while mixer.bits < bits:
            mixer.extend()
        kappa = _kappa(mp, scale)
        low, high = (-mp.expm1(-kappa * end) for end in mixer.bounds(mp))
        return widen(mp, low ** (j + 1), high ** (j + 1))

    return survival


def _kappa_float(scale: float) -> float:
    """Return κ = −ln(1 − e^(−1/t)) with full relative precision; 0 where e^(−1/t) underflows."""
    if scale < 1:
        return -math.log1p(-math.exp(-1 / scale))
    return -math.log(-math.expm1(-1 / scale))


def _kappa(mp: Any, scale: float) -> Any:
    """Return κ = −ln(1 − e^(−1/t))."""
    return -mp.log1p(-mp.exp(-1 / mp.mpf(scale)))
