"""Which way clips records: the network's structure says it, the same at server and party.

| structure | way |
|---|---|
| a chain of Linear and Conv2d layers (`parley.client.dp_sgd.ghost.ghost_layers`) | ghost |
| any other that torch.func.vmap takes | vmap, in which every record is alone |

vmap clips any network's records: each is a batch of one, so that nothing of another reaches its
gradient, whatever the network does with a batch. Ghost clips those of a chain alone, and both
server and party refuse it elsewhere: it would clip places of a record, or records mixed with
others.
"""

from __future__ import annotations

import torch
from torch import nn

from parley.client.dp_sgd.clipping import WAYS
from parley.client.dp_sgd.ghost import ghost_layers
from parley.client.models.networks import Network


class WayError(ValueError):
    """A network whose records' gradients cannot be separated, or not in the way wanted."""


def choose_way(network: Network, *, wanted: str = "auto") -> str:
    """Ghost for a chain, else vmap; or the one wanted, where the network allows it.

    Raises:
        WayError: it does not, with what to do.
    """
    structural = "vmap" if ghost_layers(network.module) is None else "ghost"
    way = structural if wanted == "auto" else wanted
    check_way(network, way)
    return way


def check_way(network: Network, way: str) -> None:
    """Refuses a way that the network does not allow; `WayError` says what to do."""
    if way not in WAYS:
        raise WayError(f"Expected one of {', '.join(WAYS)}, got {way!r}.")
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
