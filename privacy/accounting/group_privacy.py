"""The guarantee that a bound for one unit gives to a group of units."""

from __future__ import annotations

import math

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import GaussianEvent
from parley.privacy.accounting.rounding import (
    check_delta,
    check_epsilon,
    check_whole,
    round_up,
    to_fraction,
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
