"""Which networks are chains of linear layers, computed in whole numbers: by their structure.

That a network is one is not tried out: a chain is Sequential alone, of torch's own modules, whose
every module looks at one row at a time; its loss is cross-entropy.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from parley.client.dp_sgd.exact import Grid, Layer
from parley.client.models.layers import Scale
from parley.client.models.record_losses import own_losses


def _chain_of(module: nn.Module) -> Iterator[nn.Module]:
    """The modules of nested Sequentials, in the order in which they are applied."""
    if type(module) is nn.Sequential and _unchanged(module):
        for part in module:
            yield from _chain_of(part)
    else:
        yield module


def _unchanged(module: nn.Module) -> bool:
    """Whether a module computes what its class does: a hook may compute anything."""
    hooks = (module._forward_hooks, module._forward_pre_hooks)
    backward = (module._backward_hooks, module._backward_pre_hooks)
    return "forward" not in vars(module) and not any((*hooks, *backward))


def linear_layers(network: nn.Module) -> tuple[Layer, ...] | None:
    """Its layers, if it is a chain of linear layers, ReLU, tanh and factors, of at most 2²⁸ units.

    None of them frozen or shared, and the last one linear. Such a chain is computed in whole
    numbers (`parley.client.dp_sgd.exact`). Dropout draws nothing: one that would is refused
    (`parley.client.models.layers.check_layers`).
    """
    found: list[Layer] = []
    before: list[str | float] = []
    modules = list(_chain_of(network))
    parameters = [p for module in modules for p in module.parameters()]
    shared = len(set(map(id, parameters))) < len(parameters)
    if own_losses(network) is not None or shared or type(modules[-1]) is not nn.Linear:
        return None
    for module in modules:
        kind = type(module)
        if not _unchanged(module) or not all(p.requires_grad for p in module.parameters()):
            return None
        own = {name: parameter.shape for name, parameter in module.named_parameters()}
        if kind is nn.Linear and {"weight"} <= own.keys() <= {"weight", "bias"}:
            outputs, inputs = own["weight"]
            found.append(Layer(inputs, outputs, "bias" in own, tuple(before)))
            before = []
        elif isinstance(module, Scale):
            before.append(float(module.factor))
        elif kind in (nn.ReLU, nn.Tanh):
            before.append("relu" if kind is nn.ReLU else "tanh")
        elif not (kind in (nn.Identity, nn.Dropout) or _flattens(module)):
            return None
    return tuple(found) if Grid.fits(found) else None


def _flattens(module: nn.Module) -> bool:
    """Whether rows stay rows: those of a record are flat already."""
    return type(module) is nn.Flatten and module.start_dim >= 1
