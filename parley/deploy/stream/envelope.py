"""Frames in chunks: what a stream carries, with the number of the request that each belongs to.

    number, 8 bytes | total, 8 | offset, 8 | allowed, 4 | at most 1 MiB of the frame

A frame is read only as far as its reader allows: the first chunk says how long it is, before
anything is kept, and nothing but the next chunk of the same frame may follow. See `parley.proto`.

    >>> reader = Reader(lambda number: 3 if number == 7 else None)
    >>> [chunk] = chunks(7, b"abc", allowed_ms=50)
    >>> reader.take(chunk)
    Whole(number=7, allowed_ms=50)
    >>> reader.take(chunk[:-1])
    Traceback (most recent call last):
        ...
    parley.deploy.stream.envelope.EnvelopeError: Expected 3 bytes in a chunk, got 2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

CHUNK = 1 << 20
"""Bytes of a frame that travel together."""

_HEAD = struct.Struct(">QQQI")
LARGEST_MESSAGE = CHUNK + _HEAD.size


class EnvelopeError(ValueError):
    """Bytes that are no chunk, or not the one that had to come. Never carries content."""


@dataclass(frozen=True, kw_only=True)
class Whole:
    """A frame that has come: which request's, what it allows for the reply, its bytes."""

    number: int
    allowed_ms: int
    frame: bytes = field(repr=False)


def chunks(number: int, frame: bytes, *, allowed_ms: int = 0) -> Iterator[bytes]:
    """The frame as messages of a stream; an empty frame is one of them."""
    for offset in range(0, max(len(frame), 1), CHUNK):
        head = _HEAD.pack(number, len(frame), offset, allowed_ms)
        yield head + frame[offset : offset + CHUNK]


class Reader:
    """Puts frames together; `largest(number)` bounds the frame of that number, None refuses it."""

    def __init__(self, largest: Callable[[int], int | None]) -> None:
        self._largest = largest
        self._head: tuple[int, int, int] | None = None
        self._body = bytearray()

    def take(self, message: bytes) -> Whole | None:
        """The frame that ends with this message, None where more of it has to come.

        Raises:
            EnvelopeError: no chunk, one of a frame that is not expected or too long, or not the
                next one.
        """
        if len(message) < _HEAD.size:
            raise EnvelopeError(f"Expected a head of {_HEAD.size} bytes, got {len(message)}.")
        number, total, offset, allowed = _HEAD.unpack_from(message)
        if self._head is None:
            limit = self._largest(number)
            if limit is None:
                raise EnvelopeError(
                    f"Expected a frame that was asked for, once, got frame {number}."
                )
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
        self._body += memoryview(message)[_HEAD.size :]
        if len(self._body) < total:
            return None
        whole = Whole(number=number, allowed_ms=allowed, frame=bytes(self._body))
        self._head, self._body = None, bytearray()
        return whole
