"""The beacon: public randomness for the graph that nobody chooses once the roster is fixed.

Only a graph that is not complete depends on it. Three steps, once a set-up:

1. commit: every party that takes part says H(n_i) of a nonce that nobody else can predict; the
   digest of all of these is a parameter of the run;
2. reveal: a party signs that parameter, its key and n_i together, in its Advertise;
3. everyone gets all nonces, holds them against the parameter, and takes

    beacon = H(parameters ‖ n_i, by index)

Why it holds: a party reveals its nonce for one list of commitments alone, which was fixed before
it did, and never twice (the next set-up has another nonce). So whatever the others do, the beacon
that a party accepts is uniform to everyone but itself when the list is fixed. Whoever moves last
can only keep a nonce back, which voids the set-up. Each repetition is one more graph to choose
from, and every honest party counts the ones it went through: at most 2^`GRINDING_BITS` a roster,
which `graph` adds to the bits of security.

    >>> nonces = [next_nonce(bytes([i]) * 32, roster=b"roster", count=0) for i in range(3)]
    >>> given = commitments_digest({i: commitment(i, n) for i, n in enumerate(nonces)})
    >>> len(given)
    32
"""

from __future__ import annotations

from collections.abc import Mapping

from parley.secure_agg.graph import GRINDING_BITS
from parley.secure_agg.primitives import derive, digest

NONCE_BYTES = 32
NO_BEACON = bytes(32)
"""Of a run whose graph is complete, or whose set-up is not done."""
MOST_SETUPS = 1 << GRINDING_BITS
"""Set-ups that a party goes through with one roster."""


def roster_digest(identities: tuple[bytes, ...], deployment: bytes = b"") -> bytes:
    """32 bytes that name a roster: all identities, in order. Every key is signed for it."""
    if not deployment:
        return digest(b"parley/roster", *identities)
    return digest(b"parley/roster-of-deployment", deployment, *identities)


def next_nonce(identity: bytes, *, roster: bytes, count: int) -> bytes:
    """A party's nonce for its set-up number `count` with a roster.

    Args:
        identity: its Ed25519 private key: nobody else can predict the nonce, and nothing has to be
            kept between the commitment and the reveal.
        count: set-ups it went through with this roster; a nonce is revealed once.
    """
    return derive(identity, b"parley/nonce" + roster + count.to_bytes(8, "big"))


def commitment(index: int, nonce: bytes) -> bytes:
    """What a party says of its nonce before anyone's is known."""
    return digest(b"parley/nonce commitment", index.to_bytes(4, "big"), nonce)


def commitments_digest(commitments: Mapping[int, bytes]) -> bytes:
    """What a run's parameters say of all commitments: who made one, and which."""
    parts = [i.to_bytes(4, "big") + commitments[i] for i in sorted(commitments)]
    return digest(b"parley/nonce commitments", *parts)


def beacon_of(fingerprint: bytes, nonces: Mapping[int, bytes]) -> bytes:
    """The beacon of a set-up."""
    parts = [i.to_bytes(4, "big") + nonces[i] for i in sorted(nonces)]
    return digest(b"parley/beacon", fingerprint, *parts)
