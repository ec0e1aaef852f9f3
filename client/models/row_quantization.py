"""Records as linear models use them: whole numbers of 2^-16, no longer than 1.

A product of such rows with whole numbers is exact in float64
(`parley.client.models.integer_gradients`). The rows are also exact in float32, which is used only
to store them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parley.client.data.party_block import ROW_BITS
from parley.client.models.loss_base import Array
from parley.privacy.sensitivity.exact_row_arithmetic import keep_within


def prepare_rows(features: Array, intercept: bool) -> Array:
    """Scale each record separately so that its L2 norm is at most 1; no other record is read.

    A row longer than 1 is scaled down to 1. With `intercept` the constant 1 is then appended and
    the row divided by √2: (x, 1)/√2 has norm ≤ 1. The intercept is a coefficient like any other and
    is regularised, as the sensitivity theorems require. Entries are cut, towards zero, to multiples
    of 2^-16.

    Args:
        features: `[N, p]`, float32 or float64; rows are stored in the same precision.

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
        got = f"{features[row, column]} in row {row}, column {column}"
        raise ValueError(f"Expected finite features, got {got}.")
    # Divide by the largest entry first: the square of a large number would overflow.
    largest = np.maximum(np.abs(features).max(axis=1, keepdims=True, initial=0), 1)
    scaled = np.divide(features, largest, dtype=np.float64)
    # Not BLAS: with some processors' kernels a dot product's last digit depends on the address.
    norms = np.linalg.norm(scaled, axis=1, keepdims=True)
    scaled /= np.maximum(norms, 1 / largest)
    if intercept:
        ones = np.ones((len(scaled), 1))
        scaled = np.concatenate([scaled, ones], axis=1) / np.sqrt(2)
    return quantize_rows(scaled).astype(features.dtype, copy=False)


def quantize_rows(rows: Array) -> NDArray[np.float64]:
    """Return `[n, p]` float64, cut to multiples of 2^-16; zeros if a row is longer than 1."""
    whole: NDArray[np.float64] = np.trunc(rows * 2.0**ROW_BITS).astype(np.float64, copy=False)
    keep_within(whole, 4**ROW_BITS)
    whole *= 2.0**-ROW_BITS
    return whole
