"""Which way clips records: one whose sums were seen to agree with a loop over records.

A way of `parley.client.dp_sgd.clipping` is fast because it supposes something of the network: that
a layer's first axis is the batch, that its weights are used by it alone, that its output is what
others see. Where a network breaks that, its sums can clip places of a record, or records mixed with
others. So
none is believed: on made-up rows of the real width its sums are compared with those of a loop, in
which every record is alone,

| over | |
|---|---|
| batches | of 1, 2, 3 and 5 records: no other axis of a network has all these lengths |
| clips | half of the least gradient (every record is clipped), the median, beyond the largest |
| θ | the start, and one moved at random: layers that start at 0 hide what is behind them |
| rows | of norm 1, .05 and 20, of both signs and of one |
| precisions | float32 and float64, where the network runs in both |

and, for ghost clipping of a small network, parties together too. The server chooses a way so, and a
party puts the way that the server names through the same check: a wrong one would cost its records.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from parley.client.dp_sgd.clip_factors import clip_factors
from parley.client.dp_sgd.clipping import WAYS
from parley.client.dp_sgd.clipping_dense import Dense
from parley.client.dp_sgd.ghost import ghost_layers
from parley.client.dp_sgd.gradients import plain_sum, trainable
from parley.client.models.networks import Network

_BATCHES: Final = (1, 2, 3, 5)
_TOLERANCES: Final = {torch.float64: 1e-6, torch.float32: 2e-2}
"""Of the sum of clipped norms; in float32 a record near a kink may be on its other side."""

_AUTO: Final = ("ghost", "vmap", "opacus")
"""What is tried unasked: a loop is tens of times slower, and its user should know."""

_TOGETHER: Final = 50_000
"""Parameters up to which parties together are compared too: larger ones train alone."""


class WayError(ValueError):
    """No way, or not the one wanted, gives the clipped sums of a loop over records."""


def choose_way(network: Network, *, wanted: str = "auto") -> str:
    """The first way, or the one wanted, that gives a loop's clipped sums on made-up batches.

    Raises:
        WayError: none does, with what each one said and what to do.
    """
    said = []
    for name in _AUTO if wanted == "auto" else (wanted,):
        try:
            check_way(network, name)
        except WayError as error:
            said.append(f"{name}: {error}")
        else:
            return name
    raise WayError(
        f"Expected a model whose records' gradients can be separated, got {'; '.join(said)}. "
        f"{_remedy(network.module)}"
    )


def check_way(network: Network, way: str) -> None:
    """Refuses a way that does not give this network's clipped sums.

    Raises:
        WayError: what it does otherwise.
    """
    if network.kind.partition(":")[0].endswith(".py"):
        _compare(network, way)  # a file may have changed since
        return
    _checked(
        network.kind,
        network.features,
        network.classes,
        network.hidden,
        network.losses.weights,
        network.dtype,
        str(network.device),
        way,
    )


@functools.lru_cache(maxsize=64)
def _checked(
    kind: str,
    features: int,
    classes: int,
    hidden: tuple[int, ...],
    weights: tuple[float, ...],
    dtype: torch.dtype,
    device: str,
    way: str,
) -> None:
    """Once a process for every network by name: parties examine every round, sweeps every run."""
    network = Network.build(
        kind,
        features=features,
        classes=classes,
        hidden=hidden,
        class_weights=weights,
        precision="float64" if dtype == torch.float64 else "float32",
        device=device,
    )
    _compare(network, way)


def _remedy(module: nn.Module) -> str:
    recurrent = sorted({type(m).__name__ for m in module.modules() if isinstance(m, nn.RNNBase)})
    if recurrent:
        return (
            f"In place of {' and '.join(recurrent)} use opacus.layers.DPLSTM, DPGRU or DPRNN, "
            "which keep records apart; dp-sgd.per-example-method = 'loop' takes any layer, one "
            "record after another."
        )
    if any(isinstance(m, nn.Embedding) for m in module.modules()):
        return (
            "Rows reach a model as real numbers of norm at most 1: scale and clamp them to the "
            "indices of an Embedding."
        )
    return "dp-sgd.per-example-method = 'loop' takes any layer, one record after another."


@dataclass(frozen=True, kw_only=True)
class _Case:
    """Made-up rows `[5, p]`, labels `[5]`, and every record's gradient by itself `[5, d]`."""

    rows: Tensor
    labels: Tensor
    gradients: Tensor


def _compare(network: Network, way: str) -> None:
    if way not in WAYS:
        raise WayError(f"Expected one of {', '.join(WAYS)}, got {way!r}.")
    if way == "ghost" and ghost_layers(network.module) is None:
        raise WayError("layers other than torch's own Linear and Conv2d")
    own, compared, said = network.dtype, 0, "its gradients are all zero"
    for dtype in (own, *(other for other in _TOLERANCES if other != own)):
        for moved, factor, signed in ((0, 1.0, 1), (1, 0.05, 1), (1, 20.0, 1), (0, 1.0, 0)):
            with _as(network.module, dtype, moved=bool(moved)):
                try:
                    case = _made_up(network, factor, signed=bool(signed))
                except Exception as error:
                    # The network's own limit, in any way: other cases tell about the way.
                    said = f"the model raised {_first_line(error)}"
                    continue
                if case is None:
                    continue
                _compare_case(network, case, way)
                compared += dtype == own
    if not compared:
        raise WayError(f"nothing to compare on made-up rows: {said}")


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


