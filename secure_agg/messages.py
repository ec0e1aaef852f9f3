"""Protocol messages: their fields, their lengths, and how their bytes are parsed.

Each message starts with 18 bytes: version, kind, 8 bytes of the run's digest, sender, round. It
contains no counts. The number of items follows from the length, so a message cannot request more
memory than its own size. Integers are big-endian. In a mask of parties, bit i is in byte i // 8,
counted from the top; spare bits are zero. Ciphertexts, complaints, mask halves, and the 64 instead
of 32 bytes per entry in the table of Shares belong to the first round (`is_before_pairing`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Annotated, Any, ClassVar, TypeVar, cast, get_type_hints

import numpy as np

from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.mask_graph import NONCE_BYTES
from parley.secure_agg.predicted_outcome import (
    COMMITMENT_BYTES,
    ENVELOPE_BYTES,
    HEADER_BYTES,
    KEM_ITEM_BYTES,
    SECRET_BYTES,
    SHARE_DIGEST_BYTES,
    SIGNATURE_BYTES,
    TAG_BYTES,
    count_mask_bytes,
    unpack_mask,
)
from parley.secure_agg.primitives import KEM_SEED_BYTES, PUBLIC_KEY_BYTES
from parley.secure_agg.protocol_parameters import KEY_EXCHANGE, RunParameters, is_before_pairing

SERVER = 2**32 - 1
"""Sender index of the server's messages."""

Bytes = bytes | memoryview
Size = int | Callable[[RunParameters, int], int]
"""Number of bytes, or a function from run and round to it."""


@dataclass(frozen=True)
class FieldLayout:
    """Size of a field: fixed bytes, plus bytes per item of the message."""

    size: Size = 0
    per_item: Size = 0


_OF_PARTIES = FieldLayout(lambda run, _: count_mask_bytes(run.parties))
_OF_NEIGHBOURS = FieldLayout(lambda run, _: count_mask_bytes(run.degree))
_KEY = FieldLayout(PUBLIC_KEY_BYTES)
_ENTRY = FieldLayout(per_item=PUBLIC_KEY_BYTES + NONCE_BYTES + SIGNATURE_BYTES)
_TABLE = FieldLayout(TAG_BYTES, lambda _, number: SECRET_BYTES * (1 + is_before_pairing(number)))
_SIGNATURE = FieldLayout(SIGNATURE_BYTES)
_ENVELOPES = FieldLayout(per_item=ENVELOPE_BYTES)
_ITEMS = FieldLayout(per_item=KEM_ITEM_BYTES)


_count_parties = attrgetter("parties")
_count_neighbours = attrgetter("degree")
_KEYS = f"signed keys of {KEY_EXCHANGE}"
_CIPHERTEXTS = "whole ML-KEM-768 ciphertexts of 1088 bytes with 16-byte tags"


@dataclass(frozen=True, kw_only=True)
class Message:
    """Sender and round. Bodies are raw fields, which the state machines check.

    Each kind declares its name for errors, whether the server sends it (`down`), whether it belongs
    to the set-up, and its maximum number of items.
    """

    kind: ClassVar[int] = 0
    what: ClassVar[str]
    down: ClassVar[bool]
    set_up: ClassVar[bool]
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
        most: Callable[[RunParameters], int] = lambda _: 0,
    ) -> None:
        cls.kind, cls.what, cls.most = kind, what, staticmethod(most)
        cls.down, cls.set_up = down, set_up

    def encode_body(self) -> bytes:
        """Return the bytes after the header: the fields in their order."""
        parts = [getattr(self, each.name) for each in fields(self)[2:]]
        return b"".join(p.to_bytes(4, "big") if isinstance(p, int) else p for p in parts)


@dataclass(frozen=True, kw_only=True)
class Advertise(Message, kind=1, what=_KEYS, set_up=True):
    """A party's public keys of the run, signed by its identity.

    The key is X25519's 32 bytes followed by ML-KEM-768's 1,184. The nonce is zeros if the graph is
    complete.
    """

    key: Annotated[bytes, _KEY]
    nonce: Annotated[bytes, FieldLayout(NONCE_BYTES)]
    signature: Annotated[bytes, _SIGNATURE]


@dataclass(frozen=True, kw_only=True)
class Nonces(Message, kind=10, what="nonces", down=True, set_up=True, most=_count_parties):
    """Nonces from which the graph's beacon is computed; the same for each party."""

    committed: Annotated[bytes, _OF_PARTIES]
    nonces: Annotated[bytes, FieldLayout(per_item=NONCE_BYTES)]


