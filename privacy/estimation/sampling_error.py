"""Sampling error: the deviation of a sample's statistic from its population's.

Records are treated as independent draws from one population, and the normal approximation is used.
Unknown values are read from noisy values, so no budget is charged. If records of a party resemble
each other, another sample of *parties* would differ by more; the errors here do not include that. A
variance that no noisy value gives is bounded by the range: for values in [a, b] with mean m it is
at most (b − m)(m − a) (Bhatia & Davis 2000). The interval is then too wide rather than too narrow.

    >>> import numpy as np
    >>> estimate_count_deviation(np.array([300.0]), 1000).round(3).tolist()
    [14.491]
    >>> estimate_mean_deviation(np.array([0.0]), np.array([400.0])).tolist()
    [0.05]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def estimate_count_deviation(counts: Numbers, records: int | None) -> Numbers:
    """Return the deviation of counts out of N records: √(n(1 − n/N)), or √n if N is private.

    The first is binomial, the second Poisson. A count below 1 is treated as 1, because no cell is
    known to be empty.
    """
    known = np.maximum(counts, 1.0)
    if records is None:
        return np.sqrt(known)
    known = np.minimum(known, max(records - 1.0, 1.0))
    result: Numbers = np.sqrt(known * np.maximum(1 - known / records, 0.0))
    return result


def estimate_sum_deviation(sums: Numbers, low: float, high: float, records: int) -> Numbers:
    """Return √(N(high − m)(m − low)), m = sum/N, for sums over N values in [low, high]."""
    mean = np.clip(sums / records, low, high)
    return np.sqrt(records * (high - mean) * (mean - low))


def estimate_mean_deviation(means: Numbers, counts: Numbers) -> Numbers:
    """Return the deviation √((1 − m²)/n) of means of n values in [−1, 1]."""
    return np.sqrt((1 - np.clip(means, -1, 1) ** 2) / np.maximum(counts, 1.0))


def estimate_variance_deviation(variances: Numbers, means: Numbers, counts: Numbers) -> Numbers:
    """Return the deviation of variances v of n values in [−1, 1] with mean m.

    It is at most √(v((1 + |m|)² − v)/n): (x − m)² is in [0, (1 + |m|)²] and has mean v (Bhatia &
    Davis 2000).
    """
    most = (1 + np.abs(np.clip(means, -1, 1))) ** 2
    known = np.clip(variances, 0, most)
    return np.sqrt(known * (most - known) / np.maximum(counts, 1.0))


def estimate_rank_deviation(records: float, shares: Numbers) -> Numbers:
    """Return √(nq(1 − q)) for the number of n records below a population's q-quantile."""
    return np.sqrt(max(records, 0.0) * shares * (1 - shares))
