"""Requests as they come: the frame, its version, and exactly the fields of its kind, typed.

>>> request_from(b"").kind  # doctest: +ELLIPSIS
Traceback (most recent call last):
    ...
parley.client.contract.protocol.Declined: protocol: Expected a frame that starts with b'PLY1'...
"""

from __future__ import annotations

from typing import Any

from parley.client.contract.decoding import DecodingError, value_from
from parley.client.contract.protocol import (
    WIRE_VERSION,
    Declined,
    Frame,
    Reason,
    WireError,
    decode_frame,
)

LARGEST_REQUEST = 1 << 30
"""Bytes of a request: a larger one is refused unread."""

_DATA: dict[str, Any] = {"dataset": str, "label": str, "intercept": bool, "features": object}
_SESSION: dict[str, Any] = {"session": str}
_PREPARE: dict[str, Any] = {**_SESSION, "prepare": int | None}
_JOIN = {"parameters": str, "schema": str, "rounds": int, "task": object, "plan": object}
_HEADS: dict[str, tuple[dict[str, Any], int]] = {
    "inspect": ({"run": str, **_DATA, "sizes": bool, "clock": float}, 0),
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
"""By kind of request: its number of blobs, and its head beside `version`, with types; an `object`
is decoded by whoever computes with it."""


def request_from(data: bytes) -> Frame:
    """The request in `data`, its head without unknown or missing keys, of values as `_HEADS` says.

    Raises:
        Declined: version or protocol.
    """
    if len(data) > LARGEST_REQUEST:
        raise Declined(
            Reason.PROTOCOL, f"Expected at most {LARGEST_REQUEST} bytes, got {len(data)}."
        )
    try:
        frame = decode_frame(data)
    except WireError as error:
        raise Declined(Reason.PROTOCOL, str(error)) from error
    if frame.kind not in _HEADS:
        raise Declined(Reason.PROTOCOL, f"Expected a request, got {frame.kind!r:.40}.")
    version = frame.head.get("version")
    if type(version) is not int or version != WIRE_VERSION:
        raise Declined(Reason.VERSION, f"Expected version {WIRE_VERSION}, got {version!r:.40}.")
    hints, blobs = _HEADS[frame.kind]
    if set(frame.head) != {*hints, "version"} or len(frame.blobs) != blobs:
        raise Declined(
            Reason.PROTOCOL,
            f"Expected {sorted([*hints, 'version'])} and {blobs} blobs with {frame.kind}, got "
            f"{sorted(frame.head)!s:.200} and {len(frame.blobs)}.",
        )
    try:
        for key, hint in hints.items():
            value_from(hint, frame.head[key], key)
    except DecodingError as error:
        raise Declined(Reason.PROTOCOL, str(error)) from error
    return frame
