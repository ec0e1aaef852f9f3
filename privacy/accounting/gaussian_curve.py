"""The exact privacy curve of Gaussian noise, read in all three directions.

δ(ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ) with μ = Δ/σ; adaptive releases add up to one of
μ = √Σμ² (Balle & Wang 2018, Theorem 8; Dong, Roth & Su 2022, Corollaries 2.13 and 3.3). Neighbours
are those of Δ: replace-one throughout this project.

e^ε·φ(−μ/2 − ε/μ) = φ(μ/2 − ε/μ), so everything is a density times Mills ratios (1 − Φ)/φ, which
never overflow, and δ is kept as its logarithm.

    >>> round(gaussian_epsilon(1.0, 1e-5), 5), round(1 / gaussian_mu(0.5, 1e-5), 5)
    (4.37718, 7.03183)
"""

from __future__ import annotations

import math

from parley.privacy.accounting.rounding import (
    check_delta,
    check_epsilon,
    check_non_negative,
    largest,
)
from parley.privacy.special import erfcx, ndtri

_LN_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_SQRT_HALF = math.sqrt(0.5)
_SQRT_HALF_PI = math.sqrt(math.pi / 2)
_SMALL_MU = 1e-3  # below it the difference of Mills ratios is integrated, not subtracted
_HUGE_MU = 1e150  # μ² overflows soon after


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ(ε) of a Gaussian release with μ = Δ/σ (several: √Σμ²).

    >>> [round(gaussian_delta(1.0, e), 6) for e in (0, 1, 2)]
    [0.382925, 0.126937, 0.020924]
    """
    check_non_negative("mu", mu)
    check_epsilon(epsilon)
    if mu == 0:
        return 0.0
    if mu > _HUGE_MU:
        return 1.0
    return math.exp(min(0.0, _log_delta(mu, epsilon)[0]))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least ε ≥ 0 with δ(ε) ≤ `delta`, rounded up. ∞ where δ = 0 < μ, or μ² overflows.

    ln δ(ε) is decreasing and concave (it convolves the log-concave (1 − e^u)⁺ with a Gaussian),
    so Newton's steps from the right of the root stay there and close in quadratically.
    """
    check_non_negative("mu", mu)
    check_delta(delta)
    if mu == 0:
        return 0.0
    if delta == 0 or mu > _HUGE_MU:
        return math.inf
    # Ask for a little less: where δ is flat in ε, its own rounding is what counts.
    log_delta = math.log(delta)
    log_delta -= 1e-15 * (1 - log_delta)
    if _log_delta(mu, 0.0)[0] <= log_delta:
        return 0.0
    # δ(ε) ≤ 1 − Φ(ε/μ − μ/2): this ε is at the right of the root.
    epsilon = max(0.0, mu * (mu / 2 - float(ndtri(delta))))
    for _ in range(50):
        value, slope = _log_delta(mu, epsilon)
        step = (log_delta - value) / slope if math.isfinite(slope) and slope else 0.0
        epsilon = max(0.0, epsilon + step)
        if abs(step) <= 1e-15 * epsilon:
            break
    # A few ulp of the terms ε/μ, μ/2 and of the curve, with room to spare.
    margin = 1e-13 * epsilon + min(1e-15, 1e-12 * mu)
    while _log_delta(mu, epsilon + margin)[0] > log_delta:
        margin *= 2
    return epsilon + margin


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest μ with `gaussian_epsilon(μ, delta) <= epsilon`, rounded down. 0 at δ = 0."""
    check_epsilon(epsilon)
    check_delta(delta)
    if delta == 0:
        return 0.0
    # δ(ε) ≤ δ(0) < μ/2 allows μ = δ; ρ = (√(L+ε) − √L)² allows μ = √(2ρ).
    log_inverse = -math.log(delta)
    root = epsilon / (math.sqrt(log_inverse + epsilon) + math.sqrt(log_inverse))
    start = max(delta, math.sqrt(2) * root)
    return largest(lambda mu: gaussian_epsilon(mu, delta) <= epsilon, start)


def _log_delta(mu: float, epsilon: float) -> tuple[float, float]:
    """ln δ(ε) and its derivative in ε, for 0 < μ ≤ 1e150.

    With t = ε/μ − μ/2 and s = ε/μ + μ/2: δ = (1 − Φ(t)) − φ(t)·mills(s), dδ/dε = −φ(t)·mills(s).
    """
    t, s = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    mills_s = _mills(s)
    if t < 0 and mu >= _SMALL_MU:
        weighted = math.exp(-t * t / 2 - _LN_SQRT_2PI) * mills_s
        delta = 0.5 * math.erfc(t * _SQRT_HALF) - weighted
        return (math.log(delta), -weighted / delta) if delta > 0 else (-math.inf, -math.inf)
    difference = _mills(t) - mills_s if mu >= _SMALL_MU else _small_difference(t, s, mu)
    if difference <= 0:
        return -math.inf, -math.inf
    return -t * t / 2 - _LN_SQRT_2PI + math.log(difference), -mills_s / difference


def _mills(x: float) -> float:
    """(1 − Φ(x))/φ(x) for x ≥ −1, any size."""
    return _SQRT_HALF_PI * float(erfcx(x * _SQRT_HALF))


def _small_difference(t: float, s: float, mu: float) -> float:
    """mills(t) − mills(s) for s = t + μ: the integral of 1 − x·mills(x), by Simpson's rule."""
    middle = (t + s) / 2
    ends = 2 - t * _mills(t) - s * _mills(s)
    return mu / 6 * (ends + 4 * (1 - middle * _mills(middle)))
