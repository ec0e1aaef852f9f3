"""Messages as bytes: versioned, of exact length, with one encoding each.

How many items a message is about follows from the length of the whole; what is left over, or more
items than there are neighbours or parties, is refused before anything is copied.
"""

from __future__ import annotations

import struct
from typing import Any, cast, get_type_hints

import numpy as np

from parley.secure_agg.beacon import NONCE_BYTES
from parley.secure_agg.flags import unpack_mask
from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.messages import SERVER, AnyMessage, Bytes, Message, Part, Size, Vector
from parley.secure_agg.outcome import HEADER_BYTES, KEM_ITEM_BYTES, TAG_BYTES
from parley.secure_agg.parameters import RunParameters

_HEADER = struct.Struct(">BB8sII")
_VERSION = 3


def header(run: RunParameters, kind: int, sender: int, round_number: int) -> bytes:
    """The first 18 bytes."""
    return _HEADER.pack(_VERSION, kind, run.tag, sender, round_number)


def encode(run: RunParameters, message: Message) -> bytes:
    """A message of a run as bytes."""
    return header(run, message.kind, message.sender, message.round_number) + message.body()


def sender_of(data: Bytes) -> int:
    """Whom a message says it is of, before anything else in it is looked at."""
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
    sender = sender_of(data)
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
        which = "of" if expected.set_up else "above"
        raise RemoteProtocolError(f"Expected a round {which} 0, got {round_number}.")
    base = {"sender": sender, "round_number": round_number}
    body = memoryview(data)[HEADER_BYTES:]
    if expected is Vector:
        word = run.ring_bits // 8
        if len(body) == 0 or len(body) % word:
            raise RemoteProtocolError(f"Expected whole words of {word} bytes, got {len(body)}.")
        return cast(AnyMessage, Vector(payload=body, **base))
    return expected(**base, **_split(run, expected, round_number, body))


def _parts(kind: type[Message]) -> dict[str, tuple[type, Part]]:
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: (hint.__origin__, hint.__metadata__[0])
        for name, hint in hints.items()
        if hasattr(hint, "__metadata__")
    }


_PARTS = {kind: _parts(kind) for kind in Message.__subclasses__()}
"""By kind and field, in order: its type, and what it takes."""


def _split(
    run: RunParameters, kind: type[Message], number: int, body: memoryview
) -> dict[str, Any]:
    """The fields of a body."""
    if kind.hybrid and not run.hybrid:
        raise RemoteProtocolError(
            f"Expected no ciphertexts in a run of key-exchange {run.key_exchange}, got some."
        )

    def size_of(size: Size) -> int:
        return size if isinstance(size, int) else size(run, number)

    laid = [
        (name, form, size_of(part.size), size_of(part.each))
        for name, (form, part) in _PARTS[kind].items()
    ]
    fixed, item = sum(size for *_, size, _ in laid), sum(each for *_, each in laid)
    rest, most = len(body) - fixed, kind.most(run)
    count = rest // item if item else 0
    if rest != count * item or not 0 <= count <= most:
        length = f"{fixed} bytes"
        if item:
            length = f"{item} bytes each, at most {most} behind {length}"
        raise RemoteProtocolError(
            f"Expected {kind.what.format(run=run)}, {length}, got {len(body)}."
        )
    out: dict[str, Any] = {}
    at = 0
    for name, form, size, each in laid:
        piece = bytes(body[at : at + size + each * count])
        at += len(piece)
        out[name] = int.from_bytes(piece, "big") if form is int else piece
    return out


def kem_items(items: bytes) -> list[tuple[bytes, bytes]]:
    """(ciphertext, tag) of each item."""
    pieces = [items[at : at + KEM_ITEM_BYTES] for at in range(0, len(items), KEM_ITEM_BYTES)]
    return [(piece[:-TAG_BYTES], piece[-TAG_BYTES:]) for piece in pieces]


def nonces_by_party(run: RunParameters, committed: bytes, nonces: bytes) -> dict[int, bytes]:
    """The nonces of the parties in a mask."""
    places = np.flatnonzero(unpack_mask(committed, run.parties)).tolist()
    if len(nonces) != NONCE_BYTES * len(places):
        raise RemoteProtocolError(
            f"Expected {len(places)} nonces, got {len(nonces) // NONCE_BYTES}."
        )
    return {i: nonces[n * NONCE_BYTES : (n + 1) * NONCE_BYTES] for n, i in enumerate(places)}
