"""Clip per-example gradients on the device that computed them.

`compute_clipped_sum` calls `sum_clipped_rows` for networks on a GPU. It does what
`parley.client.models.contribution_clipping.clip_rows` does on the CPU. Copying all gradients to the
CPU would take most of a step: 2,048 gradients of 26,010 values are 426 MB.

Scaling is only an estimate. What bounds a record is the check of the whole numbers that are added,
as in `parley.privacy.sensitivity.exact_row_arithmetic`: squares are not negative, so a rounded sum
of squares below 2^53 is exact in any order of addition. Rows that are not whole, not finite or
longer than the radius become 0. Sums of whole numbers of at most 2^26 are exact in float64 for up
to 2^26 rows.

    >>> rows = torch.tensor([[3.0, 4.0], [float("nan"), 0.0]], dtype=torch.float64)
    >>> total, norms = sum_clipped_rows(rows, 1.0, torch.ones(2, dtype=torch.float64))
    >>> [round(value, 6) for value in total.tolist()], norms[0].item()
    ([0.6, 0.8], 5.0)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from parley.client.models.contribution_clipping import build_ball
from parley.privacy.sensitivity.exact_row_arithmetic import EXACT


def sum_clipped_rows(rows: Tensor, clip: float, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum `[d]` of the clipped rows and the rows' norms `[b]` before clipping.

    Overwrites `rows`.

    Args:
        rows: `[b, d]` float64.
        weights: `[b]` 1.0 for a record, 0.0 for a row that only fills the batch.
    """
    ball, bits = build_ball(rows.shape[1], clip)
    squared = ball.radius.l2_squared
    norms = torch.linalg.vector_norm(rows, dim=1)
    rows *= 2.0**bits
    scaled_norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    radius = math.sqrt(squared) * (1 - 2.0**-40)
    rows *= torch.clamp(radius / torch.clamp(scaled_norms, min=1e-300), max=1.0)
    torch.trunc(rows, out=rows)
    squares = (rows * rows).sum(dim=1)
    # NaN and infinity compare as False, so rows that contain them are not inside. Infinite rows
    # became NaN above: trunc leaves no other value that is not whole.
    inside = (squares < EXACT) & (squares <= squared)
    rows[~inside] = 0
    return (weights @ rows) * 2.0**-bits, norms
