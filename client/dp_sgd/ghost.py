"""Ghost clipping: norms and sum of per-record gradients from one backward pass.

Goodfellow 2015, arXiv:1510.01799, for chains of torch's own Linear and Conv2d layers: the inputs of
a layer and the gradients of its outputs are all that its parameters' gradients are made of.

That a layer's rows are the batch's records, one each, is not tried out: it follows from the
network's structure (`ghost_layers`). A chain is Sequential alone, whose every module keeps the
first axis and looks at one row at a time; its loss is cross-entropy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import Tensor, nn

from parley.client.dp_sgd.clipped import Clipped, Places, Rows, clip_slack, clipped
from parley.client.models.layers import Scale
from parley.client.models.record_losses import (
    CROSS_ENTROPY,
    RecordLosses,
    cross_entropy,
    own_losses,
)

_VALUE_BY_VALUE: Final = (
    *(Scale, nn.Identity, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish),
    *(nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Softsign, nn.Hardtanh, nn.ReLU6, nn.Dropout),
)

_ROUNDS_ONCE: Final = (Scale, nn.Identity, nn.Flatten, nn.ReLU)
"""Modules whose values are rounded at most once, the same wherever they stand."""

_KEEPS_ROWS: Final[dict[type[nn.Module], Callable[[Any], bool]]] = {
    **dict.fromkeys(_VALUE_BY_VALUE, lambda module: True),
    **dict.fromkeys((nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d), lambda module: True),
    nn.BatchNorm2d: lambda module: not module.training and module.running_mean is not None,
    nn.Flatten: lambda module: module.start_dim >= 1,
    nn.Unflatten: lambda module: isinstance(module.dim, int) and module.dim >= 1,
    nn.Linear: lambda module: True,
    nn.Conv2d: lambda module: (
        module.groups == 1
        and module.padding_mode == "zeros"
        and not isinstance(module.padding, str)
    ),
}
"""Modules that keep records apart in the first axis, each row by itself, and with what settings.

