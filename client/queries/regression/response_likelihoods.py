"""Likelihoods of regression outcomes: bounded slope and curvature per record.

A record's mean depends on η_k = γ_k + β·x, with one γ or one for each of K intervals. For a record
at (γ, β) a *family* returns the slope s_k of its log-likelihood along each η_k, and a curvature
w_k. The curvature is the mean of that at (γ, β) and that of the record's own outcome. Σs/Σw is then
the secant between the two parameters, and a Newton step is correct to second order (the trapezoid
rule).

The bounds hold for each record at any (γ, β): |Σs| ≤ 1 and 0 ≤ Σw ≤ 1, and (Σs)² + (Σw)² ≤ 5/4. If
a record must be left out to keep them, this depends only on its covariates, never on its outcome,
so that no estimate is shifted. All computations are one record's arithmetic, in one order
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
"""`[n, K]` slopes, and `[n, K]` curvatures."""

MAX_HAZARD = 1.0
"""Maximum total hazard of a record, over all intervals: from there on it counts as censored."""


def compute_logistic_terms(base: Real, margins: Real, outcomes: Real) -> Both:
    """Return the terms of outcomes 0 and 1: s = y − p and w = |y − p|/2.

    The mean of w is (p* + p)/2 − p*·p.
    """
    slopes = outcomes - 1 / (1 + exp(-(base[0] + margins)))
    return slopes[:, None], np.abs(slopes)[:, None] / 2


def compute_count_terms(
    base: Real, margins: Real, outcomes: Real, *, exposures: Real, cap: float, dispersion: float
) -> Both:
    """Return the terms of counts with mean μ = exposure·e^η and variance μ + α·μ².

    They are in units of the cap. s = (y − μ)/(1 + αμ): Poisson's with α = 0, else the negative
    binomial's (Cameron & Trivedi 2013, §3.3). y is cut at the cap. A record whose expected count
    exceeds half of the cap is left out.
    """
    means = exposures * exp(base[0] + margins)
    scale = np.where(means <= cap / 2, 1 / (cap * (1 + dispersion * means)), 0)
    means = np.minimum(means, cap)
    y = np.clip(outcomes, 0, cap)
    return ((y - means) * scale)[:, None], ((y + means) * scale / 2)[:, None]


def compute_hazard_terms(
    base: Real, margins: Real, intervals: NDArray[np.intp], happened: Real
) -> Both:
    """Return the terms of times in K intervals under proportional hazards.

    P[event in k] = 1 − exp(−e^η_k). Complementary log-log: β is Cox's (Prentice & Gloeckler 1978).
    A record whose hazards add up to `MAX_HAZARD` is censored there.

    Args:
        intervals: `[n]` number of intervals in which a record is at risk, including that of its
            event.
        happened: `[n]` 1 if the event is in the last of them.
    """
    count, total = len(base), np.zeros(len(margins))
    slopes, curvatures = np.zeros((2, len(margins), count))
    for k in range(count):
        means = np.minimum(exp(base[k] + margins), 2 * MAX_HAZARD)
        total += means
        at_risk = (intervals > k) & (total <= MAX_HAZARD)
        event = at_risk & (intervals == k + 1) & (happened > 0)
        grown = exp(means) - 1
        # μ/(e^μ − 1), by its series if the difference has lost its digits.
        rate = np.where(means < 1e-3, 1 - means / 2 + means * means / 12, means / grown)
        slopes[:, k] = np.where(event, rate, np.where(at_risk, -means, 0))
        own = rate * rate * (grown + 1)
        curvatures[:, k] = (np.where(event, own, 0) + np.where(at_risk, means * rate, 0)) / 2
    return slopes, curvatures
