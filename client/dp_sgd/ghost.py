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
from parley.client.dp_sgd.exact import Grid, Layer
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


def linear_layers(network: nn.Module) -> tuple[Layer, ...] | None:
    """Its layers, if it is a chain of linear layers, ReLU, tanh and factors, of at most 2²⁸ units.

    Such a chain is computed in whole numbers (`parley.client.dp_sgd.exact`).
    """
    found: list[Layer] = []
    before: list[str | float] = []
    modules, learned = list(chain_of(network)), ghost_layers(network)
    if learned is None or modules[-1] not in learned:
        return None
    for module in modules:
        if module in learned:
            weight, *bias = module.parameters()
            if weight.dim() != 2:  # a convolution
                return None
            outputs, inputs = weight.shape
            found.append(Layer(inputs, outputs, bool(bias), tuple(before)))
            before = []
        elif isinstance(module, Scale):
            before.append(float(module.factor))
        elif type(module) in (nn.ReLU, nn.Tanh):
            before.append("relu" if isinstance(module, nn.ReLU) else "tanh")
        elif type(module) not in (nn.Identity, nn.Flatten, nn.Dropout):
            return None
    return tuple(found) if Grid.fits(found) else None


def ghost_pass(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    clip: float,
    mask: Tensor | None = None,
    *,
    losses: RecordLosses = CROSS_ENTROPY,
) -> Clipped:
    """What ghost clipping knows of a batch after its one pass; see `clipping.PASSES`."""
    layers = ghost_layers(network)
    if layers is None:
        raise ValueError("Expected a chain of Linear and Conv2d layers, got another network.")
    each, seen = _forward(network, layers, x, y, losses)
    gradients = torch.autograd.grad(each.sum(), [outputs for _, outputs in seen])
    with torch.no_grad():
        parts = tuple(
            layer_parts(layer, inputs, backward)
            for layer, (inputs, _), backward in zip(layers, seen, gradients, strict=True)
        )
    return clipped(parts, clip_slack(network), clip, mask)


def _forward(
    network: nn.Module, layers: list[nn.Module], x: Tensor, y: Tensor, losses: RecordLosses
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """`[b]` losses, and every layer's inputs and outputs."""
    seen: list[tuple[Tensor, Tensor]] = []
    for module in chain_of(network):
        inputs, x = x, module(x)
        if module not in layers:
            continue
        if isinstance(module, nn.Conv2d) and inputs.dim() != 4:
            raise ValueError(  # of three axes torch takes the first for channels
                f"Expected inputs [b, channels, height, width] of {module}, got a shape of "
                f"{inputs.dim()} axes."
            )
        if not seen:
            x.requires_grad_()
        seen.append((inputs.detach(), x))
    each = cross_entropy(x, y)
    return each * losses.of(y, each) if losses.weights else each, seen


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
