"""Layers of networks: Parley's own networks, and checks that refuse unsuitable layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from parley.client.data.memory_limit import GIB, compute_free_bytes


class NetworkError(ValueError):
    """A model cannot be loaded, or its records cannot be separated."""


_PARAMETER_BYTES = 40
"""Bytes per parameter: the network, its start, θ, a gradient and a contribution in the ring."""


def check_model_size(parameters: int) -> None:
    """Check that this machine has memory for a model of so many parameters.

    Raises:
        NetworkError: it does not; the message has the parameters, their memory and the limit.
    """
    free, needed = compute_free_bytes(), parameters * _PARAMETER_BYTES
    if free is not None and needed > free:
        expected = f"a model that fits in the {free / GIB:.1f} GiB of memory left on this machine"
        got = f"{parameters:,} parameters, which take {needed / GIB:,.1f} GiB"
        remedy = "Use smaller or fewer layers (model.hidden), or a machine with more memory."
        raise NetworkError(f"Expected {expected}, got {got}. {remedy}")


class ScaleLayer(nn.Module):
    """x times a public factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """Return x times the factor."""
        return x * self.factor


def _build_mlp(features: int, classes: int, hidden: Sequence[int]) -> nn.Module:
    widths = [features, *hidden]
    check_model_size(sum((a + 1) * b for a, b in pairwise([*widths, classes])))
    layers: list[nn.Module] = [ScaleLayer(math.sqrt(features))]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))


def _build_cnn(features: int, classes: int, hidden: Sequence[int]) -> nn.Module:
    side = math.isqrt(features)
    if side * side != features or side < 16:
        expected = "Expected square images of at least 16 × 16 pixels for model.kind = 'cnn'"
        raise NetworkError(f"{expected}, got rows of {features} features.")
    body = nn.Sequential(
        ScaleLayer(math.sqrt(features)),
        nn.Unflatten(1, (1, side, side)),
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
    )
    with torch.no_grad():
        width = body(torch.zeros(1, features)).shape[1]
    return nn.Sequential(*body, nn.Linear(width, 32), nn.Tanh(), nn.Linear(32, classes))


BUILT_IN: dict[str, Callable[[int, int, Sequence[int]], nn.Module]] = {
    "mlp": _build_mlp,
    "pca-mlp": _build_mlp,
    "cnn": _build_cnn,
}


def check_layers(module: nn.Module) -> None:
    """Refuse layers that mix records or change by themselves.

    A layer in eval mode, for example in a frozen backbone, keeps records separate.

    Raises NetworkError.
    """
    known = {id(parameter) for parameter in module.parameters()}
    for name, layer in module.named_modules():
        kind = type(layer).__name__
        _check_registered(layer, name or "the model", known)
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and _is_learning(layer):
            raise NetworkError(
                f"Expected layers that keep records separate, got {kind} ({name or 'the model'}). "
                "It uses the batch's mean, so one record would change the gradients of all others. "
                "Use torch.nn.GroupNorm. A layer trained on public data may stay: call its eval() "
                "when you build it."
            )
        learns = any(parameter.requires_grad for parameter in layer.parameters())
        if isinstance(layer, torch.jit.ScriptModule) and learns:
            raise NetworkError(
                f"Expected a module in Python, got TorchScript ({name or 'the model'}), in which "
                "records' gradients cannot be separated. Pass the module as it was before "
                "torch.jit.script, or call requires_grad_(False) on each of its parameters."
            )
        if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and (
            layer.track_running_stats and _is_learning(layer)
        ):
            expected = "Expected layers that keep records separate"
            remedy = "Use torch.nn.GroupNorm."
            raise NetworkError(f"{expected}, got {kind} ({name}) with running statistics. {remedy}")


def turn_off_dropout(module: nn.Module) -> list[str]:
    """Set the rate of all dropout in training mode to 0, and return the names of its layers.

    Dropout draws random numbers, so a seeded run would not repeat, and a record's gradient would
    depend on more than the record.
    """
    changed = []
    for name, layer in module.named_modules():
        attribute = "p" if isinstance(layer, nn.modules.dropout._DropoutNd) else "dropout"
        rate = getattr(layer, attribute, 0.0)
        if layer.training and isinstance(rate, float) and rate > 0:
            setattr(layer, attribute, 0.0)
            changed.append(name or type(layer).__name__)
    return changed


