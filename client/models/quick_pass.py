"""The pass over many parties' records that is made most: one margin a record, nothing to clip.

Threads take turns at all that is not inside numpy, so that next to nothing is. The numbers are
those of `LinearModel` in its general pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.models.loss import Array, Loss


def quick_pass(
    loss: Loss, theta: Array, rows: Array, labels: NDArray[Any], out: Array
) -> Callable[[int, int], None] | None:
    """What writes the mean of slope_i·x_i of parties `first` to `last` − 1 to their rows of `out`.

    Slopes that are not finite are left in. `out` is then not finite either, nor its sum: ∞·0 isn't.

    Args:
        loss: of the margins θ·x.
        theta: `[d]`.
        rows: `[B, n, p]` all parties' records.
        labels: `[B·n]`.
        out: `[B, d]`.

    Returns:
        None where it is not made this way: several outputs, a θ of each party's, or one party
        alone, the time of whose pass would say whether a slope of its records was not finite.
    """
    if len(rows) == 1 or not theta.ndim == loss.outputs == 1:
        return None
    n, slope = rows.shape[1], loss.slope

    def work(first: int, last: int) -> None:
        own = rows[first:last]
        slopes = slope(np.vecdot(own, theta).ravel(), labels[first * n : last * n])
        means = out[first:last]
        np.matmul(slopes.reshape(-1, 1, n), own, out=means[:, None])
        means /= n

    return work
