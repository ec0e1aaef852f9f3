"""Noisy marginals that agree where they overlap: one total, then one table for each column.

Several noisy tables over some columns each say how many records there are, and each column's own
counts, in their own way. The least-squares average over the tables, weighted by their noise, is
more accurate than any of them, and every table is moved by the same amount in each cell that its
sum covers. Totals first, then columns, once: moving to a column's agreed counts, which add up to
the agreed total, leaves the other columns' counts as they are (as in Barak et al. 2007 and Qardaji,
Yang & Li 2014, for one-way overlaps).

    >>> import numpy as np
    >>> first, second = np.array([[4.0, 2.0], [1.0, 3.0]]), np.array([[5.0], [7.0]])
    >>> agreed = agree({("a", "b"): first, ("a", "c"): second})
    >>> {columns: table.sum(axis=1).round(6).tolist() for columns, table in agreed.items()}
    {('a', 'b'): [5.333333, 6.0], ('a', 'c'): [5.333333, 6.0]}

Also here: noisy counts made counts again: none negative, and adding up to what is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

Tables = Mapping[tuple[str, ...], NDArray[np.float64]]


def agree(
    tables: Tables, *, total: float | None = None
) -> dict[tuple[str, ...], NDArray[np.float64]]:
    """The tables, each an array with one axis a column, moved until totals and columns agree.

    Counts are of one noise variance a cell; `total` is of every table, where it is public.
    """
    found = {columns: np.array(table, dtype=np.float64) for columns, table in tables.items()}
    sizes: dict[str, int] = {}
    for columns, table in found.items():
        if table.ndim != len(columns) or len(set(columns)) != len(columns):
            raise ValueError(f"Expected one axis for each of {columns}, got shape {table.shape}.")
        for column, size in zip(columns, table.shape, strict=True):
            if sizes.setdefault(column, size) != size:
                raise ValueError(
                    f"Expected {column!r} of one size, got {sizes[column]} and {size}."
                )
    if not found:
        return found
    # The sum over a table of n cells has variance n.
    weights = np.array([1 / table.size for table in found.values()])
    if total is None:
        totals = np.array([table.sum() for table in found.values()])
        total = float(weights @ totals / weights.sum())
    for table in found.values():
        np.add(table, (total - table.sum()) / table.size, out=table)
    for column, size in sizes.items():
        holding = [
            (columns.index(column), table) for columns, table in found.items() if column in columns
        ]
        sums = [_along(table, axis) for axis, table in holding]
        # One of a column's counts is a sum of n/size cells.
        shares = np.array([size / table.size for _, table in holding])
        agreed = shares @ np.array(sums) / shares.sum()
        for (axis, table), own in zip(holding, sums, strict=True):
            shape = [size if k == axis else 1 for k in range(table.ndim)]
            np.add(table, ((agreed - own) * size / table.size).reshape(shape), out=table)
    return found


def _along(table: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """`[size]` sums over every axis but one."""
    sums: NDArray[np.float64] = table.sum(axis=tuple(k for k in range(table.ndim) if k != axis))
    return sums


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
