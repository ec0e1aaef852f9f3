"""The exact privacy curve of Gaussian noise: δ at an ε, and ε at a δ.

δ(ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ) with μ = Δ/σ. Adaptive releases add up to one release of μ =
√Σμ² (Balle & Wang 2018, Theorem 8; Dong, Roth & Su 2022, Corollaries 2.13 and 3.3). Neighbours are
those of Δ: replace-one throughout this project.

e^ε·φ(−μ/2 − ε/μ) = φ(μ/2 − ε/μ), so every term is a density times Mills ratios (1 − Φ)/φ, which
never overflow. δ is kept as its logarithm.

    >>> round(compute_gaussian_epsilon(1.0, 1e-5), 5)
    4.37718

The module also defines the two conversions of zCDP from ρ to ε. Values out of range raise
ValueError.
"""

from __future__ import annotations

import math

from parley.privacy.accounting.rounding import check_delta, check_epsilon, check_non_negative
from parley.privacy.special_functions import erfcx, ndtri

_LN_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_SQRT_HALF = math.sqrt(0.5)
_SQRT_HALF_PI = math.sqrt(math.pi / 2)
_SMALL_MU = 1e-3  # below it the difference of Mills ratios is integrated, not subtracted
_HUGE_MU = 1e150  # μ² overflows soon after


def compute_gaussian_delta(mu: float, epsilon: float) -> float:
    """Return δ(ε) of a Gaussian release with μ = Δ/σ (several releases: √Σμ²).

    >>> [round(compute_gaussian_delta(1.0, e), 6) for e in (0, 1, 2)]
    [0.382925, 0.126937, 0.020924]
    """
    check_non_negative("mu", mu)
    check_epsilon(epsilon)
    if mu == 0:
        return 0.0
    if mu > _HUGE_MU:
        return 1.0
    return math.exp(min(0.0, _compute_log_delta(mu, epsilon)[0]))


def compute_gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the least ε ≥ 0 with δ(ε) ≤ `delta`, rounded up; ∞ if δ = 0 < μ or μ² overflows.

    ln δ(ε) is decreasing and concave (it convolves the log-concave (1 − e^u)⁺ with a Gaussian), so
    Newton steps from the right of the root stay there and converge quadratically.
    """
    check_non_negative("mu", mu)
    check_delta(delta)
    if mu == 0:
        return 0.0
    if delta == 0 or mu > _HUGE_MU:
        return math.inf
    # Aim slightly below δ: if δ is flat in ε, its rounding errors dominate.
    log_delta = math.log(delta)
    log_delta -= 1e-15 * (1 - log_delta)
    if _compute_log_delta(mu, 0.0)[0] <= log_delta:
        return 0.0
    # δ(ε) ≤ 1 − Φ(ε/μ − μ/2), so this ε is to the right of the root.
    epsilon = max(0.0, mu * (mu / 2 - float(ndtri(delta))))
    for _ in range(50):
        value, slope = _compute_log_delta(mu, epsilon)
        step = (log_delta - value) / slope if math.isfinite(slope) and slope else 0.0
        epsilon = max(0.0, epsilon + step)
        if abs(step) <= 1e-15 * epsilon:
            break
    # More than a few ulp of the terms ε/μ and μ/2 and of the curve.
    margin = 1e-13 * epsilon + min(1e-15, 1e-12 * mu)
    while _compute_log_delta(mu, epsilon + margin)[0] > log_delta:
        margin *= 2
    return epsilon + margin


def _compute_log_delta(mu: float, epsilon: float) -> tuple[float, float]:
    """Return ln δ(ε) and its derivative in ε, for 0 < μ ≤ 1e150.

    With t = ε/μ − μ/2 and s = ε/μ + μ/2: δ = (1 − Φ(t)) − φ(t)·mills(s), dδ/dε = −φ(t)·mills(s).
    """
    t, s = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    mills_s = _compute_mills_ratio(s)
    if t < 0 and mu >= _SMALL_MU:
        weighted = math.exp(-t * t / 2 - _LN_SQRT_2PI) * mills_s
        delta = 0.5 * math.erfc(t * _SQRT_HALF) - weighted
        return (math.log(delta), -weighted / delta) if delta > 0 else (-math.inf, -math.inf)
    difference = (
        _compute_mills_ratio(t) - mills_s
        if mu >= _SMALL_MU
        else _compute_small_difference(t, s, mu)
    )
    if difference <= 0:
        return -math.inf, -math.inf
    return -t * t / 2 - _LN_SQRT_2PI + math.log(difference), -mills_s / difference


def _compute_mills_ratio(x: float) -> float:
    """Return (1 − Φ(x))/φ(x) for any x ≥ −1."""
    return _SQRT_HALF_PI * float(erfcx(x * _SQRT_HALF))


def _compute_small_difference(t: float, s: float, mu: float) -> float:
    """Return mills(t) − mills(s), s = t + μ: the integral of 1 − x·mills(x), by Simpson's rule."""
    middle = (t + s) / 2
    ends = 2 - t * _compute_mills_ratio(t) - s * _compute_mills_ratio(s)
    return mu / 6 * (ends + 4 * (1 - middle * _compute_mills_ratio(middle)))


def compute_zcdp_epsilon(rho: float, delta: float) -> float:
    """Return ε = ρ + 2√(ρL), rounded up; ∞ at δ = 0 < ρ (Bun & Steinke 2016, Proposition 1.3)."""
    check_non_negative("rho", rho)
    check_delta(delta)
    if rho == 0:
        return 0.0
    if delta == 0:
        return math.inf
    return (rho + 2 * math.sqrt(rho) * math.sqrt(-math.log(delta))) * (1 + 1e-15)


def compute_cks20_epsilon(rho: float, delta: float) -> float:
    """Return ε by Canonne, Kamath & Steinke 2020, Proposition 12, rounded up; never above zcdp's.

    The minimum over α is at ρ(α−1)² + ln α = L. Every α > 1 gives a valid ε, so an approximate root
    makes ε larger but never wrong.
    """
    ceiling = compute_zcdp_epsilon(rho, delta)
    if rho == 0 or not math.isfinite(ceiling):
        return ceiling
    log_inverse = -math.log(delta)
    low, high = 0.0, math.sqrt(log_inverse) / math.sqrt(rho)
    if log_inverse < 700:
        high = min(high, math.exp(log_inverse))
    for _ in range(100):
        middle = (low + high) / 2
        below = rho * middle * middle + math.log1p(middle) < log_inverse
        low, high = (middle, high) if below else (low, middle)
        if high - low <= 1e-9 * high:
            break
    order = (low + high) / 2  # α − 1
    if order == 0 or math.isinf(order):
        return ceiling
    linear = rho + rho * order
    tail = (log_inverse - math.log1p(order)) / order
    gain = math.log1p(1 / order)
    value = linear + tail - gain
    return min(ceiling, max(0.0, value + 1e-15 * (linear + abs(tail) + gain)))
