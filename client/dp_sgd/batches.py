"""Poisson batches: every record by itself at the rate q, of one party or of many, padded.

>>> layout, alike = Layout(width=2, period=1), np.zeros(5, dtype=np.int64)
>>> sizes, stream = np.array([3, 2]), NoiseStream.from_seed(1)
>>> batches = padded_batches(sizes, 1.0, [stream] * 2, layout, alike)
>>> batches.rows.tolist(), batches.there.tolist()
([[0, 1, 2, 0], [3, 4, 3, 3]], [[True, True, True, False], [True, True, False, False]])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parley.client.dp_sgd.layout import Layout
from parley.privacy.sampling.stream import NoiseStream


def poisson_batch(records: int, rate: float, stream: NoiseStream) -> NDArray[np.int64]:
    """Each record with probability ⌊q·2³²⌋/2³² ≤ q, independently; may be empty."""
    return np.flatnonzero(_drawn(records, rate, stream))


def poisson_batches(
    records: int, rate: float, steps: int, stream: NoiseStream
) -> NDArray[np.bool_]:
    """`[steps, records]` who is in which batch, as `poisson_batch` draws one after the other."""
    if rate >= 1:
        return np.ones((steps, records), dtype=np.bool_)
    halves = stream.words(steps * -(-records // 2)).view(np.uint32).reshape(steps, -1)
    return halves[:, :records] < np.uint32(math.floor(rate * 2**32))


def _drawn(records: int, rate: float, stream: NoiseStream) -> NDArray[np.bool_]:
    if rate >= 1:
        return np.ones(records, dtype=np.bool_)
    halves = stream.words(-(-records // 2)).view(np.uint32)[:records]
    return halves < np.uint32(math.floor(rate * 2**32))


def party_batches(
    offsets: NDArray[np.int64], rate: float, stream: NoiseStream
) -> list[NDArray[np.int64]]:
    """The batch of every party, places among all N records; party j has `offsets[j]` and on."""
    chosen = poisson_batch(int(offsets[-1]), rate, stream)
    return np.split(chosen, np.searchsorted(chosen, offsets[1:-1]))


@dataclass(frozen=True, kw_only=True)
class PaddedBatches:
    """One batch of each of B parties, whose records lie party after party.

    Attributes:
        rows: `[B, b]` places in the parties' records together, b ≥ 1; a padded one repeats a
            record of the same party, so that no party's values touch another's.
        there: `[B, b]` false where padded.
    """

    rows: NDArray[np.int64]
    there: NDArray[np.bool_]


def padded_batches(
    sizes: NDArray[np.int64],
    rate: float,
    streams: Sequence[NoiseStream],
    layout: Layout,
    classes: NDArray[np.int64],
) -> PaddedBatches:
    """The Poisson batches of parties of `sizes` `[B]` records, as wide as the longest needs.

    Parties that share one stream take their words from it in one call, each word once.

    Args:
        sizes: `[B]`.
        rate: q.
        streams: `[B]`.
        layout: where records may stand; b is a multiple of its width.
        classes: `[N]` of all records (`Layout.places`).
    """
    owner = np.repeat(np.arange(len(sizes)), sizes)
    if streams.count(streams[0]) == len(streams):
        drawn = _drawn(len(owner), rate, streams[0])
    else:
        drawn = np.concatenate(
            [_drawn(size, rate, own) for size, own in zip(sizes.tolist(), streams, strict=True)]
        )
    chosen = np.flatnonzero(drawn)
    # A party's records of one class: the r-th has the r-th place of that class.
    groups = owner[chosen] * layout.period + classes[chosen]
    order = np.argsort(groups, kind="stable")
    counts = np.bincount(groups, minlength=len(sizes) * layout.period)
    rank = np.empty(len(chosen), dtype=np.int64)
    rank[order] = np.arange(len(chosen)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = rank * layout.period + classes[chosen]
    chunks = max(1, layout.chunks(places))
    rows = np.repeat((np.cumsum(sizes) - sizes)[:, None], chunks * layout.width, axis=1)
    there = np.zeros(rows.shape, dtype=np.bool_)
    rows[owner[chosen], places] = chosen
    there[owner[chosen], places] = True
    return PaddedBatches(rows=rows, there=there)
