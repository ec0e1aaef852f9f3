"""The messages between server and party: frames of bytes.

    "PLY1" | length of the head, 4 bytes | head, JSON | blobs, one after another

The head contains the kind, its fields and the length of every blob. No bytes follow the last blob.
A reply has the kind `answer` and a status: ok or refused. A refusal contains only its `Reason`
(`refusals`).

| request | head | blobs | blobs of an ok answer |
|---|---|---|---|
| inspect | what the run wants to learn from | | |
| propose | as join | components, or empty | |
| commit | | | commitment to the nonce of the next set-up |
| join | the whole run: parameters, task, plan | components, or empty | Advertise |
| roster | round to prepare | Roster, Nonces or empty | Encapsulated, Shares |
| prepare | round to prepare | Ciphertexts¹ or empty | Shares² |
| round | plan of this round | Plan, state, Ciphertexts¹ or empty | Vector, Shares² |
| prove | | a round's Plan, Survivors, Confirmations | Evidence |
| survivors | | Survivors | Confirm |
| confirmations | | Confirmations | Reveal |
| finish | | | |

¹ until the pair secrets are complete. ² or only a Complaint about Ciphertexts.

    >>> frame = MessageFrame(kind="finish", head={"session": "0a"}, blobs=(b"xy",))
    >>> decode_frame(encode_frame(frame)) == frame
    True
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from parley.client.contract.refusals import Declined, Reason, decline_errors
from parley.client.contract.strict_decoding import (
    DecodingError,
    decode_dataclass,
    decode_value,
    format_received,
    parse_strict_json,
)

WIRE_VERSION = 7
"""Version of all messages. Sides with the same number work together, whatever their releases.

Change it with any change of a message, a plan or an agreement: `tests/vectors/wire-7.txt` contains
the messages of this number.
"""
MAX_REQUEST_BYTES = 1 << 30
"""Maximum bytes of a request. A larger request is refused unread."""

_DATA: dict[str, Any] = {"dataset": str, "label": str, "intercept": bool, "features": object}
_SESSION: dict[str, Any] = {"session": str}
_PREPARE: dict[str, Any] = {**_SESSION, "prepare": int}
_JOIN = {"parameters": str, "schema": str, "rounds": int, "task": object, "plan": object}
REQUESTS: dict[str, tuple[dict[str, Any], int]] = {
    "inspect": ({"run": str, **_DATA, "blocks": tuple[str, ...], "sizes": bool, "clock": float}, 0),
    "propose": ({"run": str, **_SESSION, **_DATA, **_JOIN}, 1),
    "commit": (_SESSION, 0),
    "join": ({"run": str, **_SESSION, **_DATA, **_JOIN}, 1),
    "roster": (_PREPARE, 2),
    "prepare": (_PREPARE, 1),
    "round": ({**_PREPARE, "plan": object}, 3),
    "prove": (_SESSION, 3),
    "survivors": (_SESSION, 1),
    "confirmations": (_SESSION, 1),
    "finish": (_SESSION, 0),
}
"""Per kind of request: its head's keys (in addition to `version`) with their types, and its number
of blobs. The code that computes with an `object` decodes it.
"""

_MAGIC = b"PLY1"
_MAX_HEAD_BYTES = 1 << 18
_MAX_BLOBS = 4
_START = len(_MAGIC) + 4


class WireError(ValueError):
    """Error for bytes that are not a frame, or not the expected frame. It never carries content."""


class Status(StrEnum):
    """Status of a party's response."""

    OK = "ok"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True)
class MessageFrame:
    """One message.

    Attributes:
        kind: a key of `REQUESTS`, or `answer`.
    """

    kind: str
    head: Mapping[str, Any]
    blobs: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True, kw_only=True)
