"""From ρ to ε and back: the two conversions of zCDP. Values out of range raise ValueError.

- zcdp: ε = ρ + 2√(ρL), L = ln(1/δ) (Bun & Steinke 2016, Proposition 1.3).
- cks20: ε = min over α > 1 of αρ + (L − ln α)/(α − 1) + ln(1 − 1/α) (Canonne, Kamath & Steinke
  2020, Proposition 12).

Whoever reads ε off gets an upper end, whoever reads μ or ρ off gets a lower end: the verified side
of the root. μ and ρ belong to the mechanism's own neighbouring relation; this project's Δ is
replace-one.

    >>> from parley.privacy.accounting.gaussian_curve import gaussian_epsilon
    >>> rho = 0.5  # one Gaussian of μ = 1
    >>> [round(f, 5) for f in (zcdp_epsilon(rho, 1e-5), cks20_epsilon(rho, 1e-5))]
    [5.29853, 4.72839]
    >>> round(gaussian_epsilon(1.0, 1e-5), 5)
    4.37718
"""

from __future__ import annotations

import math

from parley.privacy.accounting.rounding import (
    check_delta,
    check_epsilon,
    check_non_negative,
    largest,
)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """ε = ρ + 2√(ρL), rounded up. Bun & Steinke 2016, Proposition 1.3. ∞ at δ = 0 < ρ."""
    check_non_negative("rho", rho)
    check_delta(delta)
    if rho == 0:
        return 0.0
    if delta == 0:
        return math.inf
    return (rho + 2 * math.sqrt(rho) * math.sqrt(-math.log(delta))) * (1 + 1e-15)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """The largest ρ with `zcdp_epsilon(ρ, delta) <= epsilon`: (√(L+ε) − √L)², rounded down."""
    check_epsilon(epsilon)
    check_delta(delta)
    if delta == 0:
        return 0.0
    log_inverse = -math.log(delta)
    # √(L+ε) − √L = ε/(√(L+ε) + √L): no cancellation for small ε.
    root = epsilon / (math.sqrt(log_inverse + epsilon) + math.sqrt(log_inverse))
    return root * root * (1 - 1e-14)


def cks20_epsilon(rho: float, delta: float) -> float:
    """ε by Canonne, Kamath & Steinke 2020, Proposition 12, rounded up; never above zcdp's.

    The minimum over α is where ρ(α−1)² + ln α = L. Any α > 1 gives a valid ε, so a rough root
    costs accuracy and never truth.
    """
    ceiling = zcdp_epsilon(rho, delta)
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


def cks20_rho(epsilon: float, delta: float) -> float:
    """The largest ρ with `cks20_epsilon(ρ, delta) <= epsilon`, rounded down. 0 at δ = 0."""
    check_epsilon(epsilon)
    check_delta(delta)
    if delta == 0:
        return 0.0
    # At ε = 0, α = 1/δ shows that ρ = −δ·ln(1 − δ) is enough.
    start = max(zcdp_rho(epsilon, delta), -delta * math.log1p(-delta))
    return largest(lambda rho: cks20_epsilon(rho, delta) <= epsilon, start) if start else 0.0
