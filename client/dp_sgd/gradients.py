"""θ of a network, and the plain sum of its records' gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from parley.client.dp_sgd.settings import MARGIN
from parley.client.models.record_losses import CROSS_ENTROPY, RecordLosses


def trainable(network: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that θ is made of, by name: those that are not frozen."""
    return {name: p for name, p in network.named_parameters() if p.requires_grad}


def clip_slack(network: nn.Module) -> float:
    """What norms are multiplied by: 1, or more where layers are too wide for `MARGIN`.

    A quarter of the margin is for the norms: in float32 that covers layers of 4,000 inputs and
    outputs, in float64 any that fit a memory.
    """
    parameters = list(trainable(network).values())
    widths = [p.shape[0] + p.numel() // p.shape[0] for p in parameters if p.numel() and p.dim()]
    roundings = max(widths, default=1) + len(parameters) + 8
    unit = torch.finfo(parameters[0].dtype).eps / 2
    return max(1.0, (1 + roundings * unit) * (1 - MARGIN / 4))


def plain_sum(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    mask: Tensor | None = None,
    *,
    losses: RecordLosses = CROSS_ENTROPY,
) -> Tensor:
    """`[d]` the sum of the batch's gradients, none clipped.

    `mask` `[b]` is 1 for a record and 0 for a row that is only worked on; None: all 1.
    """
    parameters = list(trainable(network).values())
    each = losses(network, x, y)
    total = (each if mask is None else each * mask).sum()
    gradients = torch.autograd.grad(total, parameters, allow_unused=True)
    return torch.cat(
        [
            (torch.zeros_like(p) if g is None else g).reshape(-1)
            for p, g in zip(parameters, gradients, strict=True)
        ]
    )
