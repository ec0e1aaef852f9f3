"""Records as linear models take them: no longer than 1, with the intercept's constant."""

from __future__ import annotations

import numpy as np

from parley.client.models.loss import Array


def prepare_rows(features: Array, intercept: bool) -> Array:
    """Scale every record by itself so that its L2 norm is at most 1; no other record is read.

    A row longer than 1 is scaled down to 1 (to rounding). With `intercept` the constant 1 is
    appended after that and the row divided by √2: (x, 1)/√2 has norm ≤ 1, and the intercept is a
    coefficient like any other, regularised too, as the sensitivity theorems require.

    Args:
        features: `[N, p]`, float32 or float64 (the precision is kept; float32 rows are a little
            shorter, so that rounding leaves none longer than 1).

    Returns:
        `[N, p]` or `[N, p + 1]`, a new contiguous array.
    """
    if features.ndim != 2:
        raise ValueError(f"Expected features of shape [N, p], got {features.shape}.")
    if features.dtype not in (np.float32, np.float64):
        raise ValueError(f"Expected float32 or float64 features, got {features.dtype}.")
    finite = np.isfinite(features)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise ValueError(
            f"Expected finite features, got {features[row, column]} in row {row}, column {column}."
        )
    if features.dtype == np.float32:
        rows = prepare_rows(features.astype(np.float64), intercept)
        return (rows * (1 - 2.0**-23)).astype(np.float32)
    # Divided by the largest entry first: the square of a large number would overflow.
    largest = np.maximum(np.abs(features).max(axis=1, keepdims=True, initial=0), 1)
    scaled: Array = features / largest
    norms = np.sqrt(np.vecdot(scaled, scaled))[:, None]
    scaled /= np.maximum(norms, 1 / largest)
    if not intercept:
        return scaled
    ones = np.ones((len(scaled), 1), features.dtype)
    return np.concatenate([scaled, ones], axis=1) / features.dtype.type(np.sqrt(2))
