"""Survival from noisy counts in K intervals: Kaplan–Meier, Nelson–Aalen, and the log-rank test.

A group has 2K + 1 noisy counts: events in each interval, then censored records by the number of
whole intervals, 0 to K, in which they were at risk. All records with an event or end in interval k
or later are at risk in interval k. Numbers at risk are therefore sums of cells, and every estimate
here is a smooth function of cells with independent noise of one variance. Its deviation is the
length of its gradient times the deviation of a cell (delta method). Sampling adds the variance of
Greenwood (1926) and Mantel (1966). If the total is public, the cells are shifted to add up to it
(the least-squares estimate), and a gradient loses its mean.

    >>> import numpy as np
    >>> table = LifeTable(np.array([[3.0, 2.0, 0.0, 1.0, 4.0]]))
    >>> table.at_risk.tolist(), table.survival.value.round(4).tolist()
    ([[10.0, 6.0]], [[0.7, 0.4667]])

The error of a nearest monotone curve (`fit_decreasing`) is no larger than that of the curve it is
fitted to. Least squares under an order never increases the largest distance between two curves, and
it does not change a curve that falls (Robertson, Wright & Dykstra 1988, theorem 1.6.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from parley.privacy.estimation.count_trees import fit_monotone
from parley.privacy.special_functions import gammaincc

Numbers = NDArray[np.float64]

MIN_DEVIATIONS = 4.0
"""Deviations of its noise that a number at risk must exceed to be used as a divisor."""


@dataclass(frozen=True, kw_only=True)
class CurveEstimate:
    """`[G, K]` values, their deviations by noise (of deviation 1 per cell) and by sampling.

    Values are NaN once too few records are at risk.
    """

    value: Numbers
    noise: Numbers
    sampling: Numbers


@dataclass(frozen=True, kw_only=True)
class LogRankResult:
    """χ² of a log-rank test, its degrees of freedom and p; NaN with fewer than two groups."""

    chi_squared: float
    degrees: int
    p: float


@dataclass(frozen=True)
class LifeTable:
    """Noisy counts of events and censored records.

    Attributes:
        cells: `[G, 2K + 1]`: K for events, K + 1 for censored records.
        deviation: standard deviation of a cell's noise.
        total: sum of all cells if it is public.
    """

    cells: Numbers
    deviation: float = field(default=0.0, kw_only=True)
    total: float | None = field(default=None, kw_only=True)

    @property
    def intervals(self) -> int:
        """Number K of intervals."""
        return int(self.cells.shape[1]) // 2

    @cached_property
    def counts(self) -> Numbers:
        """`[G, 2K + 1]` counts that add up to the total if it is public."""
        if self.total is None:
            return self.cells
        result: Numbers = self.cells + (self.total - self.cells.sum()) / self.cells.size
        return result

    @property
    def events(self) -> Numbers:
        """`[G, K]` numbers of events."""
        return self.counts[:, : self.intervals]

    @cached_property
    def _risk(self) -> Numbers:
        """`[K, 2K + 1]` indicator of the cells at risk in each interval."""
        places = np.arange(self.intervals)[:, None]
        events = places <= np.arange(self.intervals)
        return np.hstack([events, places < np.arange(self.intervals + 1)]).astype(np.float64)

    @cached_property
    def _event(self) -> Numbers:
        """`[K, 2K + 1]` indicator of the cell with the events of each interval."""
        return np.eye(self.intervals, 2 * self.intervals + 1)

    @property
    def at_risk(self) -> Numbers:
        """`[G, K]` numbers at risk at the start of each interval."""
        return self.counts @ self._risk.T

    def compute_deviation(self, gradient: Numbers, axes: int = 1) -> Numbers:
        """Return a value's deviation by noise of deviation 1; its gradient is in the last axes."""
        over = tuple(range(-axes, 0))
        squares = np.square(gradient).sum(axis=over)
        if self.total is not None:
            squares = squares - np.square(gradient.sum(axis=over)) / self.cells.size
        result: Numbers = np.sqrt(np.maximum(squares, 0.0))
        return result

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """`[G, K]` whether the number at risk exceeds its noise in all intervals so far."""
        least = MIN_DEVIATIONS * self.deviation * self.compute_deviation(self._risk)
        return np.logical_and.accumulate(self.at_risk > np.maximum(least, 0.5), axis=1)

    @cached_property
    def _hazard(self) -> tuple[Numbers, Numbers, Numbers]:
        """`[G, K]` share of events in the number at risk, that number, and the share's gradient."""
        risk = np.where(self.known, self.at_risk, np.nan)
        hazard = np.minimum(self.events / risk, 1.0)
        gradient = (self._event - hazard[..., None] * self._risk) / risk[..., None]
        return hazard, risk, gradient

    @property
    def hazard(self) -> CurveEstimate:
        """Cumulative hazard: Nelson–Aalen's sum of d/n, with the variance of sums of shares."""
        hazard, risk, gradient = self._hazard
        left: Numbers = np.clip(hazard, 0, 1)
        spread: Numbers = np.sqrt(np.cumsum(left * (1 - left) / risk, axis=1))
        total: Numbers = np.cumsum(hazard, axis=1)
        return CurveEstimate(
            value=total, noise=self.compute_deviation(np.cumsum(gradient, axis=1)), sampling=spread
        )

    @property
    def survival(self) -> CurveEstimate:
        """Kaplan–Meier's product of 1 − d/n at each interval's end, with Greenwood's variance."""
        hazard, risk, gradient = self._hazard
        # If all at risk in an interval die, the curve ends at 0 but still has an error.
        kept = np.maximum(1 - hazard, 1 / risk)
        curve: Numbers = np.cumprod(kept, axis=1, dtype=np.float64)
        slope = np.cumsum(gradient / kept[..., None], axis=1)
        greenwood = np.cumsum(np.maximum(hazard, 0) / (risk * kept), axis=1)
        value: Numbers = np.cumprod(1 - hazard, axis=1, dtype=np.float64)
        spread: Numbers = curve * np.sqrt(greenwood)
        noise = curve * self.compute_deviation(slope)
        return CurveEstimate(value=value, noise=noise, sampling=spread)

    def run_log_rank_test(self) -> LogRankResult:
        """Test for equal hazards in all groups that have records beyond noise (Mantel 1966).

        The test compares U_g = Σ_k (d_gk − n_gk·d_k/n_k) with the sum of its hypergeometric
        variance and that of noise. U is normal under either, so the level holds with both.
        """
        groups = np.flatnonzero(self.known[:, 0])
        degrees = len(groups) - 1
        risk, events = self.at_risk[groups], self.events[groups]
        whole, died = risk.sum(axis=0), events.sum(axis=0)
        of_whole = np.broadcast_to(self._risk, (max(len(groups), 1), *self._risk.shape))
        times = MIN_DEVIATIONS * self.deviation
        least = times * self.compute_deviation(of_whole.swapaxes(0, 1), axes=2)
        kept = np.logical_and.accumulate(whole > np.maximum(least, 1.0))
        if degrees < 1 or not kept.any():
            return LogRankResult(chi_squared=np.nan, degrees=max(degrees, 0), p=np.nan)
        risk, events, whole, died = (part[..., kept] for part in (risk, events, whole, died))
        event, at_risk = self._event[kept], self._risk[kept]
        share, rate = risk / whole, died / whole
        moved = (events - risk * rate).sum(axis=1)
        # ∂U_g by the group's cells, and by those of every group through d_k and n_k.
        own = (event - rate[:, None] * at_risk).sum(axis=0)
        every = share @ (rate[:, None] * at_risk - event)
        gradient = np.eye(len(groups))[..., None] * own + every[:, None]
        flat = gradient.reshape(len(groups), -1)
        covariance = flat @ flat.T
        if self.total is not None:
            sums = flat.sum(axis=1)
            covariance -= np.outer(sums, sums) / self.cells.size
        rate, share = np.clip(rate, 0, 1), np.clip(share, 0, 1)
        weight = whole * rate * (1 - rate) * whole / np.maximum(whole - 1, 1)
        mantel = np.diag((weight * share).sum(axis=1)) - (weight * share) @ share.T
        variance = (mantel + self.deviation**2 * covariance)[:-1, :-1]
        solved = np.linalg.lstsq(variance, moved[:-1], rcond=None)[0]
        chi_squared = max(float(moved[:-1] @ solved), 0.0)
        p = float(gammaincc(degrees / 2, chi_squared / 2))
        return LogRankResult(chi_squared=chi_squared, degrees=degrees, p=p)


def fit_decreasing(curve: Numbers) -> Numbers:
    """Return `[G, K]` the nearest non-increasing curves in L2; NaN values at the end stay."""
    found = np.array(curve)
    for row in found:
        known = np.isfinite(row)
        row[known] = -fit_monotone(-row[known])
    return found


def compute_usual_noise(intervals: int) -> float:
    """Return the largest deviation of a curve by noise of deviation 1 per cell, times the records.

    The curve is that of a group in which half of the records have the event, evenly, and half are
    at risk until the end.
    """
    cells = np.zeros((1, 2 * intervals + 1))
    cells[0, :intervals], cells[0, -1] = 1 / (2 * intervals), 0.5
    scale = 1e6
    return float(LifeTable(scale * cells).survival.noise.max()) * scale
