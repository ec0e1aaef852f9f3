"""Mask graph: a k-regular graph that no party chooses, its degree and its threshold.

The graph is complete up to m = 100 parties. Beyond, it is the Harary graph of a random order (Bell
et al., CCS 2020, ePrint 2020/704, section 3). Each party computes it from the run's beacon and is
joined to the k/2 parties before it and the k/2 after it. k is even: an odd k would join each party
to the one opposite, and k = 1 is a perfect matching, in which each pair's sum opens.

With c corrupt and d dropped parties out of m, a degree k and a threshold t are valid if a union
bound holds: failure probability 2^−(40 + `GRINDING_BITS`) for secrecy against a server that lies,
and 2^−20 for the completion of a round. docs/protocol.md, *Sparse graphs*, derives both. Corrupt
positions are a uniform c-subset, so counts are hypergeometric.

    >>> choose_degree(1000, corrupt=100, dropped=100)
    (112, 80)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.primitives import derive, digest, expand_seed

COMPLETE_UP_TO = 100
SECURITY_BITS = 40
_CORRECTNESS_BITS = 20
GRINDING_BITS = 16
"""log2 of the set-ups that a party takes part in with one roster, that is of the graphs to choose
from.
"""
MAX_DEGREE = 255  # a share's coordinate is a nonzero byte


@lru_cache(maxsize=64)
def choose_degree(parties: int, *, corrupt: int, dropped: int) -> tuple[int, int]:
    """Return the smallest even degree, and its smallest threshold, that meet the module's
    conditions.

    Returns:
        (k, t). A complete graph (m ≤ 100) has the smallest secure majority as its threshold, so
        that it bears the most dropouts.

    Raises:
        ValueError: no degree up to 255 meets the conditions.
    """
    if not (0 <= corrupt < parties and 0 <= dropped < parties):
        raise ValueError(
            f"Expected corrupt and dropped below {parties}, got {corrupt} and {dropped}."
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
    from parley.secure_agg.sparse_graph_bounds import find_sparse_degree  # noqa: PLC0415 - spares its code for complete graphs

    found = find_sparse_degree(
        parties,
        corrupt=corrupt,
        dropped=dropped,
        largest=MAX_DEGREE,
        security=2.0 ** -(SECURITY_BITS + GRINDING_BITS),
        correctness=2.0**-_CORRECTNESS_BITS,
    )
    if found is not None:
        return found
    raise ValueError(
        f"Expected a degree <= {MAX_DEGREE} to meet {SECURITY_BITS} bits of security and "
        f"{_CORRECTNESS_BITS} of correctness for {parties} parties with {corrupt} corrupt and "
        f"{dropped} dropped, but no degree does."
    )


_ROWS_AT_ONCE = 4096


@lru_cache(maxsize=8)
def build_neighbour_table(parties: int, degree: int, beacon: bytes) -> NDArray[np.int32]:
    """Return `[m, k]` neighbours of each party, ascending; equal for all who have the beacon.

    Args:
        beacon: public randomness that no party could choose after the roster was fixed. A party's
            position is therefore random, although the operator chooses its index.
    """
    if not 0 <= degree < parties or (degree % 2 and degree != parties - 1):
        raise ValueError(
            f"Expected a degree up to m - 1 = {parties - 1}, even below it, got {degree}."
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
    table = np.empty((parties, len(steps)), dtype=np.int32)  # a million parties: 160 each
    for begin in range(0, parties, _ROWS_AT_ONCE):
        rows = slice(begin, begin + _ROWS_AT_ONCE)
        table[rows] = order[(position[rows, None] + steps[None, :]) % parties]
        table[rows].sort(axis=1)
    table.setflags(write=False)
    return table


NONCE_BYTES = 32
NO_BEACON = bytes(32)
"""Beacon of a run with a complete graph, or before set-up is done."""
MAX_SETUPS = 1 << GRINDING_BITS
"""Maximum number of set-ups that a party takes part in with one roster."""


def compute_roster_digest(identities: tuple[bytes, ...], deployment: bytes = b"") -> bytes:
    """Return 32 bytes that name a roster: all identities, in order. Each key is signed for it."""
    if not deployment:
        return digest(b"parley/roster", *identities)
    return digest(b"parley/roster-of-deployment", deployment, *identities)


def derive_nonce(identity: bytes, *, roster: bytes, count: int) -> bytes:
    """Return a party's nonce for its set-up number `count` with a roster.

    Args:
        identity: the party's Ed25519 private key. No one else can predict the nonce, and the party
            stores nothing between commitment and reveal.
        count: set-ups that the party took part in with this roster; a nonce is revealed once.
    """
    return derive(identity, b"parley/nonce" + roster + count.to_bytes(8, "big"))


def compute_nonce_commitment(index: int, nonce: bytes) -> bytes:
    """Return a party's commitment to its nonce, published before any nonce is revealed."""
    return digest(b"parley/nonce commitment", index.to_bytes(4, "big"), nonce)


def compute_commitments_digest(commitments: Mapping[int, bytes]) -> bytes:
    """Return the digest of all commitments and of the parties that made them, a parameter of the
    run.
    """
    parts = [i.to_bytes(4, "big") + commitments[i] for i in sorted(commitments)]
    return digest(b"parley/nonce commitments", *parts)


def digest_nonces(nonces: Mapping[int, bytes]) -> bytes:
    """Return the digest of the commitments to these nonces."""
    return compute_commitments_digest(
        {i: compute_nonce_commitment(i, nonce) for i, nonce in nonces.items()}
    )


def compute_beacon(fingerprint: bytes, nonces: Mapping[int, bytes]) -> bytes:
    """Return the beacon of a set-up."""
    parts = [i.to_bytes(4, "big") + nonces[i] for i in sorted(nonces)]
    return digest(b"parley/beacon", fingerprint, *parts)
