"""Which event to count, its hits, and what they say of a probability: Clopper & Pearson's limits.

Threshold and direction of an event are chosen on their own trials, then frozen: chosen on the very
trials that it is counted on, it would be too good.

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
    """How often an event was seen."""

    hits: int
    trials: int

    def __post_init__(self) -> None:
        if self.trials < 1 or not 0 <= self.hits <= self.trials:
            raise ValueError(
                f"Expected 0 <= hits <= trials with a trial at least, got {self.hits} of "
                f"{self.trials}."
            )

    @classmethod
    def parse(cls, text: str) -> Hits:
        """From "490/500"."""
        if not re.fullmatch(r"\d{1,15}/\d{1,15}", text, re.ASCII):
            raise ValueError(f'Expected hits and trials as "490/500", got {text!r}.')
        hits, trials = text.split("/")
        return cls(hits=int(hits), trials=int(trials))

    @property
    def misses(self) -> Hits:
        """The other event."""
        return Hits(hits=self.trials - self.hits, trials=self.trials)

    def upper(self, alpha: float) -> float:
        """CP₊: the probability is above it with chance at most `alpha` (Clopper & Pearson 1934)."""
        if self.hits == self.trials:
            return 1.0
        return float(betaincinv(self.hits + 1, self.trials - self.hits, 1 - alpha))

    def lower(self, alpha: float) -> float:
        """CP₋: the probability is below it with chance at most `alpha`."""
        if self.hits == 0:
            return 0.0
        return float(betaincinv(self.hits, self.trials - self.hits + 1, alpha))


@dataclass(frozen=True, kw_only=True)
class LowerBound:
    """A lower bound on ε, not an estimate; it holds with this confidence, not certainly.

    Attributes:
        mu_lower: μ of the Gaussian curve, where the method bounds it; else None.
    """

    method: str
    epsilon_lower: float
    mu_lower: float | None = None
    confidence: float
    delta: float

    def to_json(self) -> dict[str, str | float | None]:
        """Plain values; a bound that is infinite (counts alone never are) as None."""
        finite = math.isfinite(self.epsilon_lower)
        return asdict(self) | {"epsilon_lower": self.epsilon_lower if finite else None}


def check_alpha(alpha: float) -> None:
    """Raise ValueError unless 0 < α < ½."""
    if not 0 < alpha < 0.5:
        raise ValueError(f"Expected alpha in (0, 0.5), got {alpha}.")


def compute_alpha(confidence: float) -> float:
    """α of a confidence; raises ValueError unless ½ < confidence < 1."""
    if not 0.5 < confidence < 1:
        raise ValueError(f"Expected a confidence in (0.5, 1), such as 0.95, got {confidence}.")
    return 1 - confidence


@dataclass(frozen=True, kw_only=True)
class ScoreEvent:
    """score ≥ threshold, or score < threshold.

    Attributes:
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


def compute_pilot_size(trials: int) -> int:
    """Trials of a world that choose the event: a tenth, 2,000 at least, half at most."""
    return min(max(trials // 10, MIN_PILOT_TRIALS), trials // 2)


def compute_middle_threshold(scores_in: Scores, scores_out: Scores) -> float:
    """Midway between the medians: for a Gaussian's μ.

    The best of many candidates on a small pilot lost a quarter of μ (.71 of the claim for .92).
    """
    return float(np.median(scores_in) + np.median(scores_out)) / 2


def find_best_event(
    scores_in: Scores, scores_out: Scores, *, trials: int, alpha: float, delta: float
) -> ScoreEvent:
    """The event whose `pair` bound would be the highest, were the rates those of the pilot."""

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
    """The event that is worth most, were the rates those of the pilot, and how much.

    Of thresholds, both sides of each, and either world as the likelier one. A rate in the other
    world is one hit of the pilot higher than seen: a pilot's zero is no zero.

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
    """`[k]` CP₋ of the one and CP₊ of the other, each at α/2, as so many trials would give them."""
    k_in, k_out = rate_in * trials, rate_out * trials
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(k_in > 0, betaincinv(k_in, trials - k_in + 1, alpha / 2), 0.0)
        high = np.where(k_out < trials, betaincinv(k_out + 1, trials - k_out, 1 - alpha / 2), 1.0)
    return low, high
