"""Rows of integers in float64: test whether they are in a ball, and sum them without rounding.

Integers below 2⁵³ are float64 numbers, and so are all of their sums and products that stay below
2⁵³. BLAS gives the same bits in any order of summation and with any number of threads.

**Whether a row is short enough** depends only on its numbers. Squares are not negative, and adding
a square never makes a rounded sum smaller. So a computed sum of squares below 2⁵³ is exact; NaN and
∞ are not below it. A row that fails the test adds 0. Privacy depends on that one line. It does not
depend on how a row was computed or by which factor it was shortened.

    >>> rows = np.array([[3.0, 4.0], [3.0, 5.0], [np.nan, 0.0]])
    >>> keep_within(rows, 25)
    2
    >>> rows.tolist()
    [[3.0, 4.0], [0.0, 0.0], [0.0, 0.0]]
    >>> sum_rows(rows, 5).tolist()
    [3, 4]

Rows up to 2³⁶ have products beyond 2⁵³: `parley.privacy.sensitivity.fine_row_arithmetic`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

EXACT: Final = 2**53
"""Limit below which sums and products of integers are exact in float64."""

ROUNDING_MARGIN: Final = 1 + 2.0**-40
"""Factor above the rounding errors of a sum of 2¹¹ products of numbers ≥ 0, and of the radius."""

Rows = NDArray[np.float64]


def compute_squares(rows: Rows) -> Rows:
    """Return `[…]` ‖row‖² of `[…, d]` rows, exact if it is below `EXACT`.

    It is below `EXACT` only if the true value is. The result is ∞ if an entry is not finite or not
    an integer.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        whole = (rows == np.rint(rows)).all(axis=-1)
        return np.where(whole, _compute_whole_squares(rows), np.inf)


def _compute_whole_squares(rows: Rows) -> Rows:
    """Return `compute_squares` of rows whose entries are integers or not finite."""
    found = np.vecdot(rows, rows)
    return np.where(found < EXACT, found, np.inf)


def keep_within(rows: Rows, squared: int) -> int:
    """Set rows of `[n, d]` to 0 if not integers or longer than √squared; return their number."""
    if not 0 <= squared < EXACT:
        raise ValueError(f"Expected a squared radius from 0 to 2^53, got {squared}.")
    out = ~(compute_squares(rows) <= squared)
    rows[out] = 0
    return int(out.sum())


def keep_factored(layers: Sequence[tuple[Rows, Rows]], squared: float) -> NDArray[np.bool_]:
    """Round records to integers and set those longer than √squared to 0.

    Return `[…]` which records are kept. A record's vector is all layers' a bᵀ, of rows a of `[…,
    i]` and b of `[…, o]`, both rounded here. Its square is Σ ‖a‖²·‖b‖², computed from exact squares
    and never too small.
    """
    found: Rows | float = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for layer in layers:
            of_inputs, of_slopes = (
                _compute_whole_squares(np.rint(factor, out=factor)) for factor in layer
            )
            found = found + of_inputs * of_slopes
        kept = np.asarray(found * ROUNDING_MARGIN <= squared)  # 0·∞ is NaN, which is not
    if not kept.all():
        for factor in (factor for layer in layers for factor in layer):
            factor[~kept] = 0
    return kept


def round_slopes(slopes: Rows, row_squares: Rows, squared: Rows) -> Rows:
    """Return slopes s `[n, o]` rounded to integers; 0 if ‖s‖²·‖x‖² is above `squared`.

    `row_squares` `[n]` are exact ‖x‖², or ∞; `squared` is `[n]` or `[1]`.
    """
    found: Rows = np.rint(slopes)
    with np.errstate(over="ignore", invalid="ignore"):
        length = found[:, 0] ** 2 if found.shape[1] == 1 else np.vecdot(found, found)
        length *= row_squares
        kept = length <= squared / ROUNDING_MARGIN  # 0·∞ is NaN, which is not
    if not kept.all():
        found[~kept] = 0
    return found


def sum_rows(rows: Rows, length: int) -> NDArray[np.int64]:
    """Return `[d]` the sum of integer rows `[n, d]`, none longer than `length`."""
    result: NDArray[np.int64] = sum_outer(np.ones((len(rows), 1)), rows, length)[0]
    return result


def sum_outer(slopes: Rows, rows: Rows, length: int) -> NDArray[np.int64]:
    """Return `[…, o, p]` the exact Σ_i slopes_i rows_iᵀ of integers `[…, n, o]` and `[…, n, p]`.

    Args:
        rows: dense, or a `scipy.sparse.csr_array` of one matrix.
        length: upper bound on ‖slopes_i‖·‖rows_i‖.
    """
    count = rows.shape[-2]
    if not 0 < length < EXACT or count * length >= 2**63:
        raise ValueError(f"Expected rows ≤ 2^53 and a sum below 2^63, got {count} of {length}.")
    step = (EXACT - 1) // length
    own = [(..., slice(at, at + step), slice(None)) for at in range(0, max(count, 1), step)]
    if len(own) == 1:
        return (slopes.swapaxes(-1, -2) @ rows).astype(np.int64)
    sums = ((slopes[at].swapaxes(-1, -2) @ rows[at]).astype(np.int64) for at in own)
    return functools.reduce(operator.iadd, sums)