@contextmanager
def _as(module: nn.Module, dtype: torch.dtype, *, moved: bool) -> Iterator[None]:
    """The module in another precision, or at another θ; afterwards as it was, to the bit."""
    tensors = [*module.parameters(), *module.buffers()]
    kept = [tensor.data for tensor in tensors]
    generator = torch.Generator().manual_seed(1)
    try:
        for tensor in tensors:
            if tensor.is_floating_point():
                tensor.data = tensor.data.to(dtype)
        for parameter in trainable(module).values() if moved else ():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            size = max(float(parameter.data.square().mean().sqrt()), 0.1)
            parameter.data = parameter.data + 0.5 * size * noise.to(parameter)
        yield
    finally:
        for tensor, data in zip(tensors, kept, strict=True):
            tensor.data = data


def _made_up(network: Network, factor: float, *, signed: bool) -> _Case | None:
    """Rows of norm `factor` and their gradients; None where these say nothing."""
    module, records = network.module, max(_BATCHES)
    parameter = next(iter(trainable(module).values()))
    generator = torch.Generator().manual_seed(0)
    made = torch.randn((records, network.features), generator=generator, dtype=torch.float64)
    made = factor * made / made.norm(dim=1, keepdim=True)
    made = made if signed else made.abs()
    drawn = torch.randn((records, network.draws), generator=generator, dtype=torch.float64)
    rows = torch.cat([made, drawn], dim=1).to(parameter)
    labels = torch.randint(0, network.classes, (records,), generator=generator)
    labels = labels.to(parameter.device)
    gradients = torch.stack(
        [
            plain_sum(module, row[None], label[None], losses=network.losses)
            for row, label in zip(rows, labels, strict=True)
        ]
    )
    if not torch.isfinite(gradients).all() or not gradients.any():
        return None
    return _Case(rows=rows, labels=labels, gradients=gradients)


def _compare_case(network: Network, case: _Case, way: str) -> None:
    module, losses = network.module, network.losses
    norms = case.gradients.norm(dim=1)
    there = norms[norms > 0]
    low, middle, beyond = float(there.min()) / 2, float(there.median()), 4 * float(norms.max())
    clips = [(batch, low) for batch in _BATCHES] + [(3, middle), (5, beyond)]
    for batch, clip in clips:
        x, y, own = case.rows[:batch], case.labels[:batch], norms[:batch]
        try:
            total, said = WAYS[way](module, x, y, clip, losses=losses)
        except Exception as error:
            raise WayError(_first_line(error)) from error
        _agree(total, said, case.gradients[:batch], own, clip)
    dense = Dense.of(module, losses) if way == "ghost" else None
    if dense is not None and case.gradients.shape[1] <= _TOGETHER:
        flat = nn.utils.parameters_to_vector(trainable(module).values()).detach()
        _compare_together(dense, case, flat, low)


def _compare_together(dense: Dense, case: _Case, flat: Tensor, clip: float) -> None:
    """Two parties at one θ: records 0 to 2 of the first, 2 and 3 of the second."""
    places = np.array([[0, 1, 2], [2, 3, 4]])
    mask = np.array([[1, 1, 1], [1, 1, 0]]).astype(flat.numpy().dtype)
    try:
        x, y = dense.prepared(case.rows)[places], case.labels.numpy()[places]
        total, said = dense.sums(flat.repeat(2, 1).numpy(), x, y, mask, clip)
    except Exception as error:
        raise WayError(f"parties together: {_first_line(error)}") from error
    norms = case.gradients.norm(dim=1)
    for party, batch in enumerate(([0, 1, 2], [2, 3])):
        own, its = torch.from_numpy(total[party]), torch.from_numpy(said[party, : len(batch)])
        _agree(own, its, case.gradients[batch], norms[batch], clip)


def _agree(total: Tensor, said: Tensor, each: Tensor, norms: Tensor, clip: float) -> None:
    """Compares a way's sum and norms with those of every record by itself."""
    tolerance = _TOLERANCES[each.dtype]
    expected = clip_factors(norms, clip) @ each
    whole = float(norms.clamp_max(clip).sum())
    if total.shape != expected.shape or said.shape != norms.shape:
        raise WayError("sums or norms of another shape")
    # Stated so that NaN does not pass.
    if not float((total - expected).norm()) <= tolerance * whole:
        raise WayError("not the sums of per-record gradients")
    if not bool(((said - norms).abs() <= tolerance * norms).all()):
        raise WayError("not the norms of per-record gradients")
