"""Choose the event to count, count its hits and bound its probability (Clopper & Pearson).

An event's threshold and direction are chosen on separate trials, then fixed. If they were chosen on
the trials that are counted, the bound would be too good.

>>> hits = Hits(hits=490, trials=500)
>>> round(hits.lower(0.005), 6), round(hits.upper(0.005), 6)
(0.957691, 0.992527)
>>> rng = np.random.default_rng(0)
>>> round(compute_middle_threshold(rng.normal(3.0, 1.0, 2000), rng.normal(0.0, 1.0, 2000)), 1)
1.5
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

MIN_PILOT_TRIALS = 2_000
_CANDIDATES = 500
Scores = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Hits:
    """Number of trials in which an event occurred."""

    hits: int
    trials: int

    def __post_init__(self) -> None:
        if self.trials < 1 or not 0 <= self.hits <= self.trials:
            raise ValueError(
                f"Expected 0 <= hits <= trials and at least one trial, got {self.hits} of "
                f"{self.trials}."
            )

    @classmethod
    def parse(cls, text: str) -> Hits:
        """Parse hits and trials written as "490/500"."""
        if not re.fullmatch(r"\d{1,15}/\d{1,15}", text, re.ASCII):
            raise ValueError(f'Expected hits and trials as "490/500", got {text!r}.')
        hits, trials = text.split("/")
        return cls(hits=int(hits), trials=int(trials))

    @property
    def misses(self) -> Hits:
        """Counts of the complementary event."""
        return Hits(hits=self.trials - self.hits, trials=self.trials)

    def upper(self, alpha: float) -> float:
        """Return CP₊ (Clopper & Pearson 1934): the probability exceeds it with chance ≤ `alpha`."""
        if self.hits == self.trials:
            return 1.0
        return float(betaincinv(self.hits + 1, self.trials - self.hits, 1 - alpha))

    def lower(self, alpha: float) -> float:
        """Return CP₋: the probability is below it with chance ≤ `alpha`."""
        if self.hits == 0:
            return 0.0
        return float(betaincinv(self.hits, self.trials - self.hits + 1, alpha))


@dataclass(frozen=True, kw_only=True)
class LowerBound:
    """A lower bound on ε, not an estimate. It holds with the stated confidence, not with certainty.

    Attributes:
        mu_lower: μ of the Gaussian curve if the method bounds it, else None.
    """

    method: str
    epsilon_lower: float
    mu_lower: float | None = None
    confidence: float
    delta: float

    def to_json(self) -> dict[str, str | float | None]:
        """Return plain values; an infinite bound (never from counts) becomes None."""
        finite = math.isfinite(self.epsilon_lower)
        return asdict(self) | {"epsilon_lower": self.epsilon_lower if finite else None}


def check_alpha(alpha: float) -> None:
    """Raise ValueError unless 0 < α < ½."""
    if not 0 < alpha < 0.5:
        raise ValueError(f"Expected alpha in (0, 0.5), got {alpha}.")


def compute_alpha(confidence: float) -> float:
    """Return α of a confidence; raise ValueError unless ½ < confidence < 1."""
    if not 0.5 < confidence < 1:
        raise ValueError(f"Expected a confidence in (0.5, 1), such as 0.95, got {confidence}.")
    return 1 - confidence


@dataclass(frozen=True, kw_only=True)
class ScoreEvent:
    """The event score ≥ threshold, or score < threshold.

    Attributes:
        swapped: the event is likelier in worlds without the canary; their hits then count as `in`.
    """

    threshold: float
    above: bool = True
    swapped: bool = False

    def count(self, scores_in: Scores, scores_out: Scores) -> tuple[Hits, Hits]:
        """Return the hits in worlds with the canary and without; exchanged if `swapped`."""
        counted = tuple(
            Hits(hits=int(((each >= self.threshold) == self.above).sum()), trials=each.size)
            for each in (scores_in, scores_out)
        )
        return (counted[1], counted[0]) if self.swapped else (counted[0], counted[1])


def compute_pilot_size(trials: int) -> int:
    """Return how many trials of a world choose the event: a tenth, at least 2,000, at most half."""
    return min(max(trials // 10, MIN_PILOT_TRIALS), trials // 2)


def compute_middle_threshold(scores_in: Scores, scores_out: Scores) -> float:
    """Return the midpoint of the medians, the threshold used to bound a Gaussian's μ.

    The best of many candidates on a small pilot lost a quarter of μ (0.71 of the claim instead of
    0.92).
    """
    return float(np.median(scores_in) + np.median(scores_out)) / 2


def find_best_event(
    scores_in: Scores, scores_out: Scores, *, trials: int, alpha: float, delta: float
) -> ScoreEvent:
    """Return the event with the highest `pair` bound at the pilot's rates."""

    def bounds(low: Scores, high: Scores) -> Scores:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num(np.log((low - delta) / high), nan=-math.inf, neginf=-math.inf)

    return find_most_telling_event(scores_in, scores_out, bounds, trials=trials, alpha=alpha)[1]


def find_most_telling_event(
    scores_in: Scores,
    scores_out: Scores,
    worth: Callable[[Scores, Scores], Scores],
    *,
    trials: int,
    alpha: float,
) -> tuple[float, ScoreEvent]:
    """Return the largest worth of an event at the pilot's rates, and the event.

    The search covers thresholds, both sides of each, and either world as the likelier one. The rate
    in the other world is raised by one hit of the pilot, because a rate of 0 in a pilot is not a
    probability of 0.

    Args:
        worth: limits `[k]` of the rates in the likelier world and in the other → `[k]`.
    """
    best = (-math.inf, ScoreEvent(threshold=0.0))
    ordered = np.sort(scores_in), np.sort(scores_out)
    pooled = np.concatenate(ordered)
    thresholds = np.unique(np.quantile(pooled, np.linspace(0, 1, _CANDIDATES)))
    below = [np.searchsorted(each, thresholds) / each.size for each in ordered]
    for above in (True, False):
        rates = [1 - each if above else each for each in below]
        for swapped in (False, True):
            first, second = (rates[1], rates[0]) if swapped else (rates[0], rates[1])
            second = np.minimum(second + 1 / scores_out.size, 1.0)
            values = worth(*_compute_rate_limits(first, second, trials=trials, alpha=alpha))
            at = int(values.argmax())
            if values[at] > best[0]:
                event = ScoreEvent(threshold=float(thresholds[at]), above=above, swapped=swapped)
                best = (float(values[at]), event)
    return best


def _compute_rate_limits(
    rate_in: Scores, rate_out: Scores, *, trials: int, alpha: float
) -> tuple[Scores, Scores]:
    """Return `[k]` CP₋ of `rate_in` and CP₊ of `rate_out`, each at α/2, for that many trials."""
    k_in, k_out = rate_in * trials, rate_out * trials
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(k_in > 0, betaincinv(k_in, trials - k_in + 1, alpha / 2), 0.0)
        high = np.where(k_out < trials, betaincinv(k_out + 1, trials - k_out, 1 - alpha / 2), 1.0)
    return low, high
