"""Margins of many records by one product, each record's the same bits whoever stands beside it.

A record's gradient may depend on that record and θ alone (`parley.client.dp_sgd.apart` says why),
and BLAS promises no such thing. So a product has one shape, `TILE` rows filled up with zeros, and
on this machine, for this width, rows are tried in other places, beside other rows and at other
addresses: if all keep their bits, records are multiplied so; otherwise by one dot product each.

    >>> rows, classes = np.eye(3), np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> own_margins(rows, classes).tolist()
    [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]

TILE: Final = 64
"""Rows of a product."""

_ORDERS: Final = 8
"""Orders in which made-up rows are tried."""


def own_margins(rows: Real, classes: Real) -> Real:
    """`[n, K]` of contiguous rows `[n, p]`, n ≤ `TILE`, under `[K, p]`."""
    if len(classes) == 1 or not _keeps_bits(*classes.shape):
        return np.asarray(np.vecdot(rows[:, None, :], classes[None]))
    return _product(rows, classes)


def _product(rows: Real, classes: Real) -> Real:
    tile = rows
    if len(rows) < TILE:
        tile = np.zeros((TILE, rows.shape[1]))
        tile[: len(rows)] = rows
    return np.asarray((tile @ classes.T)[: len(rows)])


@cache
def _keeps_bits(outputs: int, features: int) -> bool:
    """Whether made-up rows have the same margins in other places, beside others and elsewhere."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2 * TILE, features)) / np.sqrt(features)
    rows[7::16], rows[15::16] = 0.0, rows[15::16] * 1e6
    classes = rng.standard_normal((outputs, features)) * 10.0 ** rng.integers(-2, 3, (outputs, 1))
    places = np.arange(TILE)
    margins = _product(rows[:TILE], classes)
    # Two thirds of the rows are others; fewer rows; other orders.
    tried = [np.where(places % 3 == keep, places, TILE + places) for keep in range(3)]
    tried += [places[:count] for count in (1, 2, 3, 50, TILE - 1)]
    tried += [rng.permutation(TILE) for _ in range(_ORDERS)]
    for at, own in enumerate(tried):
        memory = np.empty(len(own) * features + 8)[at % 8 :][: len(own) * features]
        moved = memory.reshape(len(own), features)
        moved[:] = rows[own]
        same = own < TILE
        if not np.array_equal(_product(moved, classes)[same], margins[own[same]]):
            return False
    return True
