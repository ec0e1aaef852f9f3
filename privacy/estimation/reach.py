"""The noise on every cell of an integer sum: its deviation, and how far it reaches.

Of noise in shares all r survivors' are in a sum of which k are charged; its scale is √(r/k) times
as large, and a sum of more Laplace shares has lighter tails than one Laplace of that deviation: its
intervals are a little too wide.

>>> noise = Reach.of("laplace", scale=4.0)
>>> noise.half_width(), noise.half_width(cells=16), round(noise.deviation, 4)
(12.0, 23.0, 5.6421)

`together` rows of an answer may be asked to hold at once, and `sampling` widens them by what
another sample of records would have said (`parley.privacy.estimation.sampling`):

>>> Reach.of("laplace", scale=4.0, together=16).half_width()
23.0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.privacy.estimation.intervals import (
    RatioTail,
    gaussian_tail,
    laplace_half_width,
    laplace_tail,
    normal_quantile,
    simultaneous,
)

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Noise that is independent from cell to cell, rounded to integers.

    Attributes:
        together: how many rows of an answer hold at once with the level that is asked.
        shared: whether these rows look at the same noise, so that they are not independent.
        sampling: whether intervals are widened by sampling error.
    """

    law: str
    scale: float
    together: int = 1
    shared: bool = False
    sampling: bool = False

    def __post_init__(self) -> None:
        if self.law not in _LAWS:
            raise ValueError(f"Expected noise of {', '.join(_LAWS)}, got {self.law}.")

    @classmethod
    def of(cls, law: str, **facts: Any) -> Reach:
        """The reach of a law's noise, of that scale."""
        return cls(law=law, **facts)

    def alpha(self, level: float = 0.95) -> float:
        """What each row may miss by, so that all rows hold with `level`.

        1 − level^(1/d) of independent rows (Šidák 1967), (1 − level)/d of others (Bonferroni).
        """
        if self.shared:
            return (1 - level) / self.together
        return simultaneous(1 - level, self.together)

    @property
    def deviation(self) -> float:
        """Standard deviation of a cell's."""
        return _LAWS[self.law].deviation(self.scale)

    def half_width(self, level: float = 0.95, *, cells: int = 1) -> float:
        """h with |noise| ≤ h in all of so many cells at once with probability at least `level`."""
        return _LAWS[self.law].half_width(self.scale, simultaneous(self.alpha(level), cells))

    def widened(self, half: Numbers, deviation: Numbers, level: float = 0.95) -> Numbers:
        """Half-widths of noise, with sampling errors of these standard deviations where asked.

        √(half² + (z·deviation)²): normal, exact beside Gaussian noise and a little too wide beside
        Laplace noise, whose tails are heavier alone than in a sum.
        """
        if not self.sampling:
            return half
        return np.hypot(half, normal_quantile(self.alpha(level)) * deviation)

    def ratio_tail(self, numerator: float, denominator: float) -> RatioTail:
        """Of a ratio whose parts are this noise times so much: see `intervals.ratio_interval`."""
        return _LAWS[self.law].tail(self.scale * numerator, self.scale * denominator)


@dataclass(frozen=True, kw_only=True)
class _Law:
    deviation: Callable[[float], float]
    half_width: Callable[[float, float], float]
    tail: Callable[[float, float], RatioTail]


def _laplace_deviation(scale: float) -> float:
    return math.sqrt(2 * math.exp(-1 / scale)) / -math.expm1(-1 / scale)


def _gaussian_half(sigma: float, alpha: float) -> float:
    # Rounded: |noise| ≤ k where the Gaussian is within k + ½.
    return float(max(0, math.ceil(normal_quantile(alpha) * sigma - 0.5 - 1e-9)))


_LAWS: Mapping[str, _Law] = MappingProxyType(
    {
        "laplace": _Law(
            deviation=_laplace_deviation,
            half_width=lambda scale, alpha: float(laplace_half_width(scale, alpha)),
            tail=laplace_tail,
        ),
        "gaussian": _Law(
            deviation=lambda sigma: math.sqrt(sigma**2 + 1 / 12),
            half_width=_gaussian_half,
            tail=gaussian_tail,
        ),
    }
)
