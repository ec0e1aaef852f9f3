"""Who masks with whom: a k-regular graph that nobody chooses, and its degree and threshold.

Complete up to m = 100. Beyond it the Harary graph of a random order (Bell et al., CCS 2020, ePrint
2020/704, section 3), which every party recomputes from the run's beacon: everybody is joined to the
k/2 before and the k/2 after it. k is even: an odd one would join every party to the one opposite,
and k = 1 is a perfect matching, whose pairs open.

With c corrupt and d dropped parties out of m, degree k and threshold t are good when a union bound
says so (docs/protocol.md: *Sparse graphs*, its probability and choice; corrupt places are a uniform
c-subset, so counts are hypergeometric): 2^−(40 + `GRINDING_BITS`) for secrecy against a server that
lies, and 2^−20 that a round completes.

    >>> choose_degree(1000, corrupt=100, dropped=100)
    (112, 80)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.primitives import derive, digest, expand_seed

COMPLETE_UP_TO = 100
SECURITY_BITS = 40
GRINDING_BITS = 16
"""log2 of the set-ups that a party goes through with one roster: of the graphs to choose from."""
MAX_DEGREE = 255  # a share's coordinate is a nonzero byte


@lru_cache(maxsize=8)
def _compute_tails(population: int, marked: int, draws: int) -> tuple[float, ...]:
    """P[X ≥ x] for x = 0..draws + 1, X the marked ones among `draws` of `population`."""
    ways = [math.comb(marked, x) * math.comb(population - marked, draws - x) for x in range(draws)]
    ways.append(math.comb(marked, draws))
    total, tail, tails = math.comb(population, draws), 0, [0.0]
    for count in reversed(ways):
        tail += count
        tails.append(tail / total)
    return tuple(tails[::-1])


@lru_cache(maxsize=256)
def bound_security_failure(parties: int, degree: int, threshold: int, corrupt: int) -> float:
    """Bound on the probability that c colluding parties rebuild a secret that they must not.

    The conditions on one party's neighbours, union bound over the parties; a complete graph has
    no luck in it, so the bound is 0 or at least 1.
    """
    needed = 2 * threshold - degree
    if needed <= 0:
        return float(parties)
    if needed > degree:
        return 0.0
    return parties * _compute_tails(parties - 1, corrupt, degree)[needed]


def _compute_window_tails(parties: int, half: int, corrupt: int) -> NDArray[np.float64]:
    """`[half + 1]` P[two disjoint windows of `half` places have ≥ s corrupt each], by s.

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
    tails: NDArray[np.float64] = joint[::-1, ::-1].cumsum(0).cumsum(1)[::-1, ::-1].diagonal()
    return tails


