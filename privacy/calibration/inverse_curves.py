"""Inverse curves of Gaussian noise and of zCDP: from (ε, δ) to μ or ρ, rounded down.

`parley.privacy.accounting.gaussian_curve` computes the charge of a release from its noise, so no ε
depends on how the noise was found.

    >>> (round(1 / compute_gaussian_mu(0.5, 1e-5), 5),
    ... round(find_largest(lambda x: x * x <= 2, start=0.1), 12))
    (7.03183, 1.414213562373)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from parley.privacy.accounting.gaussian_curve import compute_cks20_epsilon, compute_gaussian_epsilon
from parley.privacy.accounting.rounding import check_delta, check_epsilon


@cache
def compute_gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ with `compute_gaussian_epsilon(μ, delta) <= epsilon`, rounded down.

    It is 0 at δ = 0.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if delta == 0:
        return 0.0
    # δ(ε) ≤ δ(0) < μ/2 allows μ = δ; ρ = (√(L+ε) − √L)² allows μ = √(2ρ).
    start = max(delta, math.sqrt(2) * _compute_root(epsilon, delta))
    return find_largest(lambda mu: compute_gaussian_epsilon(mu, delta) <= epsilon, start)


def compute_zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest ρ with `compute_zcdp_epsilon(ρ, delta) <= epsilon`, rounded down.

    ρ = (√(L+ε) − √L)²; 0 at δ = 0.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if delta == 0:
        return 0.0
    root = _compute_root(epsilon, delta)
    return root * root * (1 - 1e-14)


def _compute_root(epsilon: float, delta: float) -> float:
    """Return √(L+ε) − √L for L = ln 1/δ, as ε/(√(L+ε) + √L): no cancellation for small ε."""
    log_inverse = -math.log(delta)
    return epsilon / (math.sqrt(log_inverse + epsilon) + math.sqrt(log_inverse))


def compute_cks20_rho(epsilon: float, delta: float) -> float:
    """Return the largest ρ with `compute_cks20_epsilon(ρ, delta) <= epsilon`, rounded down.

    It is 0 at δ = 0.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if delta == 0:
        return 0.0
    # At ε = 0, α = 1/δ shows that ρ = −δ·ln(1 − δ) is allowed.
    start = max(compute_zcdp_rho(epsilon, delta), -delta * math.log1p(-delta))
    if start:
        return find_largest(lambda rho: compute_cks20_epsilon(rho, delta) <= epsilon, start)
    return 0.0


def find_largest(holds: Callable[[float], bool], start: float) -> float:
    """Return the largest float x > 0 for which `holds`; it is true below a bound, false above.

    `holds` is true for the result unless that is 0. `start` is best below the bound.
    """
    low = start
    while not holds(low):
        low /= 2
        if low == 0:
            return 0.0
    high = 2 * low
    while not math.isinf(high) and holds(high):
        low, high = high, 2 * high
    if math.isinf(high):
        return low
    while high - low > 1e-15 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
