"""Where records stand in passes of one shape: widths, places, classes of places.

Why is in `parley.client.dp_sgd.apart`.

>>> layout = Layout(width=4, period=2)
>>> layout.places(np.array([0, 0, 0, 1])).tolist()  # class 1 has the odd places
[0, 2, 4, 1]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

MOST_RECORDS: Final = 10**6
"""Of one sum: up to here what float64 rounds is proved to stay within the margin."""

PERIODS: Final = (1, 2, 4)
"""Of places, which widths are made for."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where records stand in the chunks that passes are made of.

    Attributes:
        width: rows of a chunk.
        period: places that are equal modulo it give a record the same bits; divides the width.
    """

    width: int
    period: int

    def places(self, classes: NDArray[np.int64]) -> NDArray[np.int64]:
        """`[b]` rows, over all chunks, of records of these classes `[b]` (0 … period − 1)."""
        if self.period == 1:
            return np.arange(len(classes))
        order = np.argsort(classes, kind="stable")
        counts = np.bincount(classes, minlength=self.period)
        rank = np.empty(len(classes), dtype=np.int64)
        rank[order] = np.arange(len(classes)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rank * self.period + classes

    def chunks(self, places: NDArray[np.int64]) -> int:
        """How many chunks hold these places."""
        return -(-(int(places.max()) + 1) // self.width) if len(places) else 0

    def padded(self, records: int, rate: float) -> int:
        """Chunks that a Poisson batch fits in, but for once in 10⁸ steps or less often."""
        return -(-_reach(records / self.period, rate, 6) * self.period // self.width)


def _reach(records: float, rate: float, deviations: float) -> int:
    mean = rate * records
    return max(1, math.ceil(mean if rate >= 1 else mean + deviations * math.sqrt(mean)))


def check_records(records: int, rate: float) -> None:
    """Refuses data whose Poisson batches are too large to be added within the margin.

    Raises:
        ValueError: the largest batch, and the limit.
    """
    largest = min(records, _reach(records, rate, 6))
    if largest > MOST_RECORDS:
        raise ValueError(
            f"Expected batches of at most {MOST_RECORDS:,} records, got up to {largest:,} of "
            f"{records:,} at a rate of {rate:g}: a smaller dp-sgd.sampling-rate helps."
        )


def widths_for(records: int, rate: float, *, pad: bool, most: int) -> tuple[int, ...]:
    """Rows of a pass, for a period of 1, 2 and 4: what most Poisson batches fit in; ≤ `most`.

    Args:
        records: a public number, never how many there are where that is private.
        rate: q.
        pad: whether batches are padded to what nearly all fit in.
        most: rows that memory has room for.

    >>> widths_for(600, 0.05, pad=True, most=2048), widths_for(50, 1.0, pad=False, most=2048)
    ((64, 80, 96), (56, 56, 56))
    """
    widths = []
    for period in PERIODS:
        reach = _reach(records / period, rate, 6 if pad else 2) * period
        passes = -(-reach // most)
        widths.append(min(most, -(-reach // (8 * passes)) * 8))
    return tuple(widths)


def record_classes(x: NDArray[np.floating], y: NDArray[np.int64], period: int) -> NDArray[np.int64]:
    """`[b]` the class of every record `[b, …]`, by its digest values and label."""
    if period == 1:
        return np.zeros(len(x), dtype=np.int64)
    words = np.ascontiguousarray(x.reshape(len(x), -1), dtype=np.float64).view(np.uint64)
    words = np.concatenate([words, y.astype(np.uint64)[:, None]], axis=1)
    # Odd multipliers, modulo 2⁶⁴; the upper half has all bits in it.
    factors = np.random.default_rng(0).integers(0, 2**63, words.shape[1], dtype=np.uint64)
    with np.errstate(over="ignore"):
        digest = (words * (2 * factors + np.uint64(1))).sum(axis=1, dtype=np.uint64)
        digest *= np.uint64(0x9E3779B97F4A7C15)
    return np.asarray((digest >> np.uint64(33)) % np.uint64(period), dtype=np.int64)
