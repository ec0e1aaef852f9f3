"""Counts of hits, and what a count says of a probability: Clopper & Pearson's limits.

>>> hits = Hits(hits=490, trials=500)
>>> round(hits.lower(0.005), 6), round(hits.upper(0.005), 6)
(0.957691, 0.992527)
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass

from scipy.special import betaincinv


@dataclass(frozen=True, kw_only=True)
class Hits:
    """How often an event was seen.

    Attributes:
        hits: k.
        trials: n, independent.

    Raises:
        ValueError: not 0 ≤ k ≤ n, or n < 1.
    """

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
        """From "490/500".

        Raises:
            ValueError: other text.
        """
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
        epsilon_lower: ε is at least this at `delta`.
        mu_lower: μ of the Gaussian curve, where the method bounds it; else None.
        confidence: 1 − α.
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


def alpha_of(confidence: float) -> float:
    """α of a confidence; raises ValueError unless ½ < confidence < 1."""
    if not 0.5 < confidence < 1:
        raise ValueError(f"Expected a confidence in (0.5, 1), such as 0.95, got {confidence}.")
    return 1 - confidence
