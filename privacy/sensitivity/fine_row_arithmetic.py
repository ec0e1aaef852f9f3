"""Rows of integers up to 2³⁶ in float64: test their size, and sum their products without rounding.

Their products are beyond 2⁵³, so high and low digits are multiplied separately
(`sum_fine_outer`). Rows with smaller products: `parley.privacy.sensitivity.exact_row_arithmetic`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from parley.privacy.sensitivity.exact_row_arithmetic import ROUNDING_MARGIN, Rows, sum_outer

FINE: Final = 2**36
"""Steps in [0, 1] of a row whose products are summed by `sum_fine_outer`."""
_DIGITS: Final = 2**18
_PIECE: Final = 2**16
"""Number of rows per piece: with 2⁷ entries, sums of products below 2³⁷ stay below 2⁶³."""


def keep_surely_within(rows: Rows, squared: float) -> int:
    """Set rows `[n, d]` to 0 if not integers or possibly longer than √squared; count them.

    It is for rows with squares beyond `EXACT`. These are summed in doubles and never too small.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        whole = (rows == np.rint(rows)).all(axis=-1)
        out = ~(whole & (np.vecdot(rows, rows) * ROUNDING_MARGIN <= squared))
    rows[out] = 0
    return int(out.sum())


def keep_in_cube(rows: Rows, most: int) -> int:
    """Set rows `[n, d]` to 0 if an entry is not an integer or beyond ±most; return their number."""
    with np.errstate(invalid="ignore"):
        out = ~((rows == np.rint(rows)) & (np.abs(rows) <= most)).all(axis=-1)
    rows[out] = 0
    return int(out.sum())


def sum_fine_outer(rows: Rows) -> NDArray[np.object_]:
    """Return `[d, d]` Σ row rowᵀ of integer rows `[n, d]` within ±`FINE`, as Python integers.

    d is at most 2⁷.

    >>> sum_fine_outer(np.array([[2.0**36, 3.0 - 2.0**36], [1.0, 2.0]])).tolist() == [
    ...     [2**72 + 1, 3 * 2**36 - 2**72 + 2],
    ...     [3 * 2**36 - 2**72 + 2, (2**36 - 3) ** 2 + 4],
    ... ]
    True
    """
    found = np.zeros((rows.shape[1], rows.shape[1]), dtype=object)
    for begin in range(0, len(rows), _PIECE):
        piece = rows[begin : begin + _PIECE]
        high = np.rint(piece / _DIGITS)
        both = np.concatenate([high, piece - high * _DIGITS], axis=1)
        of_both = sum_outer(both, both, both.shape[1] * _DIGITS**2).astype(object)
        (hh, hl), (lh, ll) = (np.split(half, 2, axis=1) for half in np.split(of_both, 2))
        found += hh * _DIGITS**2 + (hl + lh) * _DIGITS + ll
    return found
