"""Ghost clipping of B parties at once, each with its own parameters (see `clipping`).

| network | how |
|---|---|
| Linear layers in a chain, on the CPU | closed form, batched products (`clipping_dense`) |
| other Linear and Conv2d layers | vmap of ghost taps |

A ghost tap is a zero tensor added to a layer's output and differentiated with respect to, which
composes with vmap as gradients of intermediate values do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from parley.client.dp_sgd.clip_factors import clip_factors
from parley.client.dp_sgd.clipping import (
    check_apart,
    clip_slack,
    ghost_layers,
    layer_parts,
    losses,
    trainable,
)
from parley.client.dp_sgd.clipping_dense import Dense

__all__ = ["PartiesWay", "parties_ghost"]


@dataclass(frozen=True, kw_only=True)
class PartiesWay:
    """How the clipped sums of parties are computed together.

    Attributes:
        prepare: records `[N, p]` → `[N, p']`, once, before any step.
        sums: `(θ [B, d], x [B, b, p'], y [B, b], mask [B, b], clip) -> (sums [B, d], norms [B, b])`
            where batches are padded to b, and mask is 1 for a record, 0 for a padded place.
        threads: whether several threads may call them at once, each for parties of its own.
    """

    prepare: Callable[[Tensor], Tensor]
    sums: Callable[[Tensor, Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
    threads: bool


def parties_ghost(network: nn.Module, row: Tensor) -> PartiesWay:
    """The way for a network, found out from its layers and the shapes one record `[p]` takes.

    Raises:
        ValueError: a layer it does not know, or one that does not see the batch's records, one
            each, in its first axis.
    """
    layers = ghost_layers(network)
    if layers is None:
        raise ValueError("Expected a network of Linear and Conv2d layers, got another.")
    dense = Dense.of(network)
    with torch.no_grad():
        on_rows = dense is not None and dense.prefix(row[None]).dim() == 2
    if dense is not None and on_rows and row.device.type == "cpu":
        return _in_closed_form(dense)
    taps = _by_taps(network, layers, row)  # hooks on the one network: not for threads
    return PartiesWay(prepare=lambda features: features, sums=taps, threads=False)


def _in_closed_form(dense: Dense) -> PartiesWay:
    def prepare(features: Tensor) -> Tensor:
        with torch.no_grad():
            prepared: Tensor = dense.prefix(features)
        return prepared

    def sums(
        theta: Tensor, x: Tensor, y: Tensor, mask: Tensor, clip: float
    ) -> tuple[Tensor, Tensor]:
        total, norms = dense.sums(theta.numpy(), x.numpy(), y.numpy(), mask.numpy(), clip)
        return torch.from_numpy(total), torch.from_numpy(norms)

    return PartiesWay(prepare=prepare, sums=sums, threads=True)


def _by_taps(
    network: nn.Module, layers: Sequence[nn.Module], row: Tensor
) -> Callable[[Tensor, Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]:
    shapes = _output_shapes(network, layers, row[None])
    names = [(name, p.shape, p.numel()) for name, p in trainable(network).items()]
    widths = [sum(p.numel() for p in layer.parameters()) for layer in layers]
    at = {layer: index for index, layer in enumerate(layers)}
    slack = clip_slack(network)
    current: dict[str, list[Any]] = {}

    def tap(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        check_apart(module, inputs[0], output, current["records"][0])
        current["inputs"][at[module]] = inputs[0]
        tapped: Tensor = output + current["taps"][at[module]]
        return tapped

    def sums(
        theta: Tensor, x: Tensor, y: Tensor, mask: Tensor, clip: float
    ) -> tuple[Tensor, Tensor]:
        def one(flat: Tensor, rows: Tensor, labels: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
            split = torch.split(flat, [size for _, _, size in names])
            named = {n: v.view(shape) for (n, shape, _), v in zip(names, split, strict=True)}

            def total_loss(taps: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
                current["taps"], current["inputs"] = taps, [rows] * len(layers)
                current["records"] = [len(rows)]
                each = losses(torch.func.functional_call(network, named, (rows,)), labels)
                return each.sum(), current["inputs"]

            taps = [rows.new_zeros((len(rows), *(shape or ()))) for shape in shapes]
            backward, inputs = torch.func.grad(total_loss, has_aux=True)(taps)
            # A layer that the forward pass leaves out has a gradient of zero.
            parts = [
                None if shape is None else layer_parts(layer, into, back)
                for layer, into, back, shape in zip(layers, inputs, backward, shapes, strict=True)
            ]
            squares = [part.squared_norms() for part in parts if part is not None]
            norms = torch.stack(squares).sum(0).sqrt() * slack
            factors = clip_factors(norms, clip) * there
            pieces = [
                own.reshape(-1)
                for part, width in zip(parts, widths, strict=True)
                for own in (
                    [flat.new_zeros(width)] if part is None else part.counted(factors).sums(factors)
                )
            ]
            return torch.cat(pieces), norms

        hooks = [layer.register_forward_hook(tap) for layer in layers]
        try:
            with torch.no_grad():
                result: tuple[Tensor, Tensor] = torch.func.vmap(one)(theta, x, y, mask)
        finally:
            for hook in hooks:
                hook.remove()
        return result

    return sums


def _output_shapes(
    network: nn.Module, layers: Sequence[nn.Module], x: Tensor
) -> list[torch.Size | None]:
    """Of one record, at every layer; None where the forward pass leaves the layer out."""
    shapes: dict[nn.Module, torch.Size] = {}

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        check_apart(module, inputs[0], output, len(x))
        shapes[module] = output.shape[1:]

    hooks = [layer.register_forward_hook(keep) for layer in layers]
    try:
        with torch.no_grad():
            network(x)
    finally:
        for hook in hooks:
            hook.remove()
    return [shapes.get(layer) for layer in layers]
