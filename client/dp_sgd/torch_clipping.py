"""Clipped sums of networks that torch computes: each record's gradient, in whole numbers.

    s = Σ_i w_i,   w_i: g_i = ∇_θ ℓ(f_θ(x_i), y_i) times min(1, C/‖g_i‖), cut to multiples of 2^-b

θ is the trainable parameters (`requires_grad`); frozen ones are constants of f. vmap(grad) of
torch.func writes out each record's gradient.

**A record moves the sum by at most C**, for each θ and record. The factor by which a gradient is
shortened is only an estimate. The check against the ball of radius C is made on the whole numbers
that are added (`parley.client.models.contribution_clipping.clip_rows`). A vector outside the ball,
or a gradient that is not finite, adds nothing. Their sum is exact in any order. That g_i is a
function of only the record and θ is tested, not proved
(`parley.client.dp_sgd.invariant_pass_layout`).

Chains of linear layers and convolutions, such as the built-in networks, are computed in whole
numbers throughout (`parley.client.dp_sgd.exact_clipping`). A network's structure determines its
method, on server and party alike.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parley.client.data.threaded_chunks import compute_byte_ranges
from parley.client.dp_sgd.device_clipping import sum_clipped_rows
from parley.client.dp_sgd.exact_layer_detection import find_exact_layers
from parley.client.dp_sgd.training_settings import EXACT, VMAP
from parley.client.models.contribution_clipping import clip_rows
from parley.client.models.networks import Network
from parley.client.models.record_losses import CROSS_ENTROPY, RecordLosses
from parley.client.own_code.own_code_errors import list_code_failures
from parley.client.own_code.own_code_loading import describe_failure

# torch computes such an operation record by record. A user cannot change that.
warnings.filterwarnings("ignore", message="There is a performance drop because we have not yet")


class _LossModule(nn.Module):
    """A network that returns its records' losses: for torch.func, which calls modules."""

    def __init__(self, network: nn.Module, losses: RecordLosses) -> None:
        super().__init__()
        self.network, self.losses = network, losses

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.losses(self.network, x, y)


