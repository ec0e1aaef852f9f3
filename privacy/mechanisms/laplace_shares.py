"""Shares of the Laplace laws (`parley.privacy.mechanisms.share_laws`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np

from parley.privacy.mechanisms.base import compute_chernoff_bound, compute_tail_odds
from parley.privacy.mechanisms.share_laws import Integers, SharedLaw, ShareSplit, Streams
from parley.privacy.sampling.discrete_noise import draw_negative_binomial
from parley.privacy.sampling.inversion import LARGEST_SCALE
from parley.privacy.sampling.l2_laplace import add_rounded_mixtures
from parley.privacy.sampling.random_stream import NoiseStream

JITTER: Final = 16.0
"""w: variance of the jitter added to a share of l2-laplace, in ring units squared."""


_COORDINATES_AT_ONCE: Final = 1 << 14
"""Maximum number of coordinates drawn in one call, for shares of one stream.

One share may have more.
"""


def _group_by_stream(
    vectors: Integers, streams: Sequence[NoiseStream]
) -> Iterator[tuple[Integers, NoiseStream]]:
    """Yield groups of rows whose shares come from one stream; with several streams, single rows."""
    same = len(set(map(id, streams))) == 1
    most = max(1, _COORDINATES_AT_ONCE // vectors.shape[1]) if same else 1
    for at in range(0, len(vectors), most):
        yield vectors[at : at + most], streams[at]


class _L2Laplace(SharedLaw):
    """The k-th root of (1 + b²‖t‖²)^(−(d+1)/2), which is infinitely divisible, and a jitter."""

    coarsest = math.sqrt(LARGEST_SCALE / JITTER)

    def add(self, shares: ShareSplit, mechanism: Any, vectors: Integers, streams: Streams) -> None:
        shape = Fraction(mechanism.dimension + 1, 2 * shares.honest)
        jitter = JITTER * shares.ring_unit**2
        for rows, stream in _group_by_stream(vectors, streams):
            add_rounded_mixtures(rows, shares.scale, shape, jitter, stream)

    def add_summed(
        self, shares: ShareSplit, mechanism: Any, total: Integers, count: int, stream: NoiseStream
    ) -> None:
        own = JITTER * shares.ring_unit**2
        # The sampler limits the jitter, so shares are drawn in groups. Groups add up like shares.
        most = max(int(LARGEST_SCALE / own), 1)
        for begin in range(0, count, most):
            together = min(most, count - begin)
            shape = Fraction((mechanism.dimension + 1) * together, 2 * shares.honest)
            add_rounded_mixtures(total[None, :], shares.scale, shape, own * together, stream)

    def compute_tail(self, shares: ShareSplit, mechanism: Any, probability: float) -> float:
        exponent = shares.parties / shares.honest * (mechanism.dimension + 1) / 2
        jitter = shares.parties * JITTER * (shares.ring_unit / shares.scale) ** 2
        log_odds = compute_tail_odds(mechanism.dimension, probability)
        return shares.scale * compute_chernoff_bound(exponent, log_odds, jitter)


class _DiscreteLaplace(SharedLaw):
    """The exact integer difference of two negative binomials."""

    rounded_after = False

    def add(self, shares: ShareSplit, mechanism: Any, vectors: Integers, streams: Streams) -> None:
        for rows, stream in _group_by_stream(vectors, streams):
            draws = draw_negative_binomial(shares.scale, shares.honest, 2 * rows.size, stream)
            np.add(rows, (draws[: rows.size] - draws[rows.size :]).reshape(rows.shape), out=rows)

    def add_summed(
        self, shares: ShareSplit, mechanism: Any, total: Integers, count: int, stream: NoiseStream
    ) -> None:
        rows = np.zeros((count, total.size), dtype=np.int64)
        self.add(shares, mechanism, rows, [stream] * count)
        total += rows.sum(axis=0)

    def compute_tail(self, shares: ShareSplit, mechanism: Any, probability: float) -> float:
        # (sinh(u/2t)/sinh(1/2t))² ≤ u² for 0 ≤ u ≤ 1, so the whole has E e^{uz/t} ≤ (1 − u²)^(−1).
        log_odds = compute_tail_odds(mechanism.dimension, probability)
        return shares.scale * compute_chernoff_bound(shares.parties / shares.honest, log_odds)


L2_LAPLACE = _L2Laplace()
DISCRETE_LAPLACE = _DiscreteLaplace()
