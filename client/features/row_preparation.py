"""Prepare rows for learning from records: apply a public map, if any, and scale.

Each engine, party and prediction prepares rows here. Rows without a map are float64. Features are
float32, as their map returns them, and sums over them are float64
(`parley.client.models.linear_models`).
"""

from __future__ import annotations

from itertools import starmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.threaded_chunks import compute_byte_ranges
from parley.client.models.row_quantization import prepare_rows

_COLUMNS = 2
"""Columns of all rows that are reordered at a time."""


def build_prepared_rows(
    raw: NDArray[np.floating[Any]],
    *,
    intercept: bool,
    order: NDArray[np.int64] | None = None,
    buffer: NDArray[np.floating[Any]] | None = None,
) -> NDArray[np.floating[Any]]:
    """Build `[n, p]` or `[n, p + 1]` rows of norm at most 1, in the precision of `raw` `[N, p]`.

    Args:
        order: `[n]` rows of `raw` to take, none twice; None: all.
        buffer: `[N, p + 1]` memory for the rows, with `raw` as its first columns, which is not read
            afterwards. It saves holding the rows twice.
    """
    if buffer is not None:
        rows = buffer[:, : raw.shape[1] + intercept]
        for piece in starmap(slice, compute_byte_ranges(len(raw), 8 * raw.shape[1])):
            rows[piece] = prepare_rows(raw[piece], intercept=intercept)  # a new array
        if order is None:
            return rows
        for at in range(0, rows.shape[1], _COLUMNS):
            columns = slice(at, at + _COLUMNS)
            # Read completely before it is written.
            rows[: len(order), columns] = rows[order, columns]
        return rows[: len(order)]
    chosen = np.arange(len(raw)) if order is None else order
    rows = np.empty((len(chosen), raw.shape[1] + intercept), raw.dtype)
    for piece in starmap(slice, compute_byte_ranges(len(chosen), 8 * raw.shape[1])):
        rows[piece] = prepare_rows(raw[chosen[piece]], intercept=intercept)
    return rows
