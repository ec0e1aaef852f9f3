"""The messages, as bytes: versioned, of exact length, with one encoding each.

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

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.beacon import NONCE_BYTES
from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.outcome import (
    COMMITMENT_BYTES,
    ENVELOPE_BYTES,
    HEADER_BYTES,
    KEM_ITEM_BYTES,
    PLAN_FIXED_BYTES,
    SECRET_BYTES,
    SHARE_DIGEST_BYTES,
    SIGNATURE_BYTES,
    TAG_BYTES,
    mask_bytes,
)
from parley.secure_agg.parameters import RunParameters
from parley.secure_agg.primitives import KEM_SEED_BYTES

__all__ = ["SERVER", "Advertise", "Confirm", "Confirmations", "Message", "Nonces", "RoundStart"]
__all__ += ["Ciphertexts", "Complaint", "Encapsulated", "Evidence", "kem_items", "kind_of"]
__all__ += [
    "Reveal",
    "Roster",
    "Shares",
    "Survivors",
    "Vector",
    "decode",
    "encode",
    "header",
    "pack_mask",
]
__all__ += ["nonces_by_party", "sender_of", "unpack_mask"]

SERVER = 2**32 - 1
_HEADER = struct.Struct(">BB8sII")
_VERSION = 3
_SIGNED = NONCE_BYTES + SIGNATURE_BYTES
_SHARES_FIXED = COMMITMENT_BYTES + TAG_BYTES
_PER_SHARE = 2 * SHARE_DIGEST_BYTES + ENVELOPE_BYTES

Bytes = bytes | memoryview


@dataclass(frozen=True, kw_only=True)
class Message:
    """Sender and round; bodies are raw fields whose contents the state machines check."""

    kind: ClassVar[int] = 0
    sender: int
    round_number: int

    def body(self) -> bytes:
        """The bytes after the header."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Advertise(Message):
    """A party's public keys of the run, signed by its identity."""

    kind = 1
    key: bytes
    nonce: bytes
    signature: bytes

    def body(self) -> bytes:
        """See the table."""
        return self.key + self.nonce + self.signature


@dataclass(frozen=True, kw_only=True)
class Roster(Message):
    """Who is there, and the signed public keys of the receiver's neighbours."""

    kind = 2
    present: bytes
    entries: bytes

    def body(self) -> bytes:
        """See the table."""
        return self.present + self.entries


@dataclass(frozen=True, kw_only=True)
class Encapsulated(Message):
    """A ciphertext and its tag for every present neighbour."""

    kind = 11
    items: bytes

    def body(self) -> bytes:
        """See the table."""
        return self.items


@dataclass(frozen=True, kw_only=True)
class Ciphertexts(Message):
    """The ciphertexts of the receiver's neighbours, as far as they sent any."""

    kind = 12
    sent: bytes
    items: bytes

    def body(self) -> bytes:
        """See the table."""
        return self.sent + self.items


@dataclass(frozen=True, kw_only=True)
class Complaint(Message):
    """Whose ciphertexts do not match what this party decapsulated. No vector goes with it."""

    kind = 13
    accused: bytes

    def body(self) -> bytes:
        """See the table."""
        return self.accused


@dataclass(frozen=True, kw_only=True)
class Evidence(Message):
    """The seed of a party's ML-KEM key: anyone can see what it decapsulates to. It has left."""

    kind = 14
    seed: bytes = field(repr=False)

    def body(self) -> bytes:
        """See the table."""
        return self.seed


@dataclass(frozen=True, kw_only=True)
class Shares(Message):
    """A party's secrets of one round, shared among its neighbours and sealed to each."""

    kind = 3
    commitments: bytes
    table: bytes
    digests: bytes
    envelopes: bytes

    def body(self) -> bytes:
        """See the table."""
        return self.commitments + self.table + self.digests + self.envelopes


@dataclass(frozen=True, kw_only=True)
class RoundStart(Message):
    """What a round sums: dimension, the application's context, who takes part."""

    kind = 4
    dimension: int
    context: bytes
    participants: bytes
    envelopes: bytes

    def body(self) -> bytes:
        """See the table."""
        fixed = self.dimension.to_bytes(4, "big") + self.context
        return fixed + self.participants + self.envelopes


