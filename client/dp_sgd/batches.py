"""Poisson batches: every record by itself at the rate q, of one party or of many.

>>> poisson_batch(5, 1.0, NoiseStream.from_seed(1)).tolist()
[0, 1, 2, 3, 4]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parley.privacy.sampling.stream import NoiseStream


def poisson_batch(records: int, rate: float, stream: NoiseStream) -> NDArray[np.int64]:
    """Each record with probability ⌊q·2³²⌋/2³² ≤ q, independently; may be empty."""
    return np.flatnonzero(poisson_batches(records, rate, 1, stream))


def poisson_batches(
    records: int, rate: float, steps: int, stream: NoiseStream
) -> NDArray[np.bool_]:
    """`[steps, records]` who is in which batch, as `poisson_batch` draws one after the other."""
    if rate >= 1:
        return np.ones((steps, records), dtype=np.bool_)
    halves = stream.words(steps * -(-records // 2)).view(np.uint32).reshape(steps, -1)
    return np.less(halves[:, :records], np.uint32(math.floor(rate * 2**32)))


def party_batches(
    offsets: NDArray[np.int64], rate: float, stream: NoiseStream
) -> list[NDArray[np.int64]]:
    """The batch of every party, places among all N records; party j has `offsets[j]` and on."""
    chosen = poisson_batch(int(offsets[-1]), rate, stream)
    return np.split(chosen, np.searchsorted(chosen, offsets[1:-1]))


def batches_of(
    sizes: NDArray[np.int64], rate: float, streams: Sequence[NoiseStream]
) -> NDArray[np.bool_]:
    """`[N]` who is in the batch of its party: of B parties of `sizes` `[B]`, one after the other.

    Parties that share one stream take their words from it in one call, each word once.
    """
    if rate >= 1 or streams.count(streams[0]) == len(streams):
        return poisson_batches(int(sizes.sum()), rate, 1, streams[0]).ravel()
    drawn = zip(sizes.tolist(), streams, strict=True)
    return np.concatenate([poisson_batches(size, rate, 1, own)[0] for size, own in drawn])
