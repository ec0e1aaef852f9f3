"""Whether two groups' means differ, from their noisy counts and sums: a test with that noise.

Welch's statistic (1947), with the noise of means beside their sampling error: of a group with n
records and values t in [−1, 1], whose Σt and Σ(2t² − 1) are released, the mean m = Σt/n has the
error v/n + (σ_s² + m²σ_n²)/n², by first order. v is the noisy variance and one standard deviation
of its noise, so that a variance too small by chance makes no difference certain. The normal law
gives p: groups of some thirty records and more.

    >>> rows = np.array([[1000.0, 1000.0], [0.0, 100.0], [-500.0, -500.0]])
    >>> (found,) = compute_differences(*rows, count_noise=5.0, sum_noise=5.0)
    >>> round(found.difference, 3), round(found.low, 3), round(found.high, 3), found.p < 1e-4
    (-0.1, -0.146, -0.054, True)
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parley.privacy.estimation.noise_intervals import compute_normal_quantile

Numbers = NDArray[np.float64]

_MIN_DEVIATIONS = 3.0
"""Standard deviations of its noise that a group's count is beyond: fewer records tell nothing."""


class MeanDifference(NamedTuple):
    """Of the means of two groups; NaN where one has too few records for this ε.

    Attributes:
        first, second: the groups, by their place.
        low, high: 95 %, of noise and sampling together.
        p: how often groups of one mean differ as much.
    """

    first: int
    second: int
    difference: float
    low: float
    high: float
    p: float


def compute_differences(
    counts: Numbers, sums: Numbers, squares: Numbers, *, count_noise: float, sum_noise: float
) -> list[MeanDifference]:
    """Every two of G groups.

    Args:
        counts, sums, squares: `[G]` n, Σt and Σ(2t² − 1), noisy.
        count_noise, sum_noise: standard deviations, in records.
    """
    n = np.where(counts > _MIN_DEVIATIONS * count_noise, counts, math.nan)
    mean, square = np.clip(sums / n, -1, 1), np.clip(squares / n, -1, 1)
    parts = (sum_noise / 2, 2 * mean * sum_noise, (square / 2 - 2 * mean**2) * count_noise)
    of_variance = np.sqrt(sum(np.square(part) for part in parts)) / n
    variance = np.clip((square + 1) / 2 - mean**2 + of_variance, 0, 1)
    error = variance / n + (sum_noise**2 + mean**2 * count_noise**2) / n**2
    found = []
    for first, second in combinations(range(len(counts)), 2):
        apart = float(mean[first] - mean[second])
        deviation = math.sqrt(error[first] + error[second])
        half = compute_normal_quantile(0.05) * deviation
        p = math.erfc(abs(apart) / deviation * math.sqrt(0.5))
        found.append(MeanDifference(first, second, apart, apart - half, apart + half, p))
    return found
