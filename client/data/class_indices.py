"""Turn labels into indices of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def to_classes(labels: NDArray[Any], classes: int) -> tuple[NDArray[np.int64], int]:
    """Return `[N]` labels 0..K−1 for a network, and K; −1/+1 (`classes` = 0) become 0 and 1."""
    if not classes:
        return (np.asarray(labels, dtype=np.float64) > 0).astype(np.int64), 2
    whole = np.asarray(labels).astype(np.int64)
    if len(whole) and not (whole.min() >= 0 and whole.max() < classes):
        raise ValueError(f"Expected labels 0..{classes - 1}, got {whole.min()} to {whole.max()}.")
    return whole, classes
