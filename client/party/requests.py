"""Requests as they come: the frame, its version, and exactly the fields of its kind.

>>> request_from(b"").kind  # doctest: +ELLIPSIS
Traceback (most recent call last):
    ...
parley.client.contract.protocol.Declined: protocol: Expected a frame that starts with b'PLY1'...
"""

from __future__ import annotations

from typing import Any

from parley.client.contract.protocol import (
    WIRE_VERSION,
    Declined,
    Frame,
    Reason,
    WireError,
    decode_frame,
)

__all__ = ["LARGEST_REQUEST", "request_from", "round_or_none"]

LARGEST_REQUEST = 1 << 30
"""Bytes of a request: a larger one is refused unread."""

_KEYS: dict[str, tuple[frozenset[str], int]] = {
    "inspect": (
        frozenset({"run", "dataset", "label", "intercept", "features", "sizes", "clock"}),
        0,
    ),
    "commit": (frozenset({"session"}), 0),
    "join": (
        frozenset(
            {"run", "session", "parameters", "dataset", "label", "intercept", "task", "plan"}
            | {"rounds", "schema", "features"}
        ),
        1,
    ),
    "roster": (frozenset({"session", "prepare"}), 2),
    "prepare": (frozenset({"session", "prepare"}), 1),
    "round": (frozenset({"session", "plan", "prepare"}), 3),
    "prove": (frozenset({"session"}), 3),
    "survivors": (frozenset({"session"}), 1),
    "confirmations": (frozenset({"session"}), 1),
    "finish": (frozenset({"session"}), 0),
}
"""By kind of request: the keys of its head beside `version`, and its number of blobs."""


def request_from(data: bytes) -> Frame:
    """The request in `data`, its head without unknown or missing keys.

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
    if frame.kind not in _KEYS:
        raise Declined(Reason.PROTOCOL, f"Expected a request, got {frame.kind!r:.40}.")
    version = frame.head.get("version")
    if type(version) is not int or version != WIRE_VERSION:
        raise Declined(Reason.VERSION, f"Expected version {WIRE_VERSION}, got {version!r:.40}.")
    keys, blobs = _KEYS[frame.kind]
    if set(frame.head) != keys | {"version"} or len(frame.blobs) != blobs:
        raise Declined(
            Reason.PROTOCOL,
            f"Expected {sorted(keys | {'version'})} and {blobs} blobs with {frame.kind}, got "
            f"{sorted(frame.head)!s:.200} and {len(frame.blobs)}.",
        )
    return frame


def round_or_none(value: Any) -> int | None:
    """The round that a request wants prepared, or None.

    Raises:
        Declined: protocol.
    """
    if value is not None and type(value) is not int:
        raise Declined(Reason.PROTOCOL, f"Expected a round to prepare or null, got {value!r:.40}.")
    return value