@dataclass(frozen=True, kw_only=True)
class Vector(Message):
    """A masked vector. Uniform to whoever lacks a mask."""

    kind = 5
    payload: Bytes = field(repr=False)

    def body(self) -> bytes:
        """See the table."""
        return bytes(self.payload)


@dataclass(frozen=True, kw_only=True)
class Survivors(Message):
    """Whose vectors are in the sum."""

    kind = 6
    survivors: bytes

    def body(self) -> bytes:
        """See the table."""
        return self.survivors


@dataclass(frozen=True, kw_only=True)
class Confirm(Message):
    """A party's signature of the survivors' list, of which it signs one a round."""

    kind = 7
    signature: bytes

    def body(self) -> bytes:
        """See the table."""
        return self.signature


@dataclass(frozen=True, kw_only=True)
class Confirmations(Message):
    """Who signed the survivors' list; the same for everyone."""

    kind = 8
    signers: bytes
    signatures: bytes

    def body(self) -> bytes:
        """See the table."""
        return self.signers + self.signatures


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

    def body(self) -> bytes:
        """See the table."""
        return self.seed + self.opened + self.secrets


@dataclass(frozen=True, kw_only=True)
class Nonces(Message):
    """The nonces that the graph's beacon is made of; the same for everyone."""

    kind = 10
    committed: bytes
    nonces: bytes

    def body(self) -> bytes:
        """See the table."""
        return self.committed + self.nonces


AnyMessage = TypeVar("AnyMessage", bound=Message)


def header(run: RunParameters, kind: int, sender: int, round_number: int) -> bytes:
    """The first 18 bytes."""
    return _HEADER.pack(_VERSION, kind, run.tag, sender, round_number)


def sender_of(data: Bytes) -> int:
    """Whom a message says it is of, before anything else in it is looked at.

    Raises:
        RemoteProtocolError: too short for a message.
    """
    if len(data) < HEADER_BYTES:
        raise RemoteProtocolError(f"Expected at least {HEADER_BYTES} bytes, got {len(data)}.")
    sender: int = _HEADER.unpack_from(data)[3]
    return sender


def kind_of(data: Bytes) -> int:
    """Which kind of message it says it is; 0 where it is too short for one."""
    return data[1] if len(data) >= HEADER_BYTES else 0


def encode(run: RunParameters, message: Message) -> bytes:
    """A message of a run as bytes."""
    return header(run, message.kind, message.sender, message.round_number) + message.body()


def pack_mask(flags: NDArray[np.bool_]) -> bytes:
    """A bit mask over parties."""
    return np.packbits(flags).tobytes()


def unpack_mask(mask: bytes, count: int) -> NDArray[np.bool_]:
    """`[count]` flags of a bit mask.

    Raises:
        RemoteProtocolError: wrong length, or a spare bit is set.
    """
    if len(mask) != mask_bytes(count):
        raise RemoteProtocolError(
            f"Expected a mask of {mask_bytes(count)} bytes for {count} parties, got {len(mask)}."
        )
    flags = np.unpackbits(np.frombuffer(mask, dtype=np.uint8))
    if flags[count:].any():
        raise RemoteProtocolError(f"Expected spare bits 0 in a mask over {count} parties, got 1.")
    return flags[:count].view(np.bool_)


def nonces_by_party(run: RunParameters, committed: bytes, nonces: bytes) -> dict[int, bytes]:
    """The nonces of the parties in a mask.

    Raises:
        RemoteProtocolError: not one for each.
    """
    places = np.flatnonzero(unpack_mask(committed, run.parties)).tolist()
    if len(nonces) != NONCE_BYTES * len(places):
        raise RemoteProtocolError(
            f"Expected {len(places)} nonces, got {len(nonces) // NONCE_BYTES}."
        )
    return {i: nonces[n * NONCE_BYTES : (n + 1) * NONCE_BYTES] for n, i in enumerate(places)}