def get_trainable(network: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that form θ, by name: those that are not frozen."""
    return {name: p for name, p in network.named_parameters() if p.requires_grad}


def _compute_gradients(
    network: nn.Module, x: Tensor, y: Tensor, losses: RecordLosses
) -> list[Tensor]:
    """Return each record's gradient on the network's device, `[b, …]` per trainable parameter."""
    learner = _LossModule(network, losses)
    parameters = get_trainable(learner)
    named = {name: parameter.detach() for name, parameter in parameters.items()}
    places = _find_places(learner, parameters)

    def loss(theta: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        rows = (row.unsqueeze(0), label.unsqueeze(0))
        every = {place: theta[name] for place, name in places.items()}
        each: Tensor = torch.func.functional_call(learner, every, rows, tie_weights=False)
        return each.sum()

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(named, x, y)
    return [gradients[name] for name in named]


def compute_record_gradients(
    network: nn.Module, x: Tensor, y: Tensor, *, losses: RecordLosses = CROSS_ENTROPY
) -> NDArray[np.float64]:
    """Return `[b, d]` each record's gradient, in the order of `get_trainable`."""
    gradients = _compute_gradients(network, x, y, losses)
    return _join_rows([gradient.cpu() for gradient in gradients], 0, len(x))


def _join_rows(gradients: list[Tensor], first: int, last: int) -> NDArray[np.float64]:
    """Return `[last − first, d]` records' gradients in float64."""
    found, at = np.empty((last - first, sum(p[0].numel() for p in gradients))), 0
    for gradient in gradients:
        end = at + gradient[0].numel()
        found[:, at:end] = gradient[first:last].reshape(last - first, -1).numpy()
        at = end
    return found


def _find_places(module: nn.Module, parameters: dict[str, nn.Parameter]) -> dict[str, str]:
    """Return the paths at which parameters are used, each once, with the parameter's own name.

    Layers may share a parameter, and a layer may have several names. `functional_call` would
    replace a layer's parameter once for each of its names, and restore the wrong one.
    """
    names = {id(parameter): name for name, parameter in parameters.items()}
    return {
        f"{path}.{own}" if path else own: names[id(parameter)]
        for path, layer in module.named_modules()
        for own, parameter in layer._parameters.items()
        if parameter is not None and id(parameter) in names
    }


def compute_clipped_sum(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    clip: float,
    is_record: NDArray[np.bool_] | None = None,
    *,
    losses: RecordLosses = CROSS_ENTROPY,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute `[d]` the clipped sum of a batch `[b, p]`, `[b]`, and the norms `[b]` before
    clipping.

    Args:
        is_record: `[b]` flags of records; other rows are only padding. None: all are records.
    """
    gradients = _compute_gradients(network, x, y, losses)
    if x.device.type != "cpu":
        on_device = torch.cat([each.reshape(len(x), -1).double() for each in gradients], dim=1)
        weights = torch.ones(len(x)) if is_record is None else torch.as_tensor(is_record)
        on_device_sum, found = sum_clipped_rows(on_device, clip, weights.to(on_device))
        return on_device_sum.cpu().numpy(), found.cpu().numpy()
    dimension = sum(gradient[0].numel() for gradient in gradients)
    total, norms = np.zeros(dimension), np.empty(len(x))
    counted = np.ones(len(x)) if is_record is None else is_record.astype(float)
    # In pieces that stay in the cache: no float64 copy of all gradients is made.
    for first, last in compute_byte_ranges(len(x), 8 * dimension):
        rows = _join_rows(gradients, first, last)
        with np.errstate(over="ignore", invalid="ignore"):
            norms[first:last] = np.linalg.norm(rows, axis=1)
        clip_rows(rows, clip)
        total += counted[first:last] @ rows  # exact: whole numbers of one unit, none above 2²⁶
    return total, norms


def compute_plain_sum(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    mask: Tensor | None = None,
    *,
    losses: RecordLosses = CROSS_ENTROPY,
) -> Tensor:
    """Compute `[d]` the sum of the batch's gradients, none clipped.

    `mask` `[b]` is 1 for a record and 0 for padding; None: all 1.
    """
    parameters = list(get_trainable(network).values())
    each = losses(network, x, y)
    total = (each if mask is None else each * mask).sum()
    gradients = torch.autograd.grad(total, parameters, allow_unused=True)
    both = zip(parameters, gradients, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for p, g in both])


class GradientMethodError(ValueError):
    """A network's per-record gradients cannot be separated, or not with the requested method."""


def choose_way(network: Network, *, wanted: str = "auto") -> str:
    """Return exact for a chain (`find_exact_layers`), otherwise vmap; or the requested method.

    Raises:
        GradientMethodError: the network does not allow it; the message shows what to do.
    """
    way = wanted
    if wanted == "auto":
        way = EXACT if find_exact_layers(network.module) else VMAP
    check_way(network, way)
    return way


def check_way(network: Network, way: str) -> None:
    """Refuse a method that the network does not allow.

    Raises:
        GradientMethodError: the message shows what to do.
    """
    if way not in (EXACT, VMAP):
        raise GradientMethodError(f"Expected {EXACT} or {VMAP}, got {way!r}.")
    if find_exact_layers(network.module):
        return
    if way == EXACT:
        raise GradientMethodError(
            "Expected a chain (nn.Sequential) of torch's own Linear, Conv, MaxPool, AvgPool, ReLU "
            "and Tanh layers for sums in whole numbers, got another network. "
            "Use dp-sgd.per-example-method = 'auto'."
        )
    generator = torch.Generator().manual_seed(0)
    made = torch.randn((2, network.features + network.draws_per_record), generator=generator)
    x = network.to_tensor((made / made.norm(dim=1, keepdim=True)).numpy())
    y = torch.zeros(2, dtype=torch.int64, device=network.device)
    try:
        compute_clipped_sum(network.module, x, y, 1.0, losses=network.losses)
    except list_code_failures() as error:
        known = (each for part, each in _OBSTACLES.items() if part in str(error))
        name, remedy = next(known, ("", ""))
        found = describe_failure(error, type(network.module).__module__, values=not name)
        if name:
            found = name + found.removeprefix(type(error).__name__)
        raise GradientMethodError(
            f"Expected a model whose records' gradients torch.func.vmap can separate, got {found}. "
            f"{remedy or _format_remedy(network.module)}"
        ) from error


_OBSTACLES = {
    "data-dependent control flow": (
        "a branch on a tensor's value, or .item()",
        "Use torch.where instead of if, and remove .item() and what prints values.",
    ),
    "dynamic shape": (
        "a shape that depends on a tensor's values",
        "Use torch.where, or multiply by a mask, instead of x[mask] and torch.nonzero.",
    ),
    "inplace arithmetic": (
        "a write into a tensor that was made without the rows",
        "Make it with x.new_zeros(...) instead of torch.zeros(...), or build it by torch.stack or "
        "torch.cat.",
    ),
    "saved tensor hooks": (
        "torch.utils.checkpoint",
        "Call the layers without it; a smaller dp-sgd.micro-batch saves memory, too.",
    ),
    "doesn't have storage": ("a tensor that leaves torch", "Use torch's functions, not numpy's."),
}
"""Part of torch's error → what it means, and a remedy."""


def _format_remedy(module: nn.Module) -> str:
    recurrent = (nn.RNNBase, nn.RNNCellBase)
    if any(isinstance(m, recurrent) for m in module.modules()):
        return "Use torch.nn's own LSTM, GRU or RNN, not a subclass, on padded sequences."
    if any(isinstance(m, nn.Embedding) for m in module.modules()):
        return (
            "A model gets rows of real numbers with norm at most 1. Scale and clamp them to the "
            "indices of an Embedding."
        )
    return "Use a forward pass without branches on values and without in-place writes."
