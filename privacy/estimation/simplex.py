"""Noisy counts made counts again: none negative, and adding up to what is known.

Both are functions of noisy values and of public numbers alone, so they cost nothing.

    >>> simplex([5.0, -1.0, 3.0], total=6.0).tolist()
    [4.0, 0.0, 2.0]
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def simplex(values: ArrayLike, *, total: float) -> NDArray[np.float64]:
    """The nearest `[d]` in L2 with no negative entry and this sum (Duchi et al. 2008).

    max(v − θ, 0), θ such that it adds up.
    """
    given = np.asarray(values, dtype=np.float64)
    if given.ndim != 1 or not len(given):
        raise ValueError(f"Expected at least one value in a row, got shape {given.shape}.")
    if not 0 <= total < math.inf:
        raise ValueError(f"Expected a finite total ≥ 0, got {total}.")
    if total == 0:
        return np.zeros_like(given)
    falling = np.sort(given)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(given) + 1)
    # The largest entry stays positive, whatever the total's own rounding.
    theta = excess[max(int((falling > excess).sum()) - 1, 0)]
    nearest: NDArray[np.float64] = np.maximum(given - theta, 0)
    return nearest
