"""Recognise networks that are chains of linear layers, computed in whole numbers, by their
structure.

This is not determined by trial. A chain consists only of Sequential and torch's own modules. Each
module acts on one row at a time, a convolution or a pool on the row's map. The loss is
cross-entropy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from torch import nn

from parley.client.dp_sgd.convolution_windows import MaxPool, MeanPool, Windows
from parley.client.dp_sgd.exact_clipping import BitAllocation, ExactLayer, InputTransform
from parley.client.models.layer_checks import ScaleLayer
from parley.client.models.record_losses import get_own_losses

_CONVOLUTIONS: Final = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_MAXIMA: Final = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
_MEANS: Final = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)


def _iterate_modules(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules of nested Sequentials, in the order in which they are applied."""
    if type(module) is nn.Sequential and _is_unmodified(module):
        for part in module:
            yield from _iterate_modules(part)
    else:
        yield module


def _is_unmodified(module: nn.Module) -> bool:
    """Return whether a module computes what its class does: a hook may compute anything."""
    hooks = (module._forward_hooks, module._forward_pre_hooks)
    backward = (module._backward_hooks, module._backward_pre_hooks)
    return "forward" not in vars(module) and not any((*hooks, *backward))


def find_exact_layers(network: nn.Module) -> tuple[ExactLayer, ...] | None:
    """Return the layers of a chain of linear layers and convolutions that fits; None for other
    networks.

    Between them are ReLU, tanh, factors and pools. No layer is frozen or shared, and the last one
    is linear. Such a chain is computed in whole numbers (`parley.client.dp_sgd.exact_clipping`) if
    `BitAllocation.can_fit`. Dropout is inactive: an active one is refused
    (`parley.client.models.layer_checks.check_layers`).
    """
    modules = list(_iterate_modules(network))
    parameters = [p for module in modules for p in module.parameters()]
    shared = len(set(map(id, parameters))) < len(parameters)
    if get_own_losses(network) is not None or shared or type(modules[-1]) is not nn.Linear:
        return None
    found: list[ExactLayer] = []
    before: list[InputTransform] = []
    shape: tuple[int, ...] = ()  # of a record's map, channels first; (): a row of any length
    for module in modules:
        if not _is_unmodified(module) or not all(p.requires_grad for p in module.parameters()):
            return None
        kind = type(module)
        if type(module) is nn.Unflatten and not shape and (shape := _get_map_shape(module)):
            continue
        ends = (-1, len(shape))
        if type(module) is nn.Flatten and module.start_dim == 1 and module.end_dim in ends:
            shape = ()
        elif (layer := _build_layer(module, tuple(before), shape)) is not None:
            found.append(layer)
            before = []
            if layer.windows:
                shape = (layer.outputs, *layer.windows.counts)
        elif (pool := _build_pool(module, shape)) is not None:
            before.append(pool)
            shape = (shape[0], *pool.windows.counts)
        elif type(module) is ScaleLayer:
            before.append(float(module.factor))
        elif kind in (nn.ReLU, nn.Tanh):
            before.append("relu" if kind is nn.ReLU else "tanh")
        elif kind not in (nn.Identity, nn.Dropout):
            return None
    return tuple(found) if BitAllocation.can_fit(found) else None


def _get_map_shape(module: nn.Unflatten) -> tuple[int, ...]:
    """Return the public shape that rows are given; (): no known shape."""
    sizes = tuple(module.unflattened_size)
    known = module.dim in (1, -1) and all(type(size) is int and size > 0 for size in sizes)
    return sizes if known and len(sizes) > 1 else ()


def _build_layer(
    module: nn.Module, transforms: tuple[InputTransform, ...], shape: tuple[int, ...]
) -> ExactLayer | None:
    """Build the exact layer for one of torch's own modules, on a map or on a row."""
    own = {name: parameter.shape for name, parameter in module.named_parameters()}
    if not {"weight"} <= own.keys() <= {"weight", "bias"}:
        return None
    outputs, *rest = own["weight"]
    if type(module) is nn.Linear and not shape:
        return ExactLayer(rest[0], outputs, "bias" in own, transforms)
    if type(module) not in _CONVOLUTIONS or module.groups != 1 or module.padding_mode != "zeros":
        return None
    windows = _build_windows(module, shape)
    if windows is None or rest != [shape[0], *windows.kernel]:
        return None
    return ExactLayer(math.prod(rest), outputs, "bias" in own, transforms, windows)


def _build_pool(module: nn.Module, shape: tuple[int, ...]) -> MaxPool | MeanPool | None:
    """Build the pool for one of torch's own modules, unless it uses fewer values at a map's end."""
    if getattr(module, "ceil_mode", False) or not shape:
        return None
    kind: type[MaxPool] | type[MeanPool] = MeanPool
    if type(module) in _MAXIMA and not module.return_indices:
        kind = MaxPool
    elif not (type(module) in _MEANS and module.count_include_pad) or (
        getattr(module, "divisor_override", None) is not None
    ):
        return None
    windows = _build_windows(module, shape)
    return None if windows is None else kind(windows)


def _build_windows(module: Any, shape: tuple[int, ...]) -> Windows | None:
    """Build the windows of a convolution or a pool; None if they do not fit the map's axes."""
    axes = len(shape) - 1

    def each(value: int | tuple[int, ...]) -> tuple[int, ...]:
        return (value,) * axes if isinstance(value, int) else tuple(value)

    kernel, dilation = each(module.kernel_size), each(getattr(module, "dilation", 1))
    padding = module.padding
    if padding in ("same", "valid"):
        beyond = [d * (k - 1) * (padding == "same") for d, k in zip(dilation, kernel, strict=True)]
        if any(places % 2 for places in beyond):
            return None
        padding = tuple(places // 2 for places in beyond)
    if not type(module).__name__.endswith(f"{axes}d") or len(kernel) != axes:
        return None
    found = Windows(
        shape[0], sizes=shape[1:], kernel=kernel, stride=each(module.stride),
        padding=each(padding), dilation=dilation,
    )  # fmt: skip
    return found if min(found.counts) > 0 else None
