"""Clip contributions to their bound: maps that accept all floats, including NaN and ∞.

The maps are fixed beforehand and defined for each input. What a record or a party adds is therefore
bounded even if a number overflowed, and the result does not reveal that it did
(`parley.client.dp_sgd.torch_clipping`).

    >>> import numpy as np
    >>> values = np.array([[3.0, np.nan], [-np.inf, 0.5]])
    >>> clamp_entries(values, 1.0)
    >>> values.tolist()
    [[1.0, 0.0], [-1.0, 0.5]]
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from parley.client.data.threaded_chunks import compute_row_ranges
from parley.privacy.accounting.rounding import to_fraction
from parley.privacy.sensitivity.bounded_sets import Set
from parley.privacy.sensitivity.exact_row_arithmetic import keep_within

_RADIUS_BITS: Final = 26
"""Bits of a radius in whole numbers: its square is below 2⁵³."""

_REAL_BITS: Final = 60
"""Bits of a radius of real vectors: any in double precision is a whole number of such units."""


def clamp_entries(values: NDArray[np.floating[Any]], limit: float) -> None:
    """Clamp each entry to ±limit in place; NaN becomes 0."""
    for first, last in compute_row_ranges(values):
        own = values[first:last]
        np.clip(own, -limit, limit, out=own)
        own[np.isnan(own)] = 0


def build_ball(dimension: int, norm: float) -> tuple[Set, int]:
    """Build the set of vectors of L2 norm at most `norm` on a grid of 2^-b; return it and b.

    b is chosen so that the squares of such vectors are exact.
    """
    bits = _RADIUS_BITS - math.frexp(norm)[1]
    return Set.ball(dimension, squared=int((to_fraction(norm) * Fraction(2) ** bits) ** 2)), bits


def build_real_ball(dimension: int, norm: Fraction) -> tuple[Set, int]:
    """Build the set of real vectors of L2 norm at most `norm`, in units of 2^-b; return it and b.

    The squared radius is rounded up.
    """
    bits = _REAL_BITS - math.frexp(norm)[1]
    return Set.ball(dimension, squared=math.ceil((norm * Fraction(2) ** bits) ** 2)), bits


def clip_rows(values: NDArray[np.float64], norm: float) -> None:
    """Clip each row of `[B, d]` to the ball of `build_ball` in place; 0 if its norm is NaN or ∞."""
    ball, bits = build_ball(values.shape[1], norm)
    squared = ball.radius.l2_squared
    radius = math.sqrt(squared) * (1 - 2.0**-40)  # an estimate; rows outside become 0
    for first, last in compute_row_ranges(values):
        own = values[first:last]
        with np.errstate(over="ignore", invalid="ignore"):
            own *= 2.0**bits
            norms = np.linalg.norm(own, axis=1, keepdims=True)
            own *= np.minimum(1.0, radius / np.maximum(norms, 1e-300))
        np.trunc(own, out=own)
        keep_within(own, squared)
        own *= 2.0**-bits


def zero_broken_rows(values: NDArray[np.floating[Any]]) -> None:
    """Set entries of `[n]`, or rows of `[n, K]`, that are not finite to 0 in place."""
    finite = np.isfinite(values)
    if not finite.all():
        values[~(finite if values.ndim == 1 else finite.all(axis=1))] = 0
