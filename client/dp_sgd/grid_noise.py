"""Noise that parties add themselves: integers on a grid, never a float to a float (Mironov 2012).

The number of grid units per unit is a power of two. It is 2²⁵/C or more for a sum of clipped
gradients (`LocalTraining.grid_bits`), which already consists of whole numbers of it, and 2¹² for a
count of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parley.privacy.sampling.random_stream import NoiseStream
from parley.privacy.sampling.rounded_gaussian import add_rounded_gaussian

COUNT_SCALE = 2.0**12
"""Grid units per record of a count."""


def add_noise(
    values: NDArray[np.float64], deviation: float, scale: float, noise: Sequence[NoiseStream]
) -> None:
    """Round each party's values `[B, d]` to the grid and add N(0, deviation²) in place, rounded.

    Parties that share one stream draw from it in one call, row after row.
    """
    values *= scale
    np.rint(values, out=values)
    if noise.count(noise[0]) == len(noise):
        add_rounded_gaussian(values.reshape(-1), deviation * scale, noise[0])
    else:
        for row, stream in zip(values, noise, strict=True):
            add_rounded_gaussian(row, deviation * scale, stream)
    values *= 1 / scale  # a power of two: exact
