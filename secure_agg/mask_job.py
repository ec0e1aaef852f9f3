"""A vector on its way to being masked, in the buffer of the message that carries it."""

from __future__ import annotations

import numpy as np

from parley.secure_agg.encoding import Ring
from parley.secure_agg.masks import add_masks, aligned
from parley.secure_agg.outcome import HEADER_BYTES


class VectorBuffer:
    """A Vector message whose payload is filled in place: one copy of a vector, not three."""

    def __init__(self, head: bytes, vector: Ring, tail: bytes = b"") -> None:
        end = HEADER_BYTES + vector.nbytes
        raw = aligned(end + len(tail), start=HEADER_BYTES)
        raw[:HEADER_BYTES] = np.frombuffer(head, dtype=np.uint8)
        self.words: Ring = raw[HEADER_BYTES:end].view(vector.dtype.newbyteorder("<"))
        self.words[:] = vector
        raw[end:] = np.frombuffer(tail, dtype=np.uint8)
        self.message = raw.data


class MaskJob:
    """A vector on its way to being masked: the only holder of the unmasked copy.

    Attributes:
        buffer: holds the vector, masked in place.
        plus: keys whose masks are added; the self seed is the first in robust mode.
        minus: keys whose masks are subtracted.
    """

    __slots__ = ("buffer", "minus", "plus")

    def __init__(self, buffer: VectorBuffer, seed: bytes) -> None:
        self.buffer = buffer
        self.plus: list[bytes] = [seed] if seed else []
        self.minus: list[bytes] = []

    def run(self) -> memoryview:
        """Add the masks and give the message."""
        add_masks(self.buffer.words, self.plus, self.minus)
        return self.buffer.message