Dropout draws nothing: one that would is refused (`parley.client.models.layers.check_layers`).
"""


def chain_of(module: nn.Module) -> Iterator[nn.Module]:
    """The modules of nested Sequentials, in the order in which they are applied."""
    if type(module) is nn.Sequential and _unchanged(module):
        for part in module:
            yield from chain_of(part)
    else:
        yield module


def ghost_layers(network: nn.Module) -> list[nn.Module] | None:
    """The layers that hold all trainable parameters, if the network is a chain; else None."""
    modules = list(chain_of(network))
    if own_losses(network) is not None or not all(_keeps_rows(module) for module in modules):
        return None
    layers = [m for m in modules if any(p.requires_grad for p in m.parameters())]
    parameters = [p for layer in layers for p in layer.parameters()]
    shared = len(set(map(id, parameters))) < len(parameters)
    known = all(type(layer) in (nn.Linear, nn.Conv2d) for layer in layers)
    whole = all(parameter.requires_grad for parameter in parameters)
    return layers if layers and known and whole and not shared else None


def _keeps_rows(module: nn.Module) -> bool:
    keeps = _KEEPS_ROWS.get(type(module))
    own = {name for name, _ in module.named_parameters()}
    return (
        keeps is not None
        and keeps(module)
        and _unchanged(module)
        and own <= {"weight", "bias"}
        and not getattr(module, "inplace", False)  # it would change the layer's output before it
    )


def _unchanged(module: nn.Module) -> bool:
    """Whether a module computes what its class does: a hook may compute anything."""
    hooks = (module._forward_hooks, module._forward_pre_hooks)
    backward = (module._backward_hooks, module._backward_pre_hooks)
    return "forward" not in vars(module) and not any((*hooks, *backward))


def stacks(network: nn.Module) -> bool:
    """Whether B parties with a θ each fit one pass: linear layers, and φ value by value between."""
    flat = (nn.Linear, nn.Flatten, *_VALUE_BY_VALUE)
    return ghost_layers(network) is not None and all(type(m) in flat for m in chain_of(network))


def ghost_pass(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    clip: float | None,
    mask: Tensor | None = None,
    *,
    losses: RecordLosses = CROSS_ENTROPY,
    theta: Tensor | None = None,
) -> Clipped:
    """What ghost clipping knows of a batch after its one pass; see `clipping.PASSES`.

    Args:
        clip: C; None: whole gradients, whose norms are not taken.
        theta: `[B, d]` of B parties, whose records stand party after party, as many of each, in a
            network that `stacks`; None: one party at the network's own θ.
    """
    layers = ghost_layers(network)
    if layers is None:
        raise ValueError("Expected a chain of Linear and Conv2d layers, got another network.")
    weights = None if theta is None else _weights(layers, theta)
    each, seen = _forward(network, layers, weights, x, y, losses)
    gradients = torch.autograd.grad(each.sum(), [outputs for _, outputs in seen])
    with torch.no_grad():
        parts = tuple(
            layer_parts(layer, inputs, backward)
            for layer, (inputs, _), backward in zip(layers, seen, gradients, strict=True)
        )
    parties = 1 if theta is None else len(theta)
    if clip is None:
        ones = torch.ones_like(each) if mask is None else mask
        return Clipped(parts, ones, ones, parties)
    return clipped(parts, clip_slack(network), clip, mask, parties)


def _weights(layers: list[nn.Module], theta: Tensor) -> list[Tensor]:
    """`[B, …]` every parameter of the layers within θ `[B, d]`."""
    shapes = [parameter.shape for layer in layers for parameter in layer.parameters()]
    pieces = torch.split(theta.detach(), [shape.numel() for shape in shapes], 1)
    return [own.reshape(-1, *shape) for own, shape in zip(pieces, shapes, strict=True)]


def _forward(
    network: nn.Module,
    layers: list[nn.Module],
    weights: list[Tensor] | None,
    x: Tensor,
    y: Tensor,
    losses: RecordLosses,
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """`[b]` losses, and every layer's inputs and outputs."""
    seen: list[tuple[Tensor, Tensor]] = []
    given = iter(weights or ())
    for module in chain_of(network):
        inputs = x
        if module not in layers:
            alike = weights is None or type(module) in _ROUNDS_ONCE
            x = module(x) if alike else _evenly(module, x)
            continue
        if weights is None:
            x = module(x)
        else:
            rows, weight = x.view(len(weights[0]), -1, x.shape[1]), next(given)
            # One product a party: its rows, its weights.
            x = rows @ weight.mT if module.bias is None else _biased(rows, weight, next(given))
            x = x.flatten(0, 1)
        if isinstance(module, nn.Conv2d) and inputs.dim() != 4:
            raise ValueError(  # of three axes torch takes the first for channels
                f"Expected inputs [b, channels, height, width] of {module}, got a shape of "
                f"{inputs.dim()} axes."
            )
        if not seen:
            x.requires_grad_()
        seen.append((inputs.detach(), x))
    each = cross_entropy(x, y) if weights is None else _evenly(cross_entropy, x, y)
    return each * losses.of(y, each) if losses.weights else each, seen


def _evenly(function: Callable[..., Tensor], *rows: Tensor) -> Tensor:
    """Of rows filled up to a multiple of 64: kernels round what is left over in another way."""
    count = len(rows[0])
    filled = [torch.cat([each, each.new_zeros(-count % 64, *each.shape[1:])]) for each in rows]
    return function(*filled)[:count]


def _biased(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.baddbmm(bias[:, None], rows, weight.mT)


def layer_parts(layer: nn.Module, inputs: Tensor, backward: Tensor) -> Rows | Places:
    """What a layer's inputs and output gradients say of the gradient of each of b records."""
    bias = getattr(layer, "bias", None) is not None
    if isinstance(layer, nn.Conv2d):
        patches = nn.functional.unfold(
            inputs,
            layer.kernel_size,
            dilation=layer.dilation,
            padding=layer.padding,  # type: ignore[arg-type]
            stride=layer.stride,
        )
        return Places(patches, backward.flatten(2), bias)
    if inputs.dim() == 2:
        return Rows(inputs, backward, bias)
    return Places(inputs.flatten(1, -2).transpose(1, 2), backward.flatten(1, -2).mT, bias)
