"""Which event to count: threshold and direction, chosen on their own trials, then frozen.

The bound is for the trials that chose nothing: an event chosen on the very trials that it is
counted on would be too good.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(3.0, 1.0, 2000), rng.normal(0.0, 1.0, 2000)
    >>> round(middle_threshold(*scores), 1)
    1.5
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from parley.privacy.audit.counts import Hits

LEAST_PILOT = 2_000
_CANDIDATES = 500
Scores = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Event:
    """score ≥ threshold, or score < threshold.

    Attributes:
        threshold: of the score.
        above: which side.
        swapped: it is likelier in worlds without the canary, whose hits then count as `in`.
    """

    threshold: float
    above: bool = True
    swapped: bool = False

    def count(self, scores_in: Scores, scores_out: Scores) -> tuple[Hits, Hits]:
        """Hits in worlds with the canary and without; exchanged if `swapped`."""
        counted = tuple(
            Hits(
                hits=int(((each >= self.threshold) == self.above).sum()),
                trials=each.size,
            )
            for each in (scores_in, scores_out)
        )
        return (counted[1], counted[0]) if self.swapped else (counted[0], counted[1])


def pilot_size(trials: int) -> int:
    """Trials of a world that choose the event: a tenth, 2,000 at least, half at most."""
    return min(max(trials // 10, LEAST_PILOT), trials // 2)


def middle_threshold(scores_in: Scores, scores_out: Scores) -> float:
    """Midway between the medians: for a Gaussian's μ.

    The best of many candidates on a small pilot lost a quarter of μ (.71 of the claim for .92).
    """
    return float(np.median(scores_in) + np.median(scores_out)) / 2


def best_event(
    scores_in: Scores, scores_out: Scores, *, trials: int, alpha: float, delta: float
) -> Event:
    """The event whose `pair` bound would be the highest, were the rates those of the pilot.

    Args:
        scores_in: `[n]` of pilot worlds with the canary.
        scores_out: `[n]` without.
        trials: a world, that the bound will be computed from.
        alpha: of that bound.
        delta: of the claim.
    """
    best = (-math.inf, Event(threshold=0.0))
    for event, hits_in, hits_out in candidate_events(scores_in, scores_out):
        low, high = rate_limits(hits_in, hits_out, trials=trials, alpha=alpha)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.nan_to_num(np.log((low - delta) / high), nan=-math.inf, neginf=-math.inf)
        at = int(values.argmax())
        if values[at] > best[0]:
            best = (float(values[at]), event(at))
    return best[1]


def candidate_events(
    scores_in: Scores, scores_out: Scores
) -> Iterator[tuple[Callable[[int], Event], Scores, Scores]]:
    """Thresholds, both sides of each, and either world as the likelier one.

    Yields:
        (place → event, rates `[k]` in the likelier world, rates `[k]` in the other), the latter one
        hit of the pilot higher than seen: a pilot's zero is no zero.
    """
    ordered = np.sort(scores_in), np.sort(scores_out)
    pooled = np.concatenate(ordered)
    thresholds = np.unique(np.quantile(pooled, np.linspace(0, 1, _CANDIDATES)))
    below = [np.searchsorted(each, thresholds) / each.size for each in ordered]
    for above in (True, False):
        rates = [1 - each if above else each for each in below]
        for swapped in (False, True):
            first, second = (rates[1], rates[0]) if swapped else (rates[0], rates[1])

            def event(at: int, above: bool = above, swapped: bool = swapped) -> Event:
                return Event(threshold=float(thresholds[at]), above=above, swapped=swapped)

            yield event, first, np.minimum(second + 1 / scores_out.size, 1.0)


def rate_limits(
    rate_in: Scores, rate_out: Scores, *, trials: int, alpha: float
) -> tuple[Scores, Scores]:
    """`[k]` CP₋ of the one and CP₊ of the other, each at α/2, as so many trials would give them."""
    k_in, k_out = rate_in * trials, rate_out * trials
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(k_in > 0, betaincinv(k_in, trials - k_in + 1, alpha / 2), 0.0)
        high = np.where(k_out < trials, betaincinv(k_out + 1, trials - k_out, 1 - alpha / 2), 1.0)
    return low, high
