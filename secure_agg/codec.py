"""Messages as bytes: versioned, of exact length, with one encoding each.

`LAYOUTS` says for each kind what its fields take: a number of bytes each, and a number more for
each of n items that the message is about. n follows from the length of the whole; what is left
over, or more items than there are neighbours or parties, is refused before anything is copied.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

from parley.secure_agg.beacon import NONCE_BYTES
from parley.secure_agg.flags import unpack_mask
from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.messages import (
    SERVER,
    Advertise,
    AnyMessage,
    Bytes,
    Ciphertexts,
    Complaint,
    Confirm,
    Confirmations,
    Encapsulated,
    Evidence,
    Message,
    Nonces,
    Reveal,
    Roster,
    RoundStart,
    Shares,
    Survivors,
    Vector,
)
from parley.secure_agg.outcome import (
    COMMITMENT_BYTES,
    ENVELOPE_BYTES,
    HEADER_BYTES,
    KEM_ITEM_BYTES,
    SECRET_BYTES,
    SHARE_DIGEST_BYTES,
    SIGNATURE_BYTES,
    TAG_BYTES,
    mask_bytes,
)
from parley.secure_agg.parameters import RunParameters
from parley.secure_agg.primitives import KEM_SEED_BYTES

_HEADER = struct.Struct(">BB8sII")
_VERSION = 3


class Layout(NamedTuple):
    """What a body is made of.

    Attributes:
        what: words for an error.
        parts: by field, in order: bytes, and bytes more for each item.
        most: items.
    """

    what: str
    parts: dict[str, tuple[int, int]]
    most: int = 0


_Laid = Callable[[RunParameters, int], Layout]


def _signed(run: RunParameters) -> str:
    return f"signed keys of {run.key_exchange.algorithms}"


def _items(run: RunParameters, parts: dict[str, tuple[int, int]]) -> Layout:
    if not run.hybrid:
        raise RemoteProtocolError(
            f"Expected no ciphertexts in a run of key-exchange {run.key_exchange}, got some."
        )
    what = "whole ML-KEM-768 ciphertexts of 1088 bytes, with a tag of 16"
    return Layout(what, {**parts, "items": (0, KEM_ITEM_BYTES)}, run.degree)


def _advertise(run: RunParameters, _: int) -> Layout:
    parts = {"key": (run.key_bytes, 0), "nonce": (NONCE_BYTES, 0)}
    return Layout(_signed(run), {**parts, "signature": (SIGNATURE_BYTES, 0)})


def _nonces(run: RunParameters, _: int) -> Layout:
    parts = {"committed": (mask_bytes(run.parties), 0), "nonces": (0, NONCE_BYTES)}
    return Layout("nonces", parts, run.parties)


def _roster(run: RunParameters, _: int) -> Layout:
    entry = run.key_bytes + NONCE_BYTES + SIGNATURE_BYTES
    parts = {"present": (mask_bytes(run.parties), 0), "entries": (0, entry)}
    return Layout(_signed(run), parts, run.degree)


def _shares(run: RunParameters, number: int) -> Layout:
    entry = SECRET_BYTES * (1 + run.unpaired(number))
    parts = {
        "commitments": (COMMITMENT_BYTES, 0),
        "table": (TAG_BYTES, entry),
        "digests": (0, 2 * SHARE_DIGEST_BYTES),
        "envelopes": (0, ENVELOPE_BYTES),
    }
    return Layout("shares", parts, run.degree)


def _round_start(run: RunParameters, _: int) -> Layout:
    parts = {
        "dimension": (4, 0),
        "context": (32, 0),
        "participants": (mask_bytes(run.parties), 0),
        "envelopes": (0, ENVELOPE_BYTES),
    }
    return Layout("a plan with envelopes", parts, run.degree)


def _confirmations(run: RunParameters, _: int) -> Layout:
    parts = {"signers": (mask_bytes(run.parties), 0), "signatures": (0, SIGNATURE_BYTES)}
    return Layout("signatures", parts, run.parties)


def _reveal(run: RunParameters, _: int) -> Layout:
    parts = {"seed": (SECRET_BYTES, 0), "opened": (mask_bytes(run.degree), 0)}
    return Layout("secrets", {**parts, "secrets": (0, SECRET_BYTES)}, 2 * run.degree)


LAYOUTS: dict[type[Message], _Laid] = {
    Advertise: _advertise,
    Nonces: _nonces,
    Roster: _roster,
    Encapsulated: lambda run, _: _items(run, {}),
    Ciphertexts: lambda run, _: _items(run, {"sent": (mask_bytes(run.degree), 0)}),
    Complaint: lambda run, _: Layout("the accused", {"accused": (mask_bytes(run.degree), 0)}),
    Evidence: lambda _run, _: Layout("a seed", {"seed": (KEM_SEED_BYTES, 0)}),
    Shares: _shares,
    RoundStart: _round_start,
    Survivors: lambda run, _: Layout("survivors", {"survivors": (mask_bytes(run.parties), 0)}),
    Confirm: lambda _run, _: Layout("a signature", {"signature": (SIGNATURE_BYTES, 0)}),
    Confirmations: _confirmations,
    Reveal: _reveal,
}
"""All but Vector, whose payload is not copied."""
_DOWN = (Nonces, Roster, Ciphertexts, RoundStart, Survivors, Confirmations)
_SET_UP = (Advertise, Nonces, Roster, Encapsulated, Ciphertexts, Complaint, Evidence)


def header(run: RunParameters, kind: int, sender: int, round_number: int) -> bytes:
    """The first 18 bytes."""
    return _HEADER.pack(_VERSION, kind, run.tag, sender, round_number)


def encode(run: RunParameters, message: Message) -> bytes:
    """A message of a run as bytes."""
    return header(run, message.kind, message.sender, message.round_number) + message.body()


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
    return expected(**base, **_split(LAYOUTS[expected](run, round_number), body))


def _split(layout: Layout, body: memoryview) -> dict[str, Any]:
    """The fields of a body."""
    fixed = sum(size for size, _ in layout.parts.values())
    item = sum(each for _, each in layout.parts.values())
    rest = len(body) - fixed
    count = rest // item if item else 0
    if rest != count * item or not 0 <= count <= layout.most:
        length = f"{fixed} bytes"
        if item:
            length = f"{item} bytes each, at most {layout.most} behind {length}"
        raise RemoteProtocolError(f"Expected {layout.what}, {length}, got {len(body)}.")
    out: dict[str, Any] = {}
    at = 0
    for name, (size, each) in layout.parts.items():
        piece = bytes(body[at : at + size + each * count])
        at += len(piece)
        out[name] = int.from_bytes(piece, "big") if name == "dimension" else piece
    return out


def kem_items(items: bytes) -> list[tuple[bytes, bytes]]:
    """(ciphertext, tag) of each item."""
    pieces = [items[at : at + KEM_ITEM_BYTES] for at in range(0, len(items), KEM_ITEM_BYTES)]
    return [(piece[:-TAG_BYTES], piece[-TAG_BYTES:]) for piece in pieces]


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
