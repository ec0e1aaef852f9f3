"""The meaning of ε for an attacker who tests whether a record is in the data, and for groups.

After an (ε, δ)-DP release, a test with false-alarm rate α detects the record with probability at
most min{1, e^ε·α + δ, 1 − e^(−ε)(1 − δ − α)} (Kairouz, Oh & Viswanath 2015). A bound for replacing
one record, applied k times, bounds the replacement of k records.

    >>> round(compute_power(0.05, epsilon=1.0), 6)
    0.135914
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import GaussianEvent
from parley.privacy.accounting.rounding import (
    check_delta,
    check_epsilon,
    check_whole,
    round_up,
    to_fraction,
)
from parley.privacy.special_functions import ndtr, ndtri

FALSE_ALARM_RATE = 0.05
"""False-alarm rate at which an attacker's detection rate is reported."""

GROUP_SIZES = (1, 2, 5, 10)
"""Numbers of units for which the detection rate is reported."""


def compute_power(alpha: float, *, epsilon: float, delta: float = 0.0) -> float:
    """Return an attacker's largest detection rate at false-alarm rate `alpha` under (ε, δ)."""
    _check_rate(alpha)
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


def compute_gaussian_power(alpha: float, *, mu: float, distance: float = 0.0) -> float:
    """Return the largest detection rate after a μ-GDP release: Φ(Φ⁻¹(α) + μ).

    See Dong, Roth & Su 2022.

    Args:
        distance: statistical distance of the release from the ideal; it is added to both of the
            attacker's rates.

    >>> (round(compute_gaussian_power(0.05, mu=0.5), 6),
    ... round(compute_gaussian_power(0.05, mu=2.0), 5))
    (0.126135, 0.63876)
    """
    _check_rate(alpha)
    if min(mu, distance) < 0:
        raise ValueError(f"Expected μ and distance >= 0, got {mu}, {distance}.")
    more = min(1.0, alpha + distance)
    found = float(ndtr(ndtri(more) + mu)) * (1 + 1e-12)
    return min(1.0, found + distance)


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
    _check_rate(alpha)
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


def compute_attack_power(
    spent: Composition, *, members: int = 1, alpha: float = FALSE_ALARM_RATE
) -> float:
    """Return the largest detection rate of an attacker on these releases: the least proved bound.

    The attacker knows every other record, and its false-alarm rate is at most α: that is how often
    it takes an absent (or another) record for the one it looks for. If all events are Gaussian, the
    bound uses μ: no proved bound is lower. Otherwise it uses points of the releases' curve, and ρ.
    A group of k has kμ, the curve applied k times (`compute_curve_power`), and k²ρ (Bun & Steinke
    2016, Proposition 1.9). The bound holds for the relation and unit of `spent`'s events, and
    against the adversaries that these hold against.

    >>> from parley.privacy.accounting.privacy_events import GaussianEvent
    >>> spent = Composition.from_events([GaussianEvent(mu=0.3), GaussianEvent(mu=0.4)])
    >>> [round(compute_attack_power(spent, members=members), 4) for members in GROUP_SIZES]
    [0.1261, 0.2595, 0.8038, 0.9996]
    """
    check_whole("members", members)
    slack, steps = round_up(spent.sampler_distance), members * members
    if spent.mu is not None:
        # Each step to the next neighbour moves a Gaussian by μ.
        mu = round_up(to_fraction(spent.mu) * members)
        return compute_gaussian_power(alpha, mu=mu, distance=slack)
    return min(
        compute_curve_power(
            alpha,
            sample_curve(lambda delta: spent.compute_lowest_epsilon(delta)[1]),
            members=members,
        ),
        compute_renyi_power(alpha, rho=round_up(to_fraction(spent.rho) * steps), distance=slack),
    )


def compute_group_guarantee(epsilon: float, delta: float, members: int) -> tuple[float, float]:
    """Return (kε, δ·(e^(kε) − 1)/(e^ε − 1)) for k units (triangle inequality, step by step).

    >>> compute_group_guarantee(0.5, 0.0, 3)
    (1.5, 0.0)
    """
    check_epsilon(epsilon)
    check_delta(delta)
    check_whole("members", members)
    factors = (math.exp(min(step * epsilon, 700.0)) for step in range(members))
    return members * epsilon, min(1.0, delta * math.fsum(factors))


def compute_group_epsilon(spent: Composition, delta: float, members: int) -> float:
    """Return the least known ε of k units together at δ, if `spent` bounds one unit.

    It uses kμ if all events are Gaussian. Otherwise it applies `compute_group_guarantee` to a few
    points of the curve.

    >>> from parley.privacy.accounting.privacy_events import GaussianEvent, Pure
    >>> compute_group_epsilon(Composition.from_events([Pure(epsilon=0.5)]), 0.0, 3)
    1.5
    >>> round(compute_group_epsilon(Composition.from_events([GaussianEvent(mu=0.5)]), 1e-5, 3), 5)
    7.05141
    """
    check_whole("members", members)
    if members == 1:
        return spent.compute_lowest_epsilon(delta)[1]
    if spent.mu is not None and not spent.sampler_distance:
        mu = round_up(to_fraction(spent.mu) * members)
        return Composition.from_events([GaussianEvent(mu=mu)]).compute_lowest_epsilon(delta)[1]
    found = math.inf
    for small in (0.0, *(delta * 10.0 ** (-step / 2) / members for step in range(16))):
        epsilon = spent.compute_lowest_epsilon(small)[1]
        if epsilon < 700 and compute_group_guarantee(epsilon, small, members)[1] <= delta:
            found = min(found, epsilon * members)
    return found


def _check_rate(alpha: float) -> None:
    if not 0 <= alpha <= 1:
        raise ValueError(f"Expected a false-alarm rate from 0 to 1, got {alpha}.")
