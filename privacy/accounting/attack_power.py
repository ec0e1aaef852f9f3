"""The meaning of ε for an attacker who tests whether a record, or a group, is in the data.

A bound for replacing one record, applied k times, bounds the replacement of k records.

    >>> round(compute_gaussian_power(0.05, mu=0.5), 6)
    0.126135
"""

from __future__ import annotations

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.rounding import check_rate, check_whole, round_up, to_fraction
from parley.privacy.special_functions import ndtr, ndtri

FALSE_ALARM_RATE = 0.05
"""False-alarm rate at which an attacker's detection rate is reported."""

GROUP_SIZES = (1, 2, 5, 10)
"""Numbers of units for which the detection rate is reported."""


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
    check_rate(alpha)
    if min(mu, distance) < 0:
        raise ValueError(f"Expected μ and distance >= 0, got {mu}, {distance}.")
    more = min(1.0, alpha + distance)
    found = float(ndtr(ndtri(more) + mu)) * (1 + 1e-12)
    return min(1.0, found + distance)


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
    from parley.privacy.accounting.tradeoff_bounds import (  # noqa: PLC0415 - spares its code if all noise is Gaussian
        compute_curve_power,
        compute_renyi_power,
        sample_curve,
    )

    return min(
        compute_curve_power(
            alpha,
            sample_curve(lambda delta: spent.compute_lowest_epsilon(delta)[1]),
            members=members,
        ),
        compute_renyi_power(alpha, rho=round_up(to_fraction(spent.rho) * steps), distance=slack),
    )
