"""Test whether the rows and columns of a noisy table of counts are independent, with that noise.

The statistic is Pearson's with the noise in its variance, T = Σ (ñ − e)²/(e + σ²), with e =
row·column/total of the noisy margins made non-negative. Its law under independence is simulated:
tables with that many records and these margins, the same noise on every cell, and T of each
(Gaboardi, Lim, Rogers & Vadhan 2016, "Differentially Private Chi-Squared Hypothesis Testing", their
Monte Carlo test; here the statistic is scaled by the whole variance). p = (1 + #{T* ≥ T})/(1 +
draws). This is post-processing.

`benchmarks/independence.py` measures how often independent columns have p ≤ 0.05. Records are
treated as independent draws. They are not independent if a person has several.

    >>> table = np.array([[300.0, 100.0], [100.0, 300.0]])
    >>> run_independence_test(table, CellNoise(law="gaussian", scale=10.0)).p
    0.0005
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parley.privacy.estimation.noise_intervals import CellNoise

Tables = NDArray[np.float64]

MAX_CELLS = 1024
_DRAWS = 1999


class IndependenceResult(NamedTuple):
    """The test's statistic, and how often independent columns have one at least as large."""

    statistic: float
    p: float


def run_independence_test(
    noisy: Tables, noise: CellNoise, *, unit: float = 1.0, draws: int = _DRAWS
) -> IndependenceResult:
    """Test `[r, c]` noisy counts, at most `MAX_CELLS`; p is 1 if the noise leaves no records.

    Args:
        unit: units of the noise in one record.
    """
    if noisy.ndim != 2 or min(noisy.shape) < 2 or noisy.size > MAX_CELLS:
        raise ValueError(f"Expected a table of 2 × 2 to {MAX_CELLS} cells, got {noisy.shape}.")
    deviation = noise.deviation / unit
    (found,), (expected,) = _compute_statistics(noisy[None], deviation)
    records = round(float(noisy.sum()))
    if records < 1:
        return IndependenceResult(float(found), 1.0)
    # A fixed seed, so that repeated calls return the same p.
    rng, shares = np.random.default_rng(0), expected.ravel() / expected.sum()
    above, left = 0, draws
    while left:
        count = min(left, max(1, 2**20 // noisy.size))
        drawn = rng.multinomial(records, shares, size=count).reshape(count, *noisy.shape)
        again, _ = _compute_statistics(drawn + noise.draw(rng, drawn.shape) / unit, deviation)
        above, left = above + int((again >= found).sum()), left - count
    return IndependenceResult(float(found), (1 + above) / (1 + draws))


def _compute_statistics(tables: Tables, deviation: float) -> tuple[Tables, Tables]:
    """Return `[n]` statistics of `[n, r, c]` tables, and their expectations under independence."""
    totals = np.maximum(tables.sum(axis=(1, 2)), 1.0)
    rows, columns = (_project_margins(tables.sum(axis=axis), totals) for axis in (2, 1))
    expected = rows[:, :, None] * columns[:, None, :] / totals[:, None, None]
    return (np.square(tables - expected) / (expected + deviation**2)).sum(axis=(1, 2)), expected


def _project_margins(margins: Tables, totals: Tables) -> Tables:
    """Return `[n, k]` the nearest non-negative margins with these totals.

    It is `parley.privacy.estimation.marginals.project_onto_simplex` for many margins at once.
    """
    falling = -np.sort(-margins, axis=1)
    excess = (np.cumsum(falling, axis=1) - totals[:, None]) / np.arange(1, margins.shape[1] + 1)
    last = np.maximum((falling > excess).sum(axis=1) - 1, 0)
    theta = np.take_along_axis(excess, last[:, None], axis=1)
    return np.maximum(margins - theta, 0)
