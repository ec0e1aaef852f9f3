"""Failure bounds of sparse mask graphs, and the smallest degree that meets them.

Both bounds are union bounds over hypergeometric counts: corrupt positions are a uniform c-subset
(docs/protocol.md, *Sparse graphs*).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


@lru_cache(maxsize=8)
def _compute_tails(population: int, marked: int, draws: int) -> tuple[float, ...]:
    """Return P[X ≥ x] for x = 0..draws + 1, X the number of marked ones among the draws."""
    ways = [math.comb(marked, x) * math.comb(population - marked, draws - x) for x in range(draws)]
    ways.append(math.comb(marked, draws))
    total, tail, tails = math.comb(population, draws), 0, [0.0]
    for count in reversed(ways):
        tail += count
        tails.append(tail / total)
    return tuple(tails[::-1])


@lru_cache(maxsize=256)
def bound_security_failure(parties: int, degree: int, threshold: int, corrupt: int) -> float:
    """Bound the probability that c colluding parties rebuild a secret that they must not rebuild.

    It is a union bound over the parties of the conditions on one party's neighbours. A complete
    graph involves no chance, so the bound is 0 or at least 1.
    """
    needed = 2 * threshold - degree
    if needed <= 0:
        return float(parties)
    if needed > degree:
        return 0.0
    return parties * _compute_tails(parties - 1, corrupt, degree)[needed]


def _compute_window_tails(parties: int, half: int, corrupt: int) -> NDArray[np.float64]:
    """Return `[half + 1]` P[two disjoint windows of `half` positions have ≥ s corrupt each], by s.

    P[a in one, b in the other] = C(h, a)·C(h, b)·C(m − 2h, c − a − b) / C(m, c)
                                = C(h, a)·C(h, b) / C(2h, a + b) · P[a + b in both].
    """
    both, total = 2 * half, math.comb(parties, 2 * half)
    share = [
        math.comb(corrupt, u) * math.comb(parties - corrupt, both - u) / total / math.comb(both, u)
        for u in range(both + 1)
    ]
    ways = np.array([float(math.comb(half, a)) for a in range(half + 1)])
    places = np.arange(half + 1)
    joint = ways[:, None] * ways[None, :] * np.array(share)[places[:, None] + places[None, :]]
    result: NDArray[np.float64] = joint[::-1, ::-1].cumsum(0).cumsum(1)[::-1, ::-1].diagonal()
    return result


@lru_cache(maxsize=256)
def _bound_arc_failures(parties: int, degree: int, corrupt: int) -> tuple[float, ...]:
    """Return the union bound over the pairs of windows, by s = t − k/2."""
    pairs = parties * (parties - 1) / 2
    return (*(pairs * _compute_window_tails(parties, degree // 2, corrupt)).tolist(), 0.0)


def bound_arc_failure(parties: int, degree: int, threshold: int, corrupt: int) -> float:
    """Bound the probability that a server that chooses the drops can open an arc's sum separately.

    The bound is 0 on a complete graph, which has no arcs: any two honest parties are neighbours.
    """
    if degree >= parties - 1:
        return 0.0
    surplus = threshold - degree // 2
    if surplus <= 0:
        return float(parties) ** 2
    return _bound_arc_failures(parties, degree, corrupt)[surplus]


def find_sparse_degree(
    parties: int,
    *,
    corrupt: int,
    dropped: int,
    largest: int,
    security: float,
    correctness: float,
) -> tuple[int, int] | None:
    """Return the smallest even degree, and its smallest threshold, within both probabilities.

    Return None if no degree up to `largest` is.
    """
    for degree in range(2, min(parties - 1, largest + 1), 2):
        threshold = _find_secure_threshold(parties, degree, corrupt, security)
        if threshold > degree:
            continue
        lost = _compute_tails(parties - 1, dropped, degree)
        if parties * lost[degree - threshold + 1] <= correctness:
            return degree, threshold
    return None


def _find_secure_threshold(parties: int, degree: int, corrupt: int, security: float) -> int:
    """Return the smallest threshold that meets the security conditions, or k + 1 if none does."""
    for threshold in range(degree // 2 + 1, degree + 1):
        arcs = bound_arc_failure(parties, degree, threshold, corrupt)
        if max(arcs, bound_security_failure(parties, degree, threshold, corrupt)) <= security:
            return threshold
    return degree + 1
