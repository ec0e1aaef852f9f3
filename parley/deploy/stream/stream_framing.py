"""Frames on a stream: split into chunks by the sender, reassembled by the receiver.

A frame is a request or its reply. Each chunk is one gRPC message: a head with the number of its
request, then at most 1 MiB of the frame.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

CHUNK = 1 << 20
"""Bytes of a frame in one message."""

_HEAD = struct.Struct(">QQQI")
LARGEST_MESSAGE = CHUNK + _HEAD.size

PROBE = 0
"""Number of the empty request by which the server asks whether a party's first connection is alive.

The party answers immediately, even while it computes, and informs its owner of the second one.
"""

HEARTBEAT = 2**64 - 1
"""Number of the empty request that a party answers immediately, even while it computes."""


class EnvelopeError(ValueError):
    """Bytes that are not a chunk, or not the expected one. Never contains the content."""


@dataclass(frozen=True, kw_only=True)
class ReceivedFrame:
    """A received frame: its request's number, the time allowed for the reply, and its bytes."""

    number: int
    allowed_ms: int
    frame: bytes = field(repr=False)


def split_into_chunks(number: int, frame: bytes, *, allowed_ms: int = 0) -> Iterator[bytes]:
    """Yield the frame as messages of a stream. An empty frame is one message."""
    for offset in range(0, max(len(frame), 1), CHUNK):
        yield _HEAD.pack(number, len(frame), offset, allowed_ms) + frame[offset : offset + CHUNK]


class FrameReader:
    """Reassembles frames. `largest(number)` bounds the frame with that number; None refuses it."""

    def __init__(self, largest: Callable[[int], int | None]) -> None:
        self._largest = largest
        self._head: tuple[int, int, int] | None = None
        self._body = bytearray()

    def take(self, message: bytes) -> ReceivedFrame | None:
        """Return the frame that ends with this message, or None if it is not complete.

        Raises:
            EnvelopeError: not a chunk, not the next one, or of a frame that is unexpected or too
                long.
        """
        if len(message) < _HEAD.size:
            raise EnvelopeError(f"Expected a head of {_HEAD.size} bytes, got {len(message)}.")
        number, total, offset, allowed = _HEAD.unpack_from(message)
        if self._head is None:
            limit = self._largest(number)
            if limit is None:
                raise EnvelopeError(f"Expected a requested frame, once, got frame {number}.")
            if total > limit:
                raise EnvelopeError(f"Expected a frame of at most {limit} bytes, got {total}.")
            self._head = (number, total, allowed)
        elif (number, total, allowed) != self._head:
            raise EnvelopeError(
                f"Expected the next chunk of frame {self._head[0]}, got one of frame {number}."
            )
        if offset != len(self._body):
            raise EnvelopeError(f"Expected the chunk at {len(self._body)}, got that at {offset}.")
        size = len(message) - _HEAD.size
        if size != min(CHUNK, total - offset):
            expected = min(CHUNK, total - offset)
            raise EnvelopeError(f"Expected {expected} bytes in a chunk, got {size}.")
        if size == total:  # the only chunk: one copy
            self._head = None
            return ReceivedFrame(number=number, allowed_ms=allowed, frame=message[_HEAD.size :])
        self._body += memoryview(message)[_HEAD.size :]
        if len(self._body) < total:
            return None
        whole = ReceivedFrame(number=number, allowed_ms=allowed, frame=bytes(self._body))
        self._head, self._body = None, bytearray()
        return whole
