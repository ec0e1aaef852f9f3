"""Masks: pseudorandom vectors of Z/2^b, expanded from a key and added in place.

The mask of a key is its AES-256-CTR keystream as little-endian words. Piece p (256 KiB: it stays in
cache with the part of the vector it is added to) starts at counter block `p as 96 bits ‖ 2`, so
that pieces can be made in any order, or in threads. Pieces are the outer loop, keys the inner one:
the vector passes through memory once, not once per neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.encoding import Ring
from parley.secure_agg.primitives import keystream

PIECE_BYTES = 1 << 18
_ZEROS = memoryview(bytes(PIECE_BYTES))
_TAG = 16
_LINE = 64


def aligned(size: int, start: int = 0) -> NDArray[np.uint8]:
    """`[size]` bytes of which number `start` begins a cache line: words added there take half."""
    raw = np.empty(size + _LINE - 1, dtype=np.uint8)
    first = -(raw.ctypes.data + start) % _LINE
    return raw[first : first + size]


def add_masks(vector: Ring, plus: Sequence[bytes], minus: Sequence[bytes]) -> None:
    """Add the masks of some keys to a vector and subtract those of others, in place."""
    signs = [(0, 1, key) for key in plus] + [(0, -1, key) for key in minus]
    add_shared_masks([vector], signs, [])


def add_shared_masks(
    vectors: Sequence[Ring],
    alone: Sequence[tuple[int, int, bytes]],
    edges: Sequence[tuple[int, int, bytes]],
) -> None:
    """Mask several vectors of one process, expanding the key of an edge between two of them once.

    Args:
        vectors: B vectors `[d]`, changed in place.
        alone: (row, +1 or −1, key) of masks that one row has.
        edges: (row that adds, row that subtracts, key).
    """
    if not vectors:
        return
    size, count, dtype = vectors[0].nbytes, vectors[0].size, vectors[0].dtype
    single = [
        (row, np.add if sign > 0 else np.subtract, keystream(key, size)) for row, sign, key in alone
    ]
    paired = [(row, other, keystream(key, size)) for row, other, key in sorted(edges)]
    # One buffer that every mask is expanded into, piece by piece.
    buffer = aligned(min(size, PIECE_BYTES) + _TAG)
    step = PIECE_BYTES // dtype.itemsize
    for number, start in enumerate(range(0, count, step)):
        targets = [vector[start : start + step] for vector in vectors]
        length = targets[0].nbytes
        nonce = number.to_bytes(12, "big")  # each key meets each piece's number once
        zeros, into = _ZEROS[:length], buffer.data[: length + _TAG]
        words = buffer[:length].view(dtype.newbyteorder("<"))
        for row, operation, expand in single:
            expand(nonce, zeros, into)
            operation(targets[row], words, out=targets[row])
        for row, other, expand in paired:
            expand(nonce, zeros, into)
            np.add(targets[row], words, out=targets[row])
            np.subtract(targets[other], words, out=targets[other])
