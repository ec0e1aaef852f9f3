"""How an outcome answers to covariates: slope and curvature of a record's likelihood, bounded.

A record's mean depends on η_k = γ_k + β·x, one γ or one for each of K intervals. A *family* says,
of a record at (γ, β), the slope s_k of its log-likelihood along each η_k, and a curvature w_k: the
mean of that at (γ, β) and of what the record itself says of it, so that Σs/Σw is the secant
between the two parameters and a Newton step is right to second order (the trapezoid rule).

Bounds hold for every record, whatever (γ, β) is: |Σs| ≤ 1 and 0 ≤ Σw ≤ 1, and (Σs)² + (Σw)² ≤ 5/4.
Where they are won by leaving a record out, that is decided by its covariates alone, never by its
outcome, so that no estimate is moved by it. All is one record's arithmetic, in one order
(`parley.client.models.exact_math`).

>>> margins, labels = np.array([0.0, 2.0]), np.array([1.0, 1.0])
>>> slope, curvature = compute_logistic_terms(np.zeros(1), margins, labels)
>>> slope.round(3).tolist(), curvature.round(3).tolist()
([[0.5], [0.119]], [[0.25], [0.06]])
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parley.client.models.exact_math import exp

Real = NDArray[np.float64]
Both = tuple[Real, Real]
"""`[n, K]` slopes, and curvatures."""

MAX_HAZARD = 1.0
"""Of a record, all intervals together: from there on it counts as censored."""


def compute_logistic_terms(base: Real, margins: Real, outcomes: Real) -> Both:
    """Of outcomes 0 and 1: s = y − p, w = |y − p|/2, whose mean is (p* + p)/2 − p*·p."""
    slopes = outcomes - 1 / (1 + exp(-(base[0] + margins)))
    return slopes[:, None], np.abs(slopes)[:, None] / 2


def compute_count_terms(
    base: Real, margins: Real, outcomes: Real, *, exposures: Real, cap: float, dispersion: float
) -> Both:
    """Of counts with mean μ = exposure·e^η, in units of the cap; their variance is μ + α·μ².

    s = (y − μ)/(1 + αμ): Poisson's with α = 0, else the negative binomial's (Cameron & Trivedi
    2013, §3.3). y is cut at the cap. A record of which more than half of the cap is expected is
    left out.
    """
    means = exposures * exp(base[0] + margins)
    scale = np.where(means <= cap / 2, 1 / (cap * (1 + dispersion * means)), 0)
    means = np.minimum(means, cap)
    y = np.clip(outcomes, 0, cap)
    return ((y - means) * scale)[:, None], ((y + means) * scale / 2)[:, None]


def compute_hazard_terms(
    base: Real, margins: Real, intervals: NDArray[np.intp], happened: Real
) -> Both:
    """Of times in K intervals under proportional hazards: P[event in k] = 1 − exp(−e^η_k).

    Complementary log-log: β is Cox's (Prentice & Gloeckler 1978). A record whose hazards have come
    to `MAX_HAZARD` is censored there.

    Args:
        intervals: `[n]` how many a record is at risk in, that of its event among them.
        happened: `[n]` 1 where the event is in the last of them.
    """
    count, total = len(base), np.zeros(len(margins))
    slopes, curvatures = np.zeros((2, len(margins), count))
    for k in range(count):
        means = np.minimum(exp(base[k] + margins), 2 * MAX_HAZARD)
        total += means
        at_risk = (intervals > k) & (total <= MAX_HAZARD)
        event = at_risk & (intervals == k + 1) & (happened > 0)
        grown = exp(means) - 1
        # μ/(e^μ − 1), by its series where the difference has lost its digits.
        rate = np.where(means < 1e-3, 1 - means / 2 + means * means / 12, means / grown)
        slopes[:, k] = np.where(event, rate, np.where(at_risk, -means, 0))
        own = rate * rate * (grown + 1)
        curvatures[:, k] = (np.where(event, own, 0) + np.where(at_risk, means * rate, 0)) / 2
    return slopes, curvatures