@dataclass(frozen=True, kw_only=True)
class Roster(Message, kind=2, what=_KEYS, down=True, set_up=True, most=_count_neighbours):
    """Present parties, and the keys that the receiver's present neighbours advertised."""

    present: Annotated[bytes, _OF_PARTIES]
    entries: Annotated[bytes, _ENTRY]


@dataclass(frozen=True, kw_only=True)
class Encapsulated(Message, kind=11, what=_CIPHERTEXTS, set_up=True, most=_count_neighbours):
    """Ciphertext and tag for each present neighbour."""

    items: Annotated[bytes, _ITEMS]


@dataclass(frozen=True, kw_only=True)
class Ciphertexts(
    Message, kind=12, what=_CIPHERTEXTS, down=True, set_up=True, most=_count_neighbours
):
    """Ciphertexts from those of the receiver's neighbours that sent one."""

    sent: Annotated[bytes, _OF_NEIGHBOURS]
    items: Annotated[bytes, _ITEMS]


@dataclass(frozen=True, kw_only=True)
class Complaint(Message, kind=13, what="the accused", set_up=True):
    """Neighbours whose ciphertexts do not match what this party decapsulated. It replaces the
    vector.
    """

    accused: Annotated[bytes, _OF_NEIGHBOURS]


@dataclass(frozen=True, kw_only=True)
class Evidence(Message, kind=14, what="a seed", set_up=True):
    """Seed of a party's ML-KEM key, so that all can check what it decapsulates to. The party has
    left.
    """

    seed: Annotated[bytes, FieldLayout(KEM_SEED_BYTES)] = field(repr=False)


@dataclass(frozen=True, kw_only=True, repr=False)
class RoundShares(Message, kind=3, what="shares", most=_count_neighbours):
    """A party's secrets of one round, shared among its neighbours and sealed for each."""

    commitments: Annotated[bytes, FieldLayout(COMMITMENT_BYTES)]
    table: Annotated[bytes, _TABLE]
    digests: Annotated[bytes, FieldLayout(per_item=2 * SHARE_DIGEST_BYTES)]
    envelopes: Annotated[bytes, _ENVELOPES]


@dataclass(frozen=True, kw_only=True)
class RoundStart(Message, kind=4, what="a plan with envelopes", down=True, most=_count_neighbours):
    """Content of a round's sum: dimension, the application's context, participants."""

    dimension: Annotated[int, FieldLayout(4)]
    context: Annotated[bytes, FieldLayout(32)]
    participants: Annotated[bytes, _OF_PARTIES]
    envelopes: Annotated[bytes, _ENVELOPES]


@dataclass(frozen=True, kw_only=True)
class Vector(Message, kind=5):
    """Masked vector of little-endian words, followed by halves of masks (`party_key_setup`).

    It is uniform to all who lack one of its masks. Its body is not split into fields, so it is the
    only one that is not copied.
    """

    payload: Bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Survivors(Message, kind=6, what="survivors", down=True):
    """Parties whose vectors are in the sum."""

    survivors: Annotated[bytes, _OF_PARTIES]


@dataclass(frozen=True, kw_only=True)
class Confirm(Message, kind=7, what="a signature"):
    """A party's signature of the survivors' list. It signs one list per round."""

    signature: Annotated[bytes, _SIGNATURE]


@dataclass(frozen=True, kw_only=True)
class Confirmations(Message, kind=8, what="signatures", down=True, most=_count_parties):
    """Parties that signed the survivors' list, with their signatures; the same for each party."""

    signers: Annotated[bytes, _OF_PARTIES]
    signatures: Annotated[bytes, FieldLayout(per_item=SIGNATURE_BYTES)]


@dataclass(frozen=True, kw_only=True)
class Reveal(Message, kind=9, what="secrets", most=lambda run: 2 * run.degree):
    """The sender's self seed and, per participating neighbour, the secrets that the list allows.

    For a survivor: a share of its self seed. For a dropped party: the pair's key of this round and
    a share of its recovery secret. Never shares of both secrets of one party. If a share could not
    be opened, its bytes are zero and the neighbour's bit in `opened` is 0.
    """

    seed: Annotated[bytes, FieldLayout(SECRET_BYTES)] = field(repr=False)
    opened: Annotated[bytes, _OF_NEIGHBOURS]
    secrets: Annotated[bytes, FieldLayout(per_item=SECRET_BYTES)] = field(repr=False)


AnyMessage = TypeVar("AnyMessage", bound=Message)


_HEADER = struct.Struct(">BB8sII")
_VERSION = 3


def encode_header(run: RunParameters, kind: int, sender: int, round_number: int) -> bytes:
    """Return the first 18 bytes of a message."""
    return _HEADER.pack(_VERSION, kind, run.tag, sender, round_number)


def encode(run: RunParameters, message: Message) -> bytes:
    """Return a message of a run as bytes."""
    header = encode_header(run, message.kind, message.sender, message.round_number)
    return header + message.encode_body()