@lru_cache(maxsize=256)
def _bound_arc_failures(parties: int, degree: int, corrupt: int) -> tuple[float, ...]:
    """By s = t − k/2: the union bound over the pairs of windows."""
    pairs = parties * (parties - 1) / 2
    return (*(pairs * _compute_window_tails(parties, degree // 2, corrupt)).tolist(), 0.0)


def bound_arc_failure(parties: int, degree: int, threshold: int, corrupt: int) -> float:
    """Bound on the probability that a server which chooses the drops can open an arc alone.

    0 on a complete graph, which has no arcs: any two honest parties are neighbours.
    """
    if degree >= parties - 1:
        return 0.0
    surplus = threshold - degree // 2
    return (
        float(parties) ** 2
        if surplus <= 0
        else _bound_arc_failures(parties, degree, corrupt)[surplus]
    )


def _find_secure_threshold(parties: int, degree: int, corrupt: int) -> int:
    """Return the least threshold that the security conditions allow, or k + 1 if none does."""
    security = 2.0 ** -(SECURITY_BITS + GRINDING_BITS)
    for threshold in range(degree // 2 + 1, degree + 1):
        arcs = bound_arc_failure(parties, degree, threshold, corrupt)
        if max(arcs, bound_security_failure(parties, degree, threshold, corrupt)) <= security:
            return threshold
    return degree + 1


@lru_cache(maxsize=64)
def choose_degree(
    parties: int, *, corrupt: int, dropped: int, correctness: int = 20
) -> tuple[int, int]:
    """The least even degree, and its least threshold, that meet the module's conditions.

    Returns:
        (k, t). Complete graphs (m ≤ 100) take the least majority that is secure, so that they

    Raises:
        ValueError: no degree up to 255 will do, with the numbers.
    """
    if not (0 <= corrupt < parties and 0 <= dropped < parties):
        raise ValueError(
            f"Expected corrupt and dropped from 0 to {parties - 1}, got {corrupt} and {dropped}."
        )
    if parties == 1:
        return 0, 0
    if parties <= COMPLETE_UP_TO:
        degree = parties - 1
        threshold = (degree + corrupt) // 2 + 1
        if threshold <= degree - dropped:
            return degree, threshold
        raise ValueError(
            f"Expected a threshold <= {degree - dropped} (degree {degree}, {dropped} dropped), got "
            f"{threshold} for {corrupt} corrupt parties."
        )
    for degree in range(2, min(parties - 1, MAX_DEGREE + 1), 2):
        threshold = _find_secure_threshold(parties, degree, corrupt)
        if threshold > degree:
            continue
        lost = _compute_tails(parties - 1, dropped, degree)
        if parties * lost[degree - threshold + 1] <= 2.0**-correctness:
            return degree, threshold
    raise ValueError(
        f"Expected a degree <= {MAX_DEGREE} to meet {SECURITY_BITS} bits of security and "
        f"{correctness} of correctness for {parties} parties with {corrupt} corrupt and {dropped} "
        "dropped; none does."
    )


_ROWS_AT_ONCE = 4096


@lru_cache(maxsize=8)
def build_neighbour_table(parties: int, degree: int, beacon: bytes) -> NDArray[np.int32]:
    """`[m, k]` neighbours of every party, ascending; the same for everyone who has the beacon.

    Args:
        beacon: public randomness that nobody could choose once the roster was fixed: a party's
            place is random though its index is the operator's choice.
    """
    if not 0 <= degree < parties or (degree % 2 and degree != parties - 1):
        raise ValueError(
            f"Expected a degree from 0 to m - 1 = {parties - 1}, even below that, got {degree}."
        )
    if degree == parties - 1:
        steps = np.arange(1, parties)
    else:
        half = degree // 2
        steps = np.concatenate([np.arange(1, half + 1), -np.arange(1, half + 1)])
    words = expand_seed(b"parley/graph" + beacon)(8 * parties)
    order = np.argsort(np.frombuffer(words, dtype=">u8"), kind="stable")
    position = np.empty(parties, dtype=np.int64)
    position[order] = np.arange(parties)
    table = np.empty((parties, len(steps)), dtype=np.int32)  # a million parties have 160 each
    for begin in range(0, parties, _ROWS_AT_ONCE):
        rows = slice(begin, begin + _ROWS_AT_ONCE)
        table[rows] = order[(position[rows, None] + steps[None, :]) % parties]
        table[rows].sort(axis=1)
    table.setflags(write=False)
    return table


NONCE_BYTES = 32
NO_BEACON = bytes(32)
"""Of a run whose graph is complete, or whose set-up is not done."""
MAX_SETUPS = 1 << GRINDING_BITS
"""Set-ups that a party goes through with one roster."""


def compute_roster_digest(identities: tuple[bytes, ...], deployment: bytes = b"") -> bytes:
    """32 bytes that name a roster: all identities, in order. Every key is signed for it."""
    if not deployment:
        return digest(b"parley/roster", *identities)
    return digest(b"parley/roster-of-deployment", deployment, *identities)


def derive_nonce(identity: bytes, *, roster: bytes, count: int) -> bytes:
    """A party's nonce for its set-up number `count` with a roster.

    Args:
        identity: its Ed25519 private key: nobody else can predict the nonce, and nothing has to be
            kept between the commitment and the reveal.
        count: set-ups it went through with this roster; a nonce is revealed once.
    """
    return derive(identity, b"parley/nonce" + roster + count.to_bytes(8, "big"))


def compute_nonce_commitment(index: int, nonce: bytes) -> bytes:
    """What a party says of its nonce before anyone's is known."""
    return digest(b"parley/nonce commitment", index.to_bytes(4, "big"), nonce)


def compute_commitments_digest(commitments: Mapping[int, bytes]) -> bytes:
    """What a run's parameters say of all commitments: who made one, and which."""
    parts = [i.to_bytes(4, "big") + commitments[i] for i in sorted(commitments)]
    return digest(b"parley/nonce commitments", *parts)


def compute_beacon(fingerprint: bytes, nonces: Mapping[int, bytes]) -> bytes:
    """The beacon of a set-up."""
    parts = [i.to_bytes(4, "big") + nonces[i] for i in sorted(nonces)]
    return digest(b"parley/beacon", fingerprint, *parts)
