"""Sums of per-record gradients, each clipped first: three ways to the same numbers.

    s = Σ_i mask_i · g_i · min(1, C/N_i),   g_i = ∇_θ ℓ(f_θ(x_i), y_i),   N_i ≥ ‖g_i‖

| way | how | for |
|---|---|---|
| exact | in whole numbers: `parley.client.dp_sgd.exact` | chains of Linear, ReLU, Tanh |
| ghost | one backward pass to the layers' outputs gives norms and sum | chains of Linear, Conv2d |
| vmap | torch.func: vmap(grad), every record by itself, every g_i written out | all others |

θ is the trainable parameters (`requires_grad`): frozen ones are constants of f. The network's
structure chooses (`parley.client.dp_sgd.clipping`).

**Why a record moves the sum by at most C** in the two ways that round, for every θ and record. Let
g_i be the vector that is added, as it is stored.

1. *g_i and N_i are a function of the record and θ alone.* A product may be rounded in another order
   in a batch of another size, and where terms cancel, or at the kink of a ReLU, that makes another
   gradient, in float64 as in float32. So all passes have one shape, and a record's bits depend
   neither on its place nor on its neighbours: `parley.client.dp_sgd.apart`, which is how a step
   calls these ways.
2. *N_i ≥ ‖g_i‖.* γ_n = nu/(1 − nu) is the standard model's bound on n roundings (Higham 2002,
   section 3.1; u = 2⁻⁵³ or 2⁻²⁴, any order of summation).
   - A norm is that of numbers that exist. Ghost clipping takes a layer that is applied once a
     record as g = b aᵀ, whose norm is ‖a‖·‖b‖ *exactly*; a layer applied at T places has
     g = Σ_t b_t a_tᵀ, which is written out, and the sum takes those stored numbers.
     (⟨BᵀB, AᵀA⟩ is the same in real numbers, and adds terms of both signs up to ‖A‖²‖B‖²: at a θ
     that makes them cancel it is off by γ_T‖A‖²‖B‖², any multiple of ‖g‖², and can be negative.)
   - All that is then added is squares, of one sign, so that nothing cancels: summed by rows of a
     parameter and then over rows, ‖g‖² is too small by at most the factor 1 − γ_w, w = rows +
     columns + layers + 8. `clip_slack` raises the norm by what of this
     `parley.client.dp_sgd.settings.MARGIN` does not cover.
   - A square that underflows loses at most the smallest normal number η: as much is added where a
     product of norms could magnify it; elsewhere √(dη) is nothing beside C ≥ 2⁻⁴⁰.
   - One that overflows gives N = ∞, and the record adds zero
     (`parley.client.dp_sgd.clipped`).
3. *The sum is rounded little.* It is taken in float64 in both precisions: whatever the order, b
   clipped gradients are off by at most γ_b·b·C ≤ 2⁻¹³·C for b ≤ 10⁶ (`layout.MOST_RECORDS`), once
   with a record and once without it.

The clip aims 2⁻¹⁰·C below C (`MARGIN`): a quarter of that is for the norms, a quarter for the two
sums, a quarter for the grid that they are put on afterwards (2⁻¹³·C each).

Which way clips records: the network's structure says it, the same at server and party.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from parley.client.dp_sgd.clipped import Clipped, Written, clip_slack, clipped, trainable
from parley.client.dp_sgd.ghost import ghost_layers, ghost_pass, linear_layers
from parley.client.dp_sgd.settings import EXACT
from parley.client.models.networks import Network
from parley.client.models.record_losses import CROSS_ENTROPY, RecordLosses

Pass: TypeAlias = Callable[..., Clipped]
"""`(network, x [b, p], y [b], clip, mask=None, *, losses)`: what is known of a batch of any size.

`mask` `[b]` is 1 for a record and 0 for a row that is only worked on; None: all 1.
"""


class _Learner(nn.Module):
    """A network that gives its records' losses: for torch.func, which calls modules."""

    def __init__(self, network: nn.Module, losses: RecordLosses) -> None:
        super().__init__()
        self.network, self.losses = network, losses

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.losses(self.network, x, y)