def read_sender(data: Bytes) -> int:
    """Return the sender that a message claims, before any other field is read."""
    if len(data) < HEADER_BYTES:
        raise RemoteProtocolError(f"Expected at least {HEADER_BYTES} bytes, got {len(data)}.")
    result: int = _HEADER.unpack_from(data)[3]
    return result


def read_kind(data: Bytes) -> int:
    """Return the kind that a message claims; 0 if it is too short to have one."""
    return data[1] if len(data) >= HEADER_BYTES else 0


def decode(run: RunParameters, data: Bytes, expected: type[AnyMessage]) -> AnyMessage:
    """Parse `data` as a message of kind `expected`.

    Raises:
        RemoteProtocolError: not bytes, truncated, another version, kind or run, a sender outside
            the roster, or a body of the wrong length.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise RemoteProtocolError(f"Expected bytes, got {type(data).__name__}.")
    sender = read_sender(data)
    version, kind, tag, _, round_number = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise RemoteProtocolError(f"Expected version {_VERSION}, got {version}.")
    if kind != expected.kind:
        raise RemoteProtocolError(f"Expected kind {expected.kind}, got {kind}.")
    if tag != run.tag:
        raise RemoteProtocolError("Expected a message of this run, got one of another run.")
    if (sender == SERVER) != expected.down or not (expected.down or sender < run.parties):
        who = "the server" if expected.down else f"a party from 0 to {run.parties - 1}"
        raise RemoteProtocolError(f"Expected {who} as sender, got {sender}.")
    if (round_number == 0) != expected.set_up:
        wanted = "round 0" if expected.set_up else "a round above 0"
        raise RemoteProtocolError(f"Expected {wanted}, got {round_number}.")
    base = {"sender": sender, "round_number": round_number}
    body = memoryview(data)[HEADER_BYTES:]
    if expected is Vector:
        word = run.ring_bits // 8
        if len(body) == 0 or len(body) % word:
            raise RemoteProtocolError(f"Expected words of {word} bytes, got {len(body)} bytes.")
        return cast(AnyMessage, Vector(payload=body, **base))
    return expected(**base, **_split(run, expected, round_number, body))


def _find_field_layouts(kind: type[Message]) -> dict[str, tuple[type, FieldLayout]]:
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: (hint.__origin__, hint.__metadata__[0])
        for name, hint in hints.items()
        if hasattr(hint, "__metadata__")
    }


_FIELD_LAYOUTS = {kind: _find_field_layouts(kind) for kind in Message.__subclasses__()}
"""Type and layout of each field in order, by kind of message."""


def _split(
    run: RunParameters, kind: type[Message], number: int, body: memoryview
) -> dict[str, Any]:
    """Split a body into its fields."""

    def size_of(size: Size) -> int:
        return size if isinstance(size, int) else size(run, number)

    laid = [
        (name, form, size_of(part.size), size_of(part.per_item))
        for name, (form, part) in _FIELD_LAYOUTS[kind].items()
    ]
    fixed, item = sum(size for *_, size, _ in laid), sum(each for *_, each in laid)
    rest, most = len(body) - fixed, kind.most(run)
    count = rest // item if item else 0
    if rest != count * item or not 0 <= count <= most:
        length = f"{fixed} bytes"
        if item:
            length = f"{item} bytes each, at most {most} after {length}"
        raise RemoteProtocolError(f"Expected {kind.what}, {length}, got {len(body)} bytes.")
    out: dict[str, Any] = {}
    at = 0
    for name, form, size, each in laid:
        piece = bytes(body[at : at + size + each * count])
        at += len(piece)
        out[name] = int.from_bytes(piece, "big") if form is int else piece
    return out


def split_kem_items(items: bytes) -> list[tuple[bytes, bytes]]:
    """Return (ciphertext, tag) of each item."""
    pieces = [items[at : at + KEM_ITEM_BYTES] for at in range(0, len(items), KEM_ITEM_BYTES)]
    return [(piece[:-TAG_BYTES], piece[-TAG_BYTES:]) for piece in pieces]


def split_nonces(run: RunParameters, committed: bytes, nonces: bytes) -> dict[int, bytes]:
    """Return the nonces by party, for the parties in a mask."""
    places = np.flatnonzero(unpack_mask(committed, run.parties)).tolist()
    if len(nonces) != NONCE_BYTES * len(places):
        raise RemoteProtocolError(
            f"Expected {len(places)} nonces, got {len(nonces) // NONCE_BYTES}."
        )
    return {i: nonces[n * NONCE_BYTES : (n + 1) * NONCE_BYTES] for n, i in enumerate(places)}
