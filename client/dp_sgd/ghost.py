"""Ghost clipping: norms and sum of per-record gradients from one backward pass.

Goodfellow 2015, arXiv:1510.01799, for networks of torch's own Linear and Conv2d layers: the inputs
of a layer and the gradients of its outputs are all that its parameters' gradients are made of.

A loss that draws may take K noisy versions of a record (Dockhorn et al. 2022, arXiv:2210.09929).
Their rows have an axis of their own, `[b, K, i]`, which a Linear layer takes as places; or, as a
Conv2d needs it, they are folded into the batch, `[bK, …]`, a record's K rows one after the other.
Then patches `[bK, i, T]` are regrouped, `[b, i, KT]`: one sum over KT places is a
record's gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from parley.client.dp_sgd.clipped import Clipped, Places, Rows, clipped
from parley.client.dp_sgd.gradients import clip_slack
from parley.client.models.record_losses import CROSS_ENTROPY, RecordLosses, draws_of


def ghost_layers(network: nn.Module) -> list[nn.Module] | None:
    """The layers that hold all trainable parameters, if ghost clipping knows every one of them."""
    layers: list[nn.Module] = []
    known: set[int] = set()
    for module in network.modules():
        own = [p for p in module.parameters(recurse=False) if p.requires_grad]
        if not own:
            continue
        if not _is_plain(module) or known & {id(parameter) for parameter in own}:
            return None
        known |= {id(parameter) for parameter in own}
        layers.append(module)
    return layers or None


def _is_plain(layer: nn.Module) -> bool:
    """Whether a layer is torch's own: a subclass, or a hook, may compute anything."""
    plain = type(layer) is nn.Linear or (
        type(layer) is nn.Conv2d
        and layer.groups == 1
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
    )
    own = dict(layer.named_parameters(recurse=False))
    return (
        plain
        and set(own) <= {"weight", "bias"}
        and all(parameter.requires_grad for parameter in own.values())
        and not (layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks)
    )


def check_apart(
    layer: nn.Module, inputs: Tensor, output: Tensor, records: int, *, draws: bool = False
) -> None:
    """Refuses a layer whose rows are not the batch's records in the first axis, one each.

    Where the loss draws, K each, for any K ≥ 1: that they stand one after the other is seen by
    comparing sums with a loop's, as all that a way supposes (`parley.client.dp_sgd.ways`).

    Raises:
        ValueError: the network folds places into the batch, or has the batch elsewhere.
    """
    axes = inputs.dim() == 4 if isinstance(layer, nn.Conv2d) else inputs.dim() >= 2
    rows = len(inputs) if axes else 0
    whole = rows == records or (draws and rows > 0 and rows % max(records, 1) == 0)
    if not axes or not whole or len(output) != rows:
        raise ValueError(
            f"Expected {records} records in the first axis of {layer}, got inputs of shape "
            f"{list(inputs.shape)}: ghost clipping would clip places, not records."
        )


def ghost_pass(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    clip: float,
    mask: Tensor | None = None,
    *,
    losses: RecordLosses = CROSS_ENTROPY,
) -> Clipped:
    """What ghost clipping knows of a batch after its one pass; see `clipping.Pass`.

    Raises:
        ValueError: a layer it does not know, one that is used twice, or one that does not see the
            batch's records in its first axis.
    """
    layers = ghost_layers(network)
    if layers is None:
        raise ValueError("Expected a network of Linear and Conv2d layers, got one with others.")
    seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}
    draws = draws_of(network) > 0

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if module in seen:
            raise ValueError(f"Expected every layer to be used once, got {module} twice.")
        check_apart(module, inputs[0], output, len(x), draws=draws)
        seen[module] = (inputs[0].detach(), output)

    hooks = [layer.register_forward_hook(keep) for layer in layers]
    try:
        each = losses(network, x, y)
    finally:
        for hook in hooks:
            hook.remove()
    used = [layer for layer in layers if layer in seen]
    gradients = torch.autograd.grad(each.sum(), [seen[layer][1] for layer in used])
    backward = dict(zip(used, gradients, strict=True))
    with torch.no_grad():
        parts = tuple(
            (
                sum(p.numel() for p in layer.parameters()),
                layer_parts(layer, seen[layer][0], backward[layer], len(x))
                if layer in seen
                else None,
            )
            for layer in layers
        )
    return clipped(parts, clip_slack(network), clip, mask)


def layer_parts(layer: nn.Module, inputs: Tensor, backward: Tensor, records: int) -> Rows | Places:
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
        places = backward.flatten(2)
    elif inputs.dim() == 2 and len(inputs) == records:
        return Rows(inputs, backward, bias)
    elif inputs.dim() == 2:
        patches, places = inputs[..., None], backward[..., None]
    else:
        patches, places = inputs.flatten(1, -2).transpose(1, 2), backward.flatten(1, -2).mT
    return Places(_regrouped(patches, records), _regrouped(places, records), bias)


def _regrouped(places: Tensor, records: int) -> Tensor:
    """`[b, i, KT]` of `[bK, i, T]`: all that a record's K rows hold, in their order."""
    if len(places) == records:
        return places
    each = places.reshape(records, -1, *places.shape[1:])
    return each.transpose(1, 2).flatten(2)