def _vmap(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    clip: float,
    mask: Tensor | None = None,
    *,
    losses: RecordLosses = CROSS_ENTROPY,
) -> Clipped:
    """Every record's gradient by vmap(grad), written out `[b, d]`."""
    learner = _Learner(network, losses)
    named = {name: parameter.detach() for name, parameter in trainable(learner).items()}

    def loss(parameters: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        rows = (row.unsqueeze(0), label.unsqueeze(0))
        each: Tensor = torch.func.functional_call(learner, parameters, rows)
        return each.sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(named, x, y)
    return clipped(tuple(Written(each[name]) for name in named), clip_slack(network), clip, mask)


PASSES: dict[str, Pass] = {"ghost": ghost_pass, "vmap": _vmap}


def clipped_sum(way: str, *batch: Any, **settings: Any) -> tuple[Tensor, Tensor]:
    """The clipped sum `[d]` of one batch, in the order of `trainable`, and the norms `[b]`."""
    found = PASSES[way](*batch, **settings)
    return found.total(), found.norms


WAYS = {name: partial(clipped_sum, name) for name in PASSES}
"""The sum and the norms of one batch, by the name of the pass."""

_CHOICES = (EXACT, *PASSES)


class WayError(ValueError):
    """A network whose records' gradients cannot be separated, or not in the way wanted."""


def choose_way(network: Network, *, wanted: str = "auto") -> str:
    """Exact for a chain of linear layers, ghost for another, else vmap; or the one wanted.

    Raises:
        WayError: the network does not allow it, with what to do.
    """
    way = wanted
    if wanted == "auto":
        chain = ghost_layers(network.module) is not None
        way = EXACT if linear_layers(network.module) else "ghost" if chain else "vmap"
    check_way(network, way)
    return way


def check_way(network: Network, way: str) -> None:
    """Refuses a way that the network does not allow; `WayError` says what to do."""
    if way not in _CHOICES:
        raise WayError(f"Expected one of {', '.join(_CHOICES)}, got {way!r}.")
    if way == EXACT and linear_layers(network.module) is None:
        raise WayError(
            "Expected a chain (nn.Sequential) of torch's own Linear, ReLU and Tanh layers for sums "
            "in whole numbers, got another network. dp-sgd.per-example-method = 'auto' takes it."
        )
    chain = ghost_layers(network.module) is not None
    if way == "ghost" and not chain:
        raise WayError(
            "Expected a chain of torch's own Linear and Conv2d layers (nn.Sequential) for ghost "
            "clipping, got another network: ghost would clip something else than records. "
            "dp-sgd.per-example-method = 'vmap' takes it."
        )
    if chain:
        return
    generator = torch.Generator().manual_seed(0)
    made = torch.randn((2, network.features + network.draws), generator=generator)
    x = network.rows((made / made.norm(dim=1, keepdim=True)).numpy())
    y = torch.zeros(2, dtype=torch.int64, device=network.device)
    try:
        WAYS["vmap"](network.module, x, y, 1.0, losses=network.losses)
    except Exception as error:  # a user's own network: whatever it says is handed on
        lines = str(error).splitlines() or [""]
        raise WayError(
            "Expected a model whose records' gradients torch.func.vmap can separate, got "
            f"{type(error).__name__}: {lines[0]} {_remedy(network.module)}"
        ) from error


def _remedy(module: nn.Module) -> str:
    recurrent = sorted({type(m).__name__ for m in module.modules() if isinstance(m, nn.RNNBase)})
    if recurrent:
        return (
            f"In place of {' and '.join(recurrent)} use opacus.layers.DPLSTM, DPGRU or DPRNN, "
            "which keep records apart."
        )
    if any(isinstance(m, nn.Embedding) for m in module.modules()):
        return (
            "Rows reach a model as real numbers of norm at most 1: scale and clamp them to the "
            "indices of an Embedding."
        )
    return "A forward pass without branches on values, and without writing in place, is taken."
