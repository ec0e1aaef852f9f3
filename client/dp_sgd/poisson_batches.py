"""Poisson batches: each record independently at rate q, for one party or many.

`PassLayout` assigns records to positions in passes of one shape.

>>> draw_poisson_batch(5, 1.0, NoiseStream.from_seed(1)).tolist()
[0, 1, 2, 3, 4]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from parley.client.dp_sgd.poisson_batch_bound import (
    MAX_RECORDS,
    _bound_batch_size,
    compute_padded_width,
)
from parley.privacy.sampling.random_stream import NoiseStream


def draw_poisson_batch(records: int, rate: float, stream: NoiseStream) -> NDArray[np.int64]:
    """Sample each record with probability ⌊q·2³²⌋/2³² ≤ q, independently; may be empty."""
    return np.flatnonzero(draw_poisson_batches(records, rate, 1, stream))


def draw_poisson_batches(
    records: int, rate: float, steps: int, stream: NoiseStream
) -> NDArray[np.bool_]:
    """Return `[steps, records]` flags of batches, sampled one after the other.

    They are the same as those of `draw_poisson_batch`.
    """
    if rate >= 1:
        return np.ones((steps, records), dtype=np.bool_)
    halves = stream.draw_words(steps * -(-records // 2)).view(np.uint32).reshape(steps, -1)
    return np.less(halves[:, :records], np.uint32(math.floor(rate * 2**32)))


def draw_party_batches(
    offsets: NDArray[np.int64], rate: float, stream: NoiseStream
) -> list[NDArray[np.int64]]:
    """Return each party's batch, as positions among all N records; party j's from `offsets[j]`."""
    chosen = draw_poisson_batch(int(offsets[-1]), rate, stream)
    return np.split(chosen, np.searchsorted(chosen, offsets[1:-1]))


def draw_joint_batches(
    sizes: NDArray[np.int64], rate: float, streams: Sequence[NoiseStream]
) -> NDArray[np.bool_]:
    """Return `[N]` flags of records in their party's batch, for B parties of `sizes` `[B]` in
    order.

    Parties that share one stream take their words from it in one call, each word once.
    """
    if rate >= 1 or streams.count(streams[0]) == len(streams):
        return draw_poisson_batches(int(sizes.sum()), rate, 1, streams[0]).ravel()
    drawn = zip(sizes.tolist(), streams, strict=True)
    return np.concatenate([draw_poisson_batches(size, rate, 1, own)[0] for size, own in drawn])


PERIODS: Final = (1, 2, 4)
"""Periods of positions for which widths are chosen."""


@dataclass(frozen=True, kw_only=True)
class PassLayout:
    """Positions of records in the chunks of a pass.

    Attributes:
        period: positions that are equal modulo it give a record the same bits; it divides the
            width.
    """

    width: int
    period: int

    def assign_rows(
        self,
        classes: NDArray[np.int64],
        owners: NDArray[np.int64],
        *,
        parties: int = 1,
        min_chunks: int = 0,
    ) -> NDArray[np.int64]:
        """Return `[B, chunks·width]` the record at each row of each party; −1: none.

        Args:
            classes: `[b]` classes of the records (0 … period − 1).
            owners: `[b]` parties of the records.
        """
        # A party's records of one class: the r-th gets the r-th position of that class.
        groups = owners * self.period + classes
        order = np.argsort(groups, kind="stable")
        counts = np.bincount(groups, minlength=parties * self.period)
        rank = np.empty(len(groups), dtype=np.int64)
        rank[order] = np.arange(len(groups)) - np.repeat(np.cumsum(counts) - counts, counts)
        places = rank * self.period + classes
        chunks = max(min_chunks, -(-(int(places.max(initial=-1)) + 1) // self.width))
        holds = np.full((parties, chunks * self.width), -1)
        holds[owners, places] = np.arange(len(groups))
        return holds

    def count_padded_chunks(self, records: int, rate: float) -> int:
        """Return the chunks that hold a Poisson batch, except once in 10⁸ steps or less often."""
        return -(-_bound_batch_size(records / self.period, rate, 6) * self.period // self.width)


def check_records(records: int, rate: float) -> None:
    """Refuse data whose Poisson batches are too large to be added exactly.

    Raises:
        ValueError: with the largest batch, and the limit.
    """
    largest = compute_padded_width(records, rate)
    if largest > MAX_RECORDS:
        expected = f"Expected batches of at most {MAX_RECORDS:,} records"
        got = f"up to {largest:,} of {records:,} at a rate of {rate:g}"
        raise ValueError(f"{expected}, got {got}. Use a smaller dp-sgd.sampling-rate.")


def choose_widths(records: int, rate: float, *, pad: bool, most: int) -> tuple[int, ...]:
    """Return the rows of a pass for periods 1, 2 and 4, which hold most Poisson batches; ≤ `most`.

    Args:
        records: a public number, never the actual number if that is private.
        pad: whether batches are padded to a size that nearly all fit in.
        most: maximum rows for the available memory.

    >>> choose_widths(600, 0.05, pad=True, most=2048), choose_widths(50, 1.0, pad=False, most=2048)
    ((64, 80, 96), (56, 56, 56))
    """
    widths = []
    for period in PERIODS:
        reach = _bound_batch_size(records / period, rate, 6 if pad else 2) * period
        passes = -(-reach // most)
        widths.append(min(most, -(-reach // (8 * passes)) * 8))
    return tuple(widths)
