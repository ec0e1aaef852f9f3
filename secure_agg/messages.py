"""The messages, and what each is made of; `codec` writes and reads them.

Every message starts with 18 bytes: version, kind, 8 bytes of the run's digest, sender, round. There
are no counts inside: what a body holds follows from its length, so a message cannot ask for more
memory than it brings. Big-endian; masks of parties have bit i of byte i // 8 from the top, their
spare bits zero.

| kind | way | body, bytes |
|---|---|---|
| Advertise | up | keys, nonce 32 (zeros where the graph is complete), signature 64 |
| Nonces | down | mask of parties that committed, their nonces of 32 |
| Roster | down | mask of present parties; per present neighbour keys, nonce 32, signature 64 |
| Encapsulated | up | n times ciphertext 1,088, tag 16 |
| Ciphertexts | down | mask of neighbours that sent one, per each ciphertext 1,088, tag 16 |
| Complaint | up | mask of neighbours whose ciphertext does not give its tag |
| Evidence | up | seed 64 of the key that they were encapsulated to |
| Shares | up | commitments 32 + 32, sealed table 16 + 32·n, n digests of 32, n envelopes of 80 |
| RoundStart | down | dimension 4, context 32, mask of participants, n envelopes of 80 |
| Vector | up | the masked vector, little-endian words; behind it n halves of 32 |
| Survivors | down | mask of parties |
| Confirm | up | signature 64 of the survivors' list |
| Confirmations | down | mask of parties, their signatures of 64 |
| Reveal | up | self seed 32, mask of neighbours whose share opened, n secrets of 32 |

Keys are X25519's 32 bytes, and in a hybrid run ML-KEM-768's 1,184 behind them. Encapsulated to
Evidence, the halves of a vector, and 64 bytes for 32 in the table, are of the first round of a
hybrid run (`RunParameters.unpaired`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import ClassVar, TypeVar

SERVER = 2**32 - 1
"""The sender of what comes from the server."""

Bytes = bytes | memoryview


@dataclass(frozen=True, kw_only=True)
class Message:
    """Sender and round; bodies are raw fields whose contents the state machines check."""

    kind: ClassVar[int] = 0
    sender: int
    round_number: int

    def body(self) -> bytes:
        """The bytes after the header: the fields in their order."""
        parts = [getattr(self, each.name) for each in fields(self)[2:]]
        return b"".join(p.to_bytes(4, "big") if isinstance(p, int) else p for p in parts)


@dataclass(frozen=True, kw_only=True)
class Advertise(Message):
    """A party's public keys of the run, signed by its identity."""

    kind = 1
    key: bytes
    nonce: bytes
    signature: bytes


@dataclass(frozen=True, kw_only=True)
class Roster(Message):
    """Who is there, and the signed public keys of the receiver's neighbours."""

    kind = 2
    present: bytes
    entries: bytes


@dataclass(frozen=True, kw_only=True)
class Encapsulated(Message):
    """A ciphertext and its tag for every present neighbour."""

    kind = 11
    items: bytes


@dataclass(frozen=True, kw_only=True)
class Ciphertexts(Message):
    """The ciphertexts of the receiver's neighbours, as far as they sent any."""

    kind = 12
    sent: bytes
    items: bytes


@dataclass(frozen=True, kw_only=True)
class Complaint(Message):
    """Whose ciphertexts do not match what this party decapsulated. No vector goes with it."""

    kind = 13
    accused: bytes


@dataclass(frozen=True, kw_only=True)
class Evidence(Message):
    """The seed of a party's ML-KEM key: anyone can see what it decapsulates to. It has left."""

    kind = 14
    seed: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Shares(Message):
    """A party's secrets of one round, shared among its neighbours and sealed to each."""

    kind = 3
    commitments: bytes
    table: bytes
    digests: bytes
    envelopes: bytes


@dataclass(frozen=True, kw_only=True)
class RoundStart(Message):
    """What a round sums: dimension, the application's context, who takes part."""

    kind = 4
    dimension: int
    context: bytes
    participants: bytes
    envelopes: bytes


@dataclass(frozen=True, kw_only=True)
class Vector(Message):
    """A masked vector. Uniform to whoever lacks a mask."""

    kind = 5
    payload: Bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Survivors(Message):
    """Whose vectors are in the sum."""

    kind = 6
    survivors: bytes


@dataclass(frozen=True, kw_only=True)
class Confirm(Message):
    """A party's signature of the survivors' list, of which it signs one a round."""

    kind = 7
    signature: bytes


@dataclass(frozen=True, kw_only=True)
class Confirmations(Message):
    """Who signed the survivors' list; the same for everyone."""

    kind = 8
    signers: bytes
    signatures: bytes


@dataclass(frozen=True, kw_only=True)
class Reveal(Message):
    """Own self seed, then one entry by participating neighbour, never both for one party.

    Surviving: a share of its self seed. Dropped: the pair's key of this round, and a share of its
    recovery secret. Where no share could be opened, zeros, and the neighbour's bit is 0.
    """

    kind = 9
    seed: bytes = field(repr=False)
    opened: bytes
    secrets: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Nonces(Message):
    """The nonces that the graph's beacon is made of; the same for everyone."""

    kind = 10
    committed: bytes
    nonces: bytes


AnyMessage = TypeVar("AnyMessage", bound=Message)
