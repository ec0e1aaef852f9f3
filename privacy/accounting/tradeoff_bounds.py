"""Bounds on an attacker's detection rate after releases that are not all Gaussian.

After an (ε, δ)-DP release, a test with false-alarm rate α detects the record with probability at
most min{1, e^ε·α + δ, 1 − e^(−ε)(1 − δ − α)} (Kairouz, Oh & Viswanath 2015).

    >>> round(compute_power(0.05, epsilon=1.0), 6)
    0.135914
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from parley.privacy.accounting.rounding import check_delta, check_epsilon, check_rate, check_whole


def compute_power(alpha: float, *, epsilon: float, delta: float = 0.0) -> float:
    """Return an attacker's largest detection rate at false-alarm rate `alpha` under (ε, δ)."""
    check_rate(alpha)
    check_epsilon(epsilon)
    check_delta(delta)
    return min(
        1.0,
        math.exp(min(epsilon, 700.0)) * alpha + delta,
        1 - math.exp(-epsilon) * (1 - delta - alpha),
    )


Curve = Sequence[tuple[float, float]]
"""Pairs (ε, δ) that all hold for a release."""


def sample_curve(epsilon: Callable[[float], float]) -> Curve:
    """Return a few points of a function δ → ε, without those with ε = ∞."""
    deltas = (0.0, *(10.0 ** (-step / 4) for step in range(2, 49)))
    found = ((epsilon(delta), delta) for delta in deltas)
    return tuple((e, d) for e, d in found if e < math.inf)


def compute_curve_power(alpha: float, curve: Curve, *, members: int = 1) -> float:
    """Return the largest detection rate under all points of a curve: the least of their bounds.

    For a group of k the bound is applied k times, each to the last result (Dong, Roth & Su 2022,
    Theorem 2.14: a test that distinguishes one group from another distinguishes one of the k steps
    between them).

    >>> (round(compute_curve_power(0.05, [(0.5, 0.0)], members=2), 6),
    ... round(compute_power(0.05, epsilon=1.0), 6))
    (0.135914, 0.135914)
    """
    check_whole("members", members)
    for _ in range(members):
        alpha = min((compute_power(alpha, epsilon=e, delta=d) for e, d in curve), default=1.0)
    return alpha


def compute_renyi_power(alpha: float, *, rho: float, distance: float = 0.0) -> float:
    """Return the largest detection rate after a ρ-zCDP release.

    ρ-zCDP is defined in Bun & Steinke 2016, Definition 1.1. A test is post-processing: it turns the
    release into two coins, heads with probability α without the record and p with it. Their
    divergence D_a is at most aρ both ways, for every order a > 1. The least p beyond α that some
    order excludes is found by bisection and is an upper bound.

    Args:
        distance: statistical distance of the release from the ideal, as in
            `compute_gaussian_power`.

    For comparison, a GaussianEvent has Φ(Φ⁻¹(0.05) + 0.5) = 0.1261.

    >>> round(compute_renyi_power(0.05, rho=0.125), 4)
    0.1479
    """
    check_rate(alpha)
    if min(rho, distance) < 0:
        raise ValueError(f"Expected ρ and distance >= 0, got {rho}, {distance}.")
    guess = min(1.0, alpha + distance)
    low, high = guess, 1.0
    if not 0 < guess < 1:
        return 1.0
    for _ in range(50):
        middle = (low + high) / 2
        refused = middle < 1 and _has_larger_divergence(guess, middle, rho)
        low, high = (low, middle) if refused else (middle, high)
    return min(1.0, high + distance)


_ORDERS = 1 + np.geomspace(1e-3, 1e4, 200)


def _has_larger_divergence(without: float, with_it: float, rho: float) -> bool:
    """Return whether two coins' divergence exceeds aρ at some order by more than rounding."""
    a, heads, tails = _ORDERS, (without, with_it), (1 - without, 1 - with_it)
    log_heads, log_tails = np.log(heads), np.log(tails)
    both = (
        np.logaddexp(
            a * log_heads[one] + (1 - a) * log_heads[other],
            a * log_tails[one] + (1 - a) * log_tails[other],
        )
        for one, other in ((0, 1), (1, 0))
    )
    allowed = a * (a - 1) * rho
    return any(bool((each > allowed + 1e-11 * (1 + a + allowed)).any()) for each in both)
