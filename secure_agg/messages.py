"""The messages: what each is made of, and how long; `codec` writes and reads them.

Every message starts with 18 bytes: version, kind, 8 bytes of the run's digest, sender, round. There
are no counts inside: what a body holds follows from its length, so a message cannot ask for more
memory than it brings. Big-endian; masks of parties have bit i of byte i // 8 from the top, their
spare bits zero. Ciphertexts, complaints, halves, and 64 bytes for 32 in the table of Shares, are of
the first round of a hybrid run (`RunParameters.unpaired`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Annotated, ClassVar, TypeVar

from parley.secure_agg.beacon import NONCE_BYTES
from parley.secure_agg.outcome import (
    COMMITMENT_BYTES,
    ENVELOPE_BYTES,
    KEM_ITEM_BYTES,
    SECRET_BYTES,
    SHARE_DIGEST_BYTES,
    SIGNATURE_BYTES,
    TAG_BYTES,
    mask_bytes,
)
from parley.secure_agg.parameters import RunParameters
from parley.secure_agg.primitives import KEM_SEED_BYTES

SERVER = 2**32 - 1
"""The sender of what comes from the server."""

Bytes = bytes | memoryview
Size = int | Callable[[RunParameters, int], int]
"""Bytes, or run and round → bytes."""


@dataclass(frozen=True)
class Part:
    """What a field takes: so many bytes, and bytes more for each item of the message."""

    size: Size = 0
    each: Size = 0


_OF_PARTIES = Part(lambda run, _: mask_bytes(run.parties))
_OF_NEIGHBOURS = Part(lambda run, _: mask_bytes(run.degree))
_KEY = Part(lambda run, _: run.key_bytes)
_ENTRY = Part(each=lambda run, _: run.key_bytes + NONCE_BYTES + SIGNATURE_BYTES)
_TABLE = Part(TAG_BYTES, lambda run, number: SECRET_BYTES * (1 + run.unpaired(number)))
_SIGNATURE = Part(SIGNATURE_BYTES)
_ENVELOPES = Part(each=ENVELOPE_BYTES)
_ITEMS = Part(each=KEM_ITEM_BYTES)


def _nothing(_: RunParameters) -> int:
    return 0


def _parties(run: RunParameters) -> int:
    return run.parties


def _neighbours(run: RunParameters) -> int:
    return run.degree


_KEYS = "signed keys of {run.key_exchange.algorithms}"
_CIPHERTEXTS = "whole ML-KEM-768 ciphertexts of 1088 bytes, with a tag of 16"


@dataclass(frozen=True, kw_only=True)
class Message:
    """Sender and round; bodies are raw fields whose contents the state machines check.

    A kind says what it is in words for an error, whether it is the server's, of the set-up, of
    hybrid runs alone, and the most items that it may be about.
    """

    kind: ClassVar[int] = 0
    what: ClassVar[str]
    down: ClassVar[bool]
    set_up: ClassVar[bool]
    hybrid: ClassVar[bool]
    most: ClassVar[Callable[[RunParameters], int]]

    sender: int
    round_number: int

    def __init_subclass__(
        cls,
        *,
        kind: int,
        what: str = "",
        down: bool = False,
        set_up: bool = False,
        hybrid: bool = False,
        most: Callable[[RunParameters], int] = _nothing,
    ) -> None:
        cls.kind, cls.what, cls.most = kind, what, staticmethod(most)
        cls.down, cls.set_up, cls.hybrid = down, set_up, hybrid

    def body(self) -> bytes:
        """The bytes after the header: the fields in their order."""
        parts = [getattr(self, each.name) for each in fields(self)[2:]]
        return b"".join(p.to_bytes(4, "big") if isinstance(p, int) else p for p in parts)


@dataclass(frozen=True, kw_only=True)
class Advertise(Message, kind=1, what=_KEYS, set_up=True):
    """A party's public keys of the run, signed by its identity.

    X25519's 32 bytes, and in a hybrid run ML-KEM-768's 1,184 behind them; a nonce of zeros where
    the graph is complete.
    """

    key: Annotated[bytes, _KEY]
    nonce: Annotated[bytes, Part(NONCE_BYTES)]
    signature: Annotated[bytes, _SIGNATURE]


@dataclass(frozen=True, kw_only=True)
class Nonces(Message, kind=10, what="nonces", down=True, set_up=True, most=_parties):
    """The nonces that the graph's beacon is made of; the same for everyone."""

    committed: Annotated[bytes, _OF_PARTIES]
    nonces: Annotated[bytes, Part(each=NONCE_BYTES)]