def decode(run: RunParameters, data: Bytes, expected: type[AnyMessage]) -> AnyMessage:
    """The message of kind `expected` in `data`.

    Raises:
        RemoteProtocolError: not bytes, truncated, another version, kind or run, a sender outside
            the roster, or a body whose length does not fit.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise RemoteProtocolError(f"Expected bytes, got {type(data).__name__}.")
    if len(data) < HEADER_BYTES:
        raise RemoteProtocolError(f"Expected at least {HEADER_BYTES} bytes, got {len(data)}.")
    version, kind, tag, sender, round_number = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise RemoteProtocolError(f"Expected version {_VERSION}, got {version}.")
    if kind != expected.kind:
        raise RemoteProtocolError(f"Expected kind {expected.kind}, got {kind}.")
    if tag != run.tag:
        raise RemoteProtocolError("Expected a message of this run, got one of another run.")
    from_server = expected in _DOWN
    if (sender == SERVER) != from_server or not (from_server or sender < run.parties):
        who = "the server" if from_server else f"a party from 0 to {run.parties - 1}"
        raise RemoteProtocolError(f"Expected {who} as sender, got {sender}.")
    in_round = expected not in _SET_UP
    if (round_number > 0) != in_round:
        raise RemoteProtocolError(
            f"Expected a round {'above' if in_round else 'of'} 0, got {round_number}."
        )
    base = {"sender": sender, "round_number": round_number}
    body = memoryview(data)[HEADER_BYTES:]
    if expected is Vector:
        if len(body) == 0 or len(body) % (run.ring_bits // 8):
            raise RemoteProtocolError(
                f"Expected whole words of {run.ring_bits // 8} bytes, got {len(body)} bytes."
            )
        return cast(AnyMessage, Vector(payload=body, **base))
    return cast(AnyMessage, _BODIES[expected](run, bytes(body), base))


def _advertise(run: RunParameters, body: bytes, base: dict[str, int]) -> Message:
    cut = run.key_bytes
    if len(body) != cut + _SIGNED:
        raise RemoteProtocolError(
            f"Expected signed keys of {run.key_exchange.algorithms}, {cut + _SIGNED} bytes, got "
            f"{len(body)}."
        )
    end = cut + NONCE_BYTES
    return Advertise(key=body[:cut], nonce=body[cut:end], signature=body[end:], **base)


def _roster(run: RunParameters, body: bytes, base: dict[str, int]) -> Message:
    cut, entry = mask_bytes(run.parties), run.key_bytes + _SIGNED
    if (len(body) - cut) % entry:
        raise RemoteProtocolError(
            f"Expected signed keys of {run.key_exchange.algorithms}, {entry} bytes each, in the "
            f"roster, got {len(body) - cut} bytes of them."
        )
    _whole(len(body) - cut, entry, run.degree)
    return Roster(present=body[:cut], entries=body[cut:], **base)


def _encapsulated(run: RunParameters, body: bytes, base: dict[str, int]) -> Message:
    _kem_whole(run, len(body))
    return Encapsulated(items=body, **base)


def _ciphertexts(run: RunParameters, body: bytes, base: dict[str, int]) -> Message:
    cut = mask_bytes(run.degree)
    _kem_whole(run, len(body) - cut)
    return Ciphertexts(sent=body[:cut], items=body[cut:], **base)


def _complaint(run: RunParameters, body: bytes, base: dict[str, int]) -> Message:
    _exact(len(body), mask_bytes(run.degree))
    return Complaint(accused=body, **base)


def _evidence(run: RunParameters, body: bytes, base: dict[str, int]) -> Message:
    del run
    _exact(len(body), KEM_SEED_BYTES)
    return Evidence(seed=body, **base)


def kem_items(items: bytes) -> list[tuple[bytes, bytes]]:
    """(ciphertext, tag) of each item."""
    pieces = [items[at : at + KEM_ITEM_BYTES] for at in range(0, len(items), KEM_ITEM_BYTES)]
    return [(piece[:-TAG_BYTES], piece[-TAG_BYTES:]) for piece in pieces]


def _kem_whole(run: RunParameters, got: int) -> None:
    if not run.hybrid:
        raise RemoteProtocolError(
            f"Expected no ciphertexts in a run of key-exchange {run.key_exchange}, got some."
        )
    if got < 0 or got % KEM_ITEM_BYTES:
        raise RemoteProtocolError(
            "Expected whole ML-KEM-768 ciphertexts of 1088 bytes, each with a tag of 16, got "
            f"{got} bytes of them."
        )
    _whole(got, KEM_ITEM_BYTES, run.degree)


def _shares(run: RunParameters, body: bytes, base: dict[str, int]) -> Message:
    entry = SECRET_BYTES * (1 + run.unpaired(base["round_number"]))
    count = _whole(len(body) - _SHARES_FIXED, entry + _PER_SHARE, run.degree)
    cut = _SHARES_FIXED + entry * count
    last = cut + 2 * SHARE_DIGEST_BYTES * count
    return Shares(
        commitments=body[:COMMITMENT_BYTES],
        table=body[COMMITMENT_BYTES:cut],
        digests=body[cut:last],
        envelopes=body[last:],
        **base,
    )


def _round_start(run: RunParameters, body: bytes, base: dict[str, int]) -> Message:
    cut = PLAN_FIXED_BYTES + mask_bytes(run.parties)
    _whole(len(body) - cut, ENVELOPE_BYTES, run.degree)
    return RoundStart(
        dimension=int.from_bytes(body[:4], "big"),
        context=body[4:PLAN_FIXED_BYTES],
        participants=body[PLAN_FIXED_BYTES:cut],
        envelopes=body[cut:],
        **base,
    )


def _survivors(run: RunParameters, body: bytes, base: dict[str, int]) -> Message:
    _exact(len(body), mask_bytes(run.parties))
    return Survivors(survivors=body, **base)


def _confirm(run: RunParameters, body: bytes, base: dict[str, int]) -> Message:
    del run
    _exact(len(body), SIGNATURE_BYTES)
    return Confirm(signature=body, **base)


def _confirmations(run: RunParameters, body: bytes, base: dict[str, int]) -> Message:
    cut = mask_bytes(run.parties)
    _whole(len(body) - cut, SIGNATURE_BYTES, run.parties)
    return Confirmations(signers=body[:cut], signatures=body[cut:], **base)


def _nonces(run: RunParameters, body: bytes, base: dict[str, int]) -> Message:
    cut = mask_bytes(run.parties)
    _whole(len(body) - cut, NONCE_BYTES, run.parties)
    return Nonces(committed=body[:cut], nonces=body[cut:], **base)


def _reveal(run: RunParameters, body: bytes, base: dict[str, int]) -> Message:
    cut = SECRET_BYTES + mask_bytes(run.degree)
    _whole(len(body) - cut, SECRET_BYTES, 2 * run.degree)
    return Reveal(seed=body[:32], opened=body[32:cut], secrets=body[cut:], **base)


def _exact(got: int, expected: int) -> None:
    if got != expected:
        raise RemoteProtocolError(f"Expected a body of {expected} bytes, got {got}.")


def _whole(got: int, item: int, most: int) -> int:
    if got < 0 or got % item or got // item > most:
        raise RemoteProtocolError(
            f"Expected at most {most} items of {item} bytes in the body, got {got} bytes for them."
        )
    return got // item


_DOWN = (Nonces, Roster, Ciphertexts, RoundStart, Survivors, Confirmations)
_SET_UP = (Advertise, Nonces, Roster, Encapsulated, Ciphertexts, Complaint, Evidence)
_BODIES: dict[type[Message], Callable[[RunParameters, bytes, dict[str, int]], Message]] = {
    Advertise: _advertise,
    Nonces: _nonces,
    Roster: _roster,
    Encapsulated: _encapsulated,
    Ciphertexts: _ciphertexts,
    Complaint: _complaint,
    Evidence: _evidence,
    Shares: _shares,
    RoundStart: _round_start,
    Survivors: _survivors,
    Confirm: _confirm,
    Confirmations: _confirmations,
    Reveal: _reveal,
}
