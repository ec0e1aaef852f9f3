"""The secret of a pair of parties: X25519's, ML-KEM-768's of both directions, and what follows.

By pair i, j (`transcript`: parameters, roster, both indices, all public keys of both):

    x            = HKDF-Extract(transcript, X25519(i, j))                       both ends at once
    (s, ct)      = Encapsulate(j's key)                                         i → j
    place        = H(transcript ‖ i ‖ j ‖ ct)
    S_ij         = HKDF-Extract(x, HKDF-Expand(s, "secret"))                    X25519 *and* ML-KEM
    tag_ij       = HKDF-Expand(s, "confirm" ‖ place), 16 bytes                  travels with ct
    envelope_ij, half_ij, pad_ij, root_ij = HKDF-Expand(S_ij, purpose ‖ place)

    base^1       = HKDF-Extract("base", half_ij ‖ half_ji)                      masks of round 1
    chain^2      = HKDF-Extract("chain", root_ij ‖ root_ji)                     all later rounds

i < j in the last two. One end of a direction has s from encapsulating, the other from
decapsulating; a ciphertext that was made for anything else gives another s, and so another tag.
Why either algorithm suffices, and why round 1 is apart: docs/protocol.md, "Pair secrets".
"""

from __future__ import annotations

from typing import NamedTuple

from parley.secure_agg.outcome import TAG_BYTES
from parley.secure_agg.primitives import derive, digest, extract, same


class Direction(NamedTuple):
    """What one party's encapsulation to another gives, 32 bytes each.

    Attributes:
        envelope: seals the share of round 1.
        half: of the pair's mask in round 1.
        pad: hides the other direction's half from all but those who know this one.
        root: half of the chain for the rounds after.
    """

    envelope: bytes
    half: bytes
    pad: bytes
    root: bytes

    def __repr__(self) -> str:
        return "<Direction: four keys>"


def transcript(
    fingerprint: bytes, roster: bytes, one: tuple[int, bytes], other: tuple[int, bytes]
) -> bytes:
    """What a pair secret is bound to: the run, its algorithms, the roster, who, all public keys.

    Args:
        roster: digest of all identities in order, so that an index names an identity.
        one, other: index and public keys of the ends, in any order.
    """
    (low, key), (high, its) = sorted((one, other))
    ends = low.to_bytes(4, "big") + high.to_bytes(4, "big")
    return digest(b"parley/pair", fingerprint, roster, ends, key, its)


def place(pair: bytes, sender: int, receiver: int, ciphertext: bytes) -> bytes:
    """Which ciphertext of which pair, and which way it goes."""
    ends = sender.to_bytes(4, "big") + receiver.to_bytes(4, "big")
    return digest(b"parley/ciphertext", pair, ends, ciphertext)


def confirmation(secret: bytes, where: bytes) -> bytes:
    """What shows the receiver that it decapsulated what the sender encapsulated.

    Of the ML-KEM secret alone, so that its key can prove it false without any other secret.
    """
    return derive(secret, b"parley/kem confirm" + where)[:TAG_BYTES]


def confirms(secret: bytes, where: bytes, tag: bytes) -> bool:
    """Whether a tag is the one of that secret and place."""
    return same(confirmation(secret, where), tag)


def direction(exchanged: bytes, secret: bytes, where: bytes) -> Direction:
    """The keys of one direction: X25519's secret of the pair, ML-KEM's of this direction."""
    both = extract(exchanged, derive(secret, b"parley/kem secret"))
    return Direction(
        *(
            derive(both, b"parley/direction " + name + where)
            for name in (b"envelope", b"half", b"pad", b"root")
        )
    )


def pair_base(first: bytes, second: bytes) -> bytes:
    """The base of a pair's mask in round 1, from the halves of the lower index and the higher."""
    return extract(b"parley/hybrid base", first + second)


def pair_chain(first: bytes, second: bytes) -> bytes:
    """The pair's chain, from the roots of the lower index and the higher."""
    return extract(b"parley/hybrid chain", first + second)


def under_pad(value: bytes, pad: bytes) -> bytes:
    """32 bytes hidden by a pad that hides nothing else, or found again by it."""
    return (int.from_bytes(value, "big") ^ int.from_bytes(pad, "big")).to_bytes(32, "big")