@dataclass(frozen=True, kw_only=True)
class Roster(Message, kind=2, what=_KEYS, down=True, set_up=True, most=_neighbours):
    """Who is there, and what the receiver's present neighbours advertised."""

    present: Annotated[bytes, _OF_PARTIES]
    entries: Annotated[bytes, _ENTRY]


@dataclass(frozen=True, kw_only=True)
class Encapsulated(Message, kind=11, what=_CIPHERTEXTS, set_up=True, hybrid=True, most=_neighbours):
    """A ciphertext and its tag for every present neighbour."""

    items: Annotated[bytes, _ITEMS]


@dataclass(frozen=True, kw_only=True)
class Ciphertexts(
    Message, kind=12, what=_CIPHERTEXTS, down=True, set_up=True, hybrid=True, most=_neighbours
):
    """The ciphertexts of the receiver's neighbours, as far as they sent any."""

    sent: Annotated[bytes, _OF_NEIGHBOURS]
    items: Annotated[bytes, _ITEMS]


@dataclass(frozen=True, kw_only=True)
class Complaint(Message, kind=13, what="the accused", set_up=True):
    """Whose ciphertexts do not match what this party decapsulated. No vector goes with it."""

    accused: Annotated[bytes, _OF_NEIGHBOURS]


@dataclass(frozen=True, kw_only=True)
class Evidence(Message, kind=14, what="a seed", set_up=True):
    """The seed of a party's ML-KEM key: anyone can see what it decapsulates to. It has left."""

    seed: Annotated[bytes, Part(KEM_SEED_BYTES)] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Shares(Message, kind=3, what="shares", most=_neighbours):
    """A party's secrets of one round, shared among its neighbours and sealed to each."""

    commitments: Annotated[bytes, Part(COMMITMENT_BYTES)]
    table: Annotated[bytes, _TABLE]
    digests: Annotated[bytes, Part(each=2 * SHARE_DIGEST_BYTES)]
    envelopes: Annotated[bytes, _ENVELOPES]


@dataclass(frozen=True, kw_only=True)
class RoundStart(Message, kind=4, what="a plan with envelopes", down=True, most=_neighbours):
    """What a round sums: dimension, the application's context, who takes part."""

    dimension: Annotated[int, Part(4)]
    context: Annotated[bytes, Part(32)]
    participants: Annotated[bytes, _OF_PARTIES]
    envelopes: Annotated[bytes, _ENVELOPES]


@dataclass(frozen=True, kw_only=True)
class Vector(Message, kind=5):
    """A masked vector, little-endian words, and halves of masks behind it (`pairing`).

    Uniform to whoever lacks a mask. The one body that is not copied: it has no parts.
    """

    payload: Bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Survivors(Message, kind=6, what="survivors", down=True):
    """Whose vectors are in the sum."""

    survivors: Annotated[bytes, _OF_PARTIES]


@dataclass(frozen=True, kw_only=True)
class Confirm(Message, kind=7, what="a signature"):
    """A party's signature of the survivors' list, of which it signs one a round."""

    signature: Annotated[bytes, _SIGNATURE]


@dataclass(frozen=True, kw_only=True)
class Confirmations(Message, kind=8, what="signatures", down=True, most=_parties):
    """Who signed the survivors' list; the same for everyone."""

    signers: Annotated[bytes, _OF_PARTIES]
    signatures: Annotated[bytes, Part(each=SIGNATURE_BYTES)]


@dataclass(frozen=True, kw_only=True)
class Reveal(Message, kind=9, what="secrets", most=lambda run: 2 * run.degree):
    """Own self seed, then one entry by participating neighbour, never both for one party.

    Surviving: a share of its self seed. Dropped: the pair's key of this round, and a share of its
    recovery secret. Where no share could be opened, zeros, and the neighbour's bit is 0.
    """

    seed: Annotated[bytes, Part(SECRET_BYTES)] = field(repr=False)
    opened: Annotated[bytes, _OF_NEIGHBOURS]
    secrets: Annotated[bytes, Part(each=SECRET_BYTES)] = field(repr=False)


AnyMessage = TypeVar("AnyMessage", bound=Message)