class _Outer:
    """A frame's JSON. The code that handles its kind checks the head's values."""

    kind: str
    head: Mapping[str, object]
    blobs: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.kind not in (*REQUESTS, "answer"):
            raise ValueError(f"Expected a known kind of frame, got {format_received(self.kind)}.")
        if len(self.blobs) > _MAX_BLOBS or min(self.blobs, default=0) < 0:
            raise ValueError(f"Expected the lengths of at most {_MAX_BLOBS} blobs, got others.")


def build_response(
    head: Mapping[str, Any] | None = None, blobs: tuple[bytes, ...] = ()
) -> MessageFrame:
    """Build an ok answer."""
    head = {"version": WIRE_VERSION, "status": str(Status.OK), **(head or {})}
    return MessageFrame(kind="answer", head=head, blobs=blobs)


def build_refusal(reason: Reason) -> MessageFrame:
    """Build an answer that declines."""
    head = {"version": WIRE_VERSION, "status": str(Status.REFUSED), "reason": str(reason)}
    return MessageFrame(kind="answer", head=head)


def encode_frame(frame: MessageFrame) -> bytes:
    """Return a frame as bytes.

    Raises:
        ValueError: the head has values that JSON lacks, such as NaN. This is a bug in Parley.
    """
    outer = {"kind": frame.kind, "head": dict(frame.head), "blobs": [len(b) for b in frame.blobs]}
    text = json.dumps(outer, allow_nan=False, separators=(",", ":"), sort_keys=True)
    head = text.encode()
    return b"".join([_MAGIC, len(head).to_bytes(4, "big"), head, *frame.blobs])


def decode_frame(data: bytes) -> MessageFrame:
    """Return the frame in `data`.

    Raises:
        WireError: `data` is not a frame.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise WireError(f"Expected bytes, got {type(data).__name__}.")
    data = bytes(data)
    if len(data) < _START or data[: len(_MAGIC)] != _MAGIC:
        raise WireError(f"Expected a frame that starts with {_MAGIC!r}, got {len(data)} bytes.")
    size = int.from_bytes(data[len(_MAGIC) : _START], "big")
    if size > _MAX_HEAD_BYTES or _START + size > len(data):
        raise WireError(f"Expected a head of at most {_MAX_HEAD_BYTES} bytes, whole, got {size}.")
    try:
        outer = decode_dataclass(_Outer, parse_strict_json(data[_START : _START + size]))
    except ValueError as error:
        raise WireError(str(error)) from None
    whole = _START + size + sum(outer.blobs)
    if whole != len(data):
        raise WireError(f"Expected {whole} bytes in a frame, got {len(data)}.")
    blobs, at = [], _START + size
    for length in outer.blobs:
        blobs.append(data[at : at + length])
        at += length
    return MessageFrame(kind=outer.kind, head=outer.head, blobs=tuple(blobs))


def parse_request(data: bytes) -> MessageFrame:
    """Return the request in `data`. Its head has exactly the keys and types in `REQUESTS`.

    Raises:
        Declined: version, or protocol if it is malformed.
    """
    with decline_errors(Reason.PROTOCOL, (WireError, DecodingError)):
        if len(data) > MAX_REQUEST_BYTES:
            raise WireError(f"Expected at most {MAX_REQUEST_BYTES} bytes, got {len(data)}.")
        frame = decode_frame(data)
        if frame.kind not in REQUESTS:
            raise WireError(f"Expected a request, got {frame.kind!r:.40}.")
        version = frame.head.get("version")
        if type(version) is not int or version != WIRE_VERSION:
            raise Declined(Reason.VERSION, f"Expected version {WIRE_VERSION}, got {version!r:.40}.")
        hints, blobs = REQUESTS[frame.kind]
        if set(frame.head) != {*hints, "version"} or len(frame.blobs) != blobs:
            expected = f"Expected {sorted([*hints, 'version'])} and {blobs} blobs with {frame.kind}"
            raise WireError(f"{expected}, got {sorted(frame.head)!s:.200} and {len(frame.blobs)}.")
        for key, hint in hints.items():
            decode_value(hint, frame.head[key], key)
    return frame