def _check_registered(layer: nn.Module, name: str, known: set[int]) -> None:
    """Refuse layers and parameters that torch does not know: they would never be trained or saved.

    Args:
        known: ids of all registered parameters of the model.
    """
    for attribute, value in vars(layer).items():
        if attribute in _TORCH_ATTRIBUTES:
            continue
        parts = list(_iterate_parts(value))
        tensors = [part for part in parts if isinstance(part, Tensor)]
        layers = [part for part in parts if isinstance(part, nn.Module)]
        learned = [parameter for part in layers for parameter in part.parameters()]
        if not {id(parameter) for parameter in learned} <= known:
            right = "ModuleDict" if isinstance(value, dict) else "ModuleList"
            raise NetworkError(
                f"Expected layers that torch registers, got {attribute} of {type(layer).__name__} "
                f"({name}), a plain {type(value).__name__} of layers, which would not be trained. "
                f"Use torch.nn.{right}."
            )
        # A tensor computed from registered parameters, as by weight_norm, is not a leaf.
        own = [each for each in tensors if each.requires_grad and each.is_leaf]
        if not {id(tensor) for tensor in own} <= known:
            raise NetworkError(
                f"Expected parameters that torch registers, got {attribute} of "
                f"{type(layer).__name__} ({name}), a plain {type(value).__name__}, which would not "
                "be trained. Use torch.nn.Parameter, or torch.nn.ParameterList for several."
            )


def _iterate_parts(value: object) -> Iterator[object]:
    """Yield a value, or its elements if it is a plain container."""
    if isinstance(value, dict | list | tuple | set):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _iterate_parts(part)
    else:
        yield value


_TORCH_ATTRIBUTES = frozenset(vars(nn.Module()))
"""Attributes of each module: its registered parameters, buffers, layers and hooks."""


def _is_learning(layer: nn.modules.batchnorm._NormBase) -> bool:
    """Return whether a layer uses a batch's statistics: in training, or if it stores none."""
    return layer.training or layer.running_mean is None


def _is_equal(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors have the same shape and values; NaN equals NaN."""
    if first.shape != second.shape:
        return False
    return bool(((first == second) | (first.isnan() & second.isnan())).all())


_REPEATS = 8
"""Passes that are compared with the first. Dropout of few scores can draw the same mask twice."""


def check_repeatable(
    module: nn.Module, rows: Tensor, forward: Callable[[Tensor], Tensor] | None = None
) -> None:
    """Refuse a forward pass that changes the module, or returns other scores when repeated.

    Args:
        forward: function to check instead of the module's own forward pass.

    Raises NetworkError.
    """
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    compute, given = forward or module, rows.clone()
    with torch.no_grad():
        first = compute(given)
        others = [compute(rows.clone()) for _ in range(_REPEATS)]
    if not torch.equal(given, rows):
        raise NetworkError(
            "Expected a forward pass that leaves its input as it is, but it changed the rows in "
            "place. Write x = 2 * x instead of x *= 2, and torch.where instead of x[mask] = value."
        )
    for name, buffer in module.named_buffers():
        if name not in before or not _is_equal(before[name], buffer):
            raise NetworkError(
                f"Expected layers that a forward pass does not change, but it changed the buffer "
                f"{name}. The buffer would carry information from one batch to the next without "
                "clipping and noise, as torch's spectral_norm and running statistics do. Put its "
                "layer into eval mode, or use torch.nn.GroupNorm or weight_norm."
            )
    if not all(torch.allclose(first, each, rtol=0, atol=0, equal_nan=True) for each in others):
        raise NetworkError(
            "Expected the same scores for the same rows, got others: the model draws random "
            "numbers, or remembers rows or passes. Remove functional.dropout and other random "
            "numbers from its forward pass, and what one pass stores for the next, such as a "
            "counter."
        )
