"""Uniform integers below n, exact: a word beyond the last whole multiple of n is drawn again.

>>> from parley.privacy.sampling.stream import NoiseStream
>>> integers_below(6, 8, NoiseStream.from_seed(1)).tolist()
[2, 0, 4, 0, 2, 5, 3, 4]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parley.privacy.sampling.inversion import check_size
from parley.privacy.sampling.stream import NoiseStream


def integers_below(bound: int, size: int, stream: NoiseStream) -> NDArray[np.int64]:
    """`[size]` independent uniform integers of 0 … bound − 1."""
    check_size("size", size)
    if not 1 <= bound <= 2**63:
        raise ValueError(f"Expected a bound from 1 to 2⁶³, got {bound}.")
    # The last word that belongs to a whole multiple of the bound.
    last = np.uint64(2**64 // bound * bound - 1)
    words = stream.words(size)
    while len(late := np.flatnonzero(words > last)):
        words[late] = stream.words(len(late))
    return (words % np.uint64(bound)).astype(np.int64)
