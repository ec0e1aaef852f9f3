r"""Who masks with whom: a public k-regular graph, and the degree and threshold it needs.

Complete up to m = 100. Beyond it the Harary graph of a public random order (Bell et al., CCS
2020, ePrint 2020/704, section 3: a random permutation, then every party is joined to
the k/2 before and the k/2 after it), which every party recomputes from the run's beacon.

With c corrupt and d dropped parties out of m, a degree k and threshold t are good when, each by
a union bound over the m parties (neighbours of one party are a uniform k-subset of the others,
so counts are hypergeometric):

* semi-honest server: P[corrupt neighbours ≥ t] ≤ 2^−σ: no self mask is rebuilt by colluders;
* active server: P[corrupt neighbours ≥ 2t − k] ≤ 2^−σ: since 2t > k + corrupt, honest neighbours
  split in two camps cannot rebuild both secrets of one party;
* connected: P[k/2 parties in a row are corrupt or dropped] ≤ 2^−σ: two such gaps would be needed
  to cut the honest survivors in two, whose sums would then show separately;
* correct: P[surviving neighbours < t] ≤ 2^−η: the round completes.

    >>> choose_degree(1000, corrupt=100, dropped=100, active=False)
    (46, 26)
    >>> choose_degree(1000, corrupt=100, dropped=100, active=True)
    (96, 67)
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from secure_agg.primitives import expand_seed

__all__ = [
    "COMPLETE_UP_TO",
    "LARGEST_DEGREE",
    "choose_degree",
    "neighbour_table",
    "security_failure",
]

COMPLETE_UP_TO = 100
LARGEST_DEGREE = 255  # a share's coordinate is a nonzero byte


def _tails(population: int, marked: int, draws: int) -> list[float]:
    """P[X ≥ x] for x = 0..draws + 1, X the marked ones among `draws` of `population`."""
    ways = [math.comb(marked, x) * math.comb(population - marked, draws - x) for x in range(draws)]
    ways.append(math.comb(marked, draws))
    total, tail, tails = math.comb(population, draws), 0, [0.0]
    for count in reversed(ways):
        tail += count
        tails.append(tail / total)
    return tails[::-1]


@lru_cache(maxsize=256)
def security_failure(
    parties: int, degree: int, threshold: int, corrupt: int, active: bool
) -> float:
    """Bound on the probability that c colluding parties break somebody's masks.

    The first two conditions of the module, union bound over the parties; a complete graph has no
    luck in it, so the bound is 0 or at least 1.
    """
    needed = 2 * threshold - degree if active else threshold
    if needed <= 0:
        return float(parties)
    if needed > degree:
        return 0.0
    return parties * _tails(parties - 1, corrupt, degree)[needed]


@lru_cache(maxsize=64)
def choose_degree(
    parties: int,
    *,
    corrupt: int,
    dropped: int,
    active: bool,
    security: int = 40,
    correctness: int = 20,
) -> tuple[int, int]:
    """The least degree, and its threshold, that meet the module's four conditions.

    Args:
        parties: m.
        corrupt: c, parties that may collude with the server.
        dropped: d, parties that may fall silent.
        active: against an active server.
        security: σ, statistical, bits.
        correctness: η, bits.

    Returns:
        (k, t). Complete graphs (m ≤ 100) take the least majority that is secure, so that they
        bear the most dropouts.

    Raises:
        ValueError: no degree up to 255 will do, with the numbers.
    """
    if not (0 <= corrupt < parties and 0 <= dropped < parties):
        raise ValueError(
            f"Expected corrupt and dropped from 0 to m - 1 = {parties - 1}, "
            f"got {corrupt} and {dropped}."
        )
    if parties <= COMPLETE_UP_TO:
        degree = parties - 1
        threshold = (degree + corrupt) // 2 + 1 if active else max(corrupt, degree // 2) + 1
        if threshold <= degree - dropped:
            return degree, threshold
        raise ValueError(
            f"Expected a threshold <= {degree - dropped} (degree {degree}, {dropped} dropped), got "
            f"{threshold} for {corrupt} corrupt parties{' and an active server' * active}."
        )
    for degree in range(2, min(parties, LARGEST_DEGREE + 1), 2):
        gone = (corrupt + dropped) / parties
        if parties * gone ** (degree / 2) > 2.0**-security:
            continue
        corrupt_tail = _tails(parties - 1, corrupt, degree)
        dropped_tail = _tails(parties - 1, dropped, degree)
        least = next(n for n in range(1, degree + 2) if parties * corrupt_tail[n] <= 2.0**-security)
        threshold = (degree + least + 1) // 2 if active else least
        if threshold > degree:
            continue
        if parties * dropped_tail[degree - threshold + 1] <= 2.0**-correctness:
            return degree, threshold
    raise ValueError(
        f"Expected a degree <= {LARGEST_DEGREE} to meet {security} bits of security and "
        f"{correctness} of correctness for {parties} parties with {corrupt} corrupt and {dropped} "
        "dropped; none does."
    )


@lru_cache(maxsize=8)
def neighbour_table(parties: int, degree: int, beacon: bytes) -> NDArray[np.int64]:
    """`[m, k]` neighbours of every party, ascending; the same for everyone who has the beacon.

    Args:
        parties: m.
        degree: k; m·k must be even.
        beacon: public randomness, fixed before the parties' keys are known.

    Raises:
        ValueError: no k-regular graph on m parties.
    """
    if not 0 <= degree < parties or parties * degree % 2:
        raise ValueError(
            f"Expected a degree from 0 to m - 1 = {parties - 1} with m·k even, got {degree}."
        )
    if degree == parties - 1:
        steps = np.arange(1, parties)
    else:
        half = degree // 2
        steps = np.concatenate([np.arange(1, half + 1), -np.arange(1, half + 1)])
        if degree % 2:
            steps = np.append(steps, parties // 2)
    words = expand_seed(b"parley/graph" + beacon)(8 * parties)
    order = np.argsort(np.frombuffer(words, dtype=">u8"), kind="stable")
    position = np.empty(parties, dtype=np.int64)
    position[order] = np.arange(parties)
    table = np.sort(order[(position[:, None] + steps[None, :]) % parties], axis=1)
    table.setflags(write=False)
    return table
