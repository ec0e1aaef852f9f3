"""Masks: pseudorandom vectors of Z/2^b, expanded from keys and added in place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.encoding import Ring
from parley.secure_agg.primitives import build_keystream

PIECE_BYTES = 1 << 18


_ZEROS = memoryview(bytes(PIECE_BYTES))


_TAG = 16


_LINE = 64


def allocate_aligned(size: int, start: int = 0) -> NDArray[np.uint8]:
    """Return `[size]` bytes in which byte `start` begins a cache line: adding words there is twice
    as fast.
    """
    raw = np.empty(size + _LINE - 1, dtype=np.uint8)
    first = -(raw.ctypes.data + start) % _LINE
    return raw[first : first + size]


def add_masks(vector: Ring, added_keys: Sequence[bytes], subtracted_keys: Sequence[bytes]) -> None:
    """Add the masks of some keys to a vector and subtract those of others, in place."""
    signs = [(0, 1, key) for key in added_keys] + [(0, -1, key) for key in subtracted_keys]
    add_shared_masks([vector], signs, [])


def add_shared_masks(
    vectors: Sequence[Ring],
    single_masks: Sequence[tuple[int, int, bytes]],
    edges: Sequence[tuple[int, int, bytes]],
) -> None:
    """Mask several vectors of one process; expand the key of an edge between two of them once.

    Args:
        vectors: B vectors `[d]`, changed in place.
        single_masks: (row, +1 or −1, key) of masks that only one row has.
        edges: (row that adds, row that subtracts, key).
    """
    if not vectors:
        return
    size, count, dtype = vectors[0].nbytes, vectors[0].size, vectors[0].dtype
    single = [
        (row, np.add if sign > 0 else np.subtract, build_keystream(key, size))
        for row, sign, key in single_masks
    ]
    paired = [(row, other, build_keystream(key, size)) for row, other, key in sorted(edges)]
    # Each mask is expanded into this one buffer, piece by piece.
    buffer = allocate_aligned(min(size, PIECE_BYTES) + _TAG)
    step = PIECE_BYTES // dtype.itemsize
    for number, start in enumerate(range(0, count, step)):
        targets = [vector[start : start + step] for vector in vectors]
        length = targets[0].nbytes
        nonce = number.to_bytes(12, "big")  # each key is used once with each piece's number
        zeros, into = _ZEROS[:length], buffer.data[: length + _TAG]
        words = buffer[:length].view(dtype.newbyteorder("<"))
        for row, operation, expand in single:
            expand(nonce, zeros, into)
            operation(targets[row], words, out=targets[row])
        for row, other, expand in paired:
            expand(nonce, zeros, into)
            np.add(targets[row], words, out=targets[row])
            np.subtract(targets[other], words, out=targets[other])
