"""Sets of parties on the wire: a bit each, bit i of byte i // 8 from the top, spare bits zero.

>>> pack_mask(np.array([True, False, False, True])).hex()
'90'
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.outcome import mask_bytes


def pack_mask(flags: NDArray[np.bool_]) -> bytes:
    """A bit mask over parties."""
    return np.packbits(flags).tobytes()


def unpack_mask(mask: bytes, count: int) -> NDArray[np.bool_]:
    """`[count]` flags of a bit mask."""
    if len(mask) != mask_bytes(count):
        raise RemoteProtocolError(
            f"Expected a mask of {mask_bytes(count)} bytes for {count} parties, got {len(mask)}."
        )
    flags = np.unpackbits(np.frombuffer(mask, dtype=np.uint8))
    if flags[count:].any():
        raise RemoteProtocolError(f"Expected spare bits 0 in a mask over {count} parties, got 1.")
    return flags[:count].view(np.bool_)
