"""Contributions within their bound, whatever they are: maps of all floats, NaN and ∞ among them.

They are fixed beforehand and defined for every input, so that what a record or a party adds is
bounded also where a number overflowed, and nothing says that it did
(`parley.client.dp_sgd.clipped`).

    >>> import numpy as np
    >>> values = np.array([[3.0, np.nan], [-np.inf, 0.5]])
    >>> clamp(values, 1.0)
    >>> values.tolist()
    [[1.0, 0.0], [-1.0, 0.5]]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.chunks import row_ranges


def clamp(values: NDArray[np.floating[Any]], limit: float) -> None:
    """Every entry into ±limit in place; NaN becomes 0."""
    for first, last in row_ranges(values):
        own = values[first:last]
        np.clip(own, -limit, limit, out=own)
        own[np.isnan(own)] = 0


def clip_rows(values: NDArray[np.float64], norm: float) -> None:
    """Every row of `[B, d]` to L2 norm at most `norm` in place; 0 where its norm is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(values, axis=1, keepdims=True)
    broken = ~np.isfinite(norms[:, 0])
    values[broken], norms[broken] = 0, 0
    # A little below, for the rounding of norm and product.
    values *= np.minimum(1.0, norm * (1 - 1e-9) / np.maximum(norms, 1e-300))


def drop_broken_rows(values: NDArray[np.floating[Any]]) -> None:
    """Entries of `[n]`, or rows of `[n, K]`, that are not finite become 0 in place."""
    finite = np.isfinite(values)
    if not finite.all():
        values[~(finite if values.ndim == 1 else finite.all(axis=1))] = 0
