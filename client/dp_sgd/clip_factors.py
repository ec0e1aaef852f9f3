"""Clipping for every gradient, also one that is not finite.

    c(g) = g · min(1, C(1 − MARGIN)/‖g‖)   where ‖g‖, as computed, is finite
    c(g) = 0                               where it is NaN or infinite

**c keeps the sensitivity.** The proof of DP-SGD (Abadi et al. 2016, arXiv:1607.00133, Theorem 1)
uses two facts about what a record adds to a sum: it is a function of that record and θ alone, and
its norm is at most C. Both hold for c on all of R^d and beyond: whether ‖g‖ is finite is a function
of the record and θ, and ‖0‖ ≤ C. So Σ_i c(g_i) moves by at most 2C when a record is replaced and by
C when one is added or removed, whatever a server chose for θ and whatever a record holds; the sum
is finite always, and no party has a reason to stop that depends on a record.

Every way of clipping takes its factors from `clip_factors` and passes what it multiplies by them
through `counted`: 0·NaN is NaN, so a factor of 0 alone is not enough.
"""

from __future__ import annotations

import torch
from torch import Tensor

from parley.client.dp_sgd.settings import MARGIN


def shrink(clip: float) -> float:
    """The norm that gradients are clipped to: C(1 − MARGIN)."""
    return clip * (1 - MARGIN)


def clip_factors(norms: Tensor, clip: float) -> Tensor:
    """min(1, C/norm), with C a little smaller (`MARGIN`); 0 where the norm is not finite."""
    factors = torch.clamp(shrink(clip) / norms.clamp_min(1e-30), max=1.0)
    return torch.where(torch.isfinite(norms), factors, 0.0)


def counted(values: Tensor, factors: Tensor) -> Tensor:
    """Rows `[b, …]` of records whose factor `[b]` is not 0; zeros, never NaN, for the others."""
    there = (factors != 0).reshape(-1, *[1] * (values.dim() - 1))
    return torch.where(there, values, 0.0)


def clip_signs(norms: Tensor, clip: float) -> Tensor:
    """2b − 1 of every record, in float64: 1 where its gradient was clipped, −1 where it was not.

    A line leads from one to the other over norms that are too long by less than `MARGIN`: what
    another record of the batch does to the rounding of this one's must not turn a −1 into a 1.
    A gradient without a finite norm counts as clipped.
    """
    excess = norms.double() / shrink(clip) - 1
    signs = torch.clamp(excess * (2 / MARGIN) - 1, min=-1.0, max=1.0)
    return torch.where(torch.isfinite(norms), signs, 1.0)
