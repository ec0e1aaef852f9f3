"""Rows of whole numbers in float64: which of them lie in a ball, and their sums, without rounding.

Whole numbers below 2⁵³ are float64 numbers, and so are all of their sums and products that stay
below it: BLAS adds them up in any order, in any number of threads, to the same bits.

**Whether a row is short enough** is asked of its numbers alone. Squares are not negative, and
adding one never makes a rounded sum smaller: a sum of squares that comes out below 2⁵³ is exact;
NaN and ∞ are not below it. What fails the test adds nothing. Privacy hangs on that one line: how a
row came about, and by which factor it was shortened, is no matter.

    >>> rows = np.array([[3.0, 4.0], [3.0, 5.0], [np.nan, 0.0]])
    >>> keep_within(rows, 25)
    2
    >>> rows.tolist()
    [[3.0, 4.0], [0.0, 0.0], [0.0, 0.0]]
    >>> sum_rows(rows, 5).tolist()
    [3, 4]

Rows up to 2³⁶ have products beyond 2⁵³: there high and low digits are multiplied apart
(`sum_fine_outer`).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

EXACT: Final = 2**53
"""Below it, sums and products of whole numbers are exact in float64."""

_ROUNDING_MARGIN: Final = 1 + 2.0**-40
"""More than what rounding does to a sum of 2¹¹ products of numbers ≥ 0, and to the radius."""

FINE: Final = 2**36
"""Steps in [0, 1] of a row whose products are summed by `sum_fine_outer`."""
_DIGITS: Final = 2**18
_PIECE: Final = 2**16
"""Rows at a time: with 2⁷ entries, sums of products below 2³⁷ stay below 2⁶³."""

Rows = NDArray[np.float64]


def compute_squares(rows: Rows) -> Rows:
    """`[…]` ‖row‖² of `[…, d]` rows; exact where it is below `EXACT`, and only there below it.

    ∞ where an entry is not finite or not whole.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        whole = (rows == np.rint(rows)).all(axis=-1)
        return np.where(whole, _compute_whole_squares(rows), np.inf)


def _compute_whole_squares(rows: Rows) -> Rows:
    """`compute_squares` of what is whole or not finite."""
    found = np.vecdot(rows, rows)
    return np.where(found < EXACT, found, np.inf)


def keep_within(rows: Rows, squared: int) -> int:
    """Makes zeros of rows of `[n, d]` that are not whole or longer than √squared; how many."""
    if not 0 <= squared < EXACT:
        raise ValueError(f"Expected a squared radius from 0 to 2^53, got {squared}.")
    out = ~(compute_squares(rows) <= squared)
    rows[out] = 0
    return int(out.sum())


def keep_surely_within(rows: Rows, squared: float) -> int:
    """Make zeros of rows `[n, d]` that are not whole, or may be longer than √squared; how many.

    For rows whose squares are beyond `EXACT`: they are summed in doubles, and never too small.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        whole = (rows == np.rint(rows)).all(axis=-1)
        out = ~(whole & (np.vecdot(rows, rows) * _ROUNDING_MARGIN <= squared))
    rows[out] = 0
    return int(out.sum())


def keep_in_cube(rows: Rows, most: int) -> int:
    """Make zeros of rows `[n, d]` with an entry that is not whole or beyond ±most; how many."""
    with np.errstate(invalid="ignore"):
        out = ~((rows == np.rint(rows)) & (np.abs(rows) <= most)).all(axis=-1)
    rows[out] = 0
    return int(out.sum())


def keep_factored(layers: Sequence[tuple[Rows, Rows]], squared: float) -> NDArray[np.bool_]:
    """Makes whole numbers of records, and zeros of those longer than √squared; `[…]` who is kept.

    A record's vector is all layers' a bᵀ, of rows a of `[…, i]` and b of `[…, o]`, both rounded
    here: its square is Σ ‖a‖²·‖b‖², computed from exact squares and never too small.
    """
    found: Rows | float = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for layer in layers:
            of_inputs, of_slopes = (
                _compute_whole_squares(np.rint(factor, out=factor)) for factor in layer
            )
            found = found + of_inputs * of_slopes
        kept = np.asarray(found * _ROUNDING_MARGIN <= squared)  # 0·∞ is NaN, which is not
    if not kept.all():
        for factor in (factor for layer in layers for factor in layer):
            factor[~kept] = 0
    return kept


def round_slopes(slopes: Rows, row_squares: Rows, squared: Rows) -> Rows:
    """Slopes s `[n, o]` rounded to whole numbers; zeros where ‖s‖²·‖x‖² is above `squared`.

    `row_squares` `[n]` are exact ‖x‖², or ∞; `squared` `[n]` or `[1]`.
    """
    found: Rows = np.rint(slopes)
    with np.errstate(over="ignore", invalid="ignore"):
        length = found[:, 0] ** 2 if found.shape[1] == 1 else np.vecdot(found, found)
        length *= row_squares
        kept = length <= squared / _ROUNDING_MARGIN  # 0·∞ is NaN, which is not
    if not kept.all():
        found[~kept] = 0
    return found


def sum_rows(rows: Rows, length: int) -> NDArray[np.int64]:
    """`[d]` the sum of whole rows `[n, d]`, none longer than `length`."""
    total: NDArray[np.int64] = sum_outer(np.ones((len(rows), 1)), rows, length)[0]
    return total


def sum_outer(slopes: Rows, rows: Rows, length: int) -> NDArray[np.int64]:
    """`[…, o, p]` Σ_i slopes_i rows_iᵀ of whole `[…, n, o]` and `[…, n, p]`, exactly.

    Args:
        length: no ‖slopes_i‖·‖rows_i‖ is more.
    """
    count = rows.shape[-2]
    if not 0 < length < EXACT or count * length >= 2**63:
        raise ValueError(
            f"Expected rows no longer than 2^53 and a sum below 2^63, got {count} of {length}."
        )
    step = (EXACT - 1) // length
    own = [(..., slice(at, at + step), slice(None)) for at in range(0, max(count, 1), step)]
    sums = ((slopes[at].swapaxes(-1, -2) @ rows[at]).astype(np.int64) for at in own)
    total: NDArray[np.int64] = functools.reduce(operator.iadd, sums)
    return total


def sum_fine_outer(rows: Rows) -> NDArray[np.object_]:
    """Return `[d, d]` Σ row rowᵀ of whole rows `[n, d]` within ±`FINE`, d ≤ 2⁷, in Python integers.

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
