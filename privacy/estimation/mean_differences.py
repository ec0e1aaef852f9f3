"""Test whether the means of two groups differ, from their noisy counts and sums, with that noise.

Welch's statistic (1947) with the noise of means in addition to their sampling error. A group has n
records and values t in [−1, 1], of which Σt and Σ(2t² − 1) are released. To first order its mean m
= Σt/n has the error v/n + (σ_s² + m²σ_n²)/n². v is the noisy variance plus one standard deviation
of its noise, so that a variance that is too small by chance makes no difference certain. p comes
from the normal law, which suits groups of about thirty records or more.

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
"""Deviations of its noise that a group's count must exceed; smaller groups are not compared."""


class MeanDifference(NamedTuple):
    """Difference of the means of two groups; NaN if one has too few records for this ε.

    Attributes:
        first, second: positions of the groups.
        low, high: 95 % interval of noise and sampling together.
        p: how often groups with the same mean differ by as much.
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
    """Compare every two of G groups.

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
