"""Clipped sums of one step at one θ: of a party by itself, or of all parties of a simulation.

    g_j = Σ_{i ∈ batch j} clip(∇_θ ℓ(f_θ(x_i), y_i), C)

All parties stand at one θ, so a simulation needs one forward and one backward pass for the union of
their batches: a party's sum is then a product over its own rows. A real party works on as many rows
in every step, whatever it drew (`padded_width`): what a batch's size would say through the time
that it takes (`pad`). A batch that is larger than that is worked on whole, never cut.

Clipping is that of `parley.client.dp_sgd.clipping`, whichever way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parley.client.dp_sgd.clipping import WAYS, ghost_parts, plain_sum
from parley.client.dp_sgd.training import LocalTraining
from parley.client.models.networks import Network

__all__ = ["padded_width", "party_sum", "union_sums", "union_total"]


def padded_width(records: int, rate: float) -> int:
    """⌈qn + 6√(qn)⌉ rows, at most n: a Poisson batch is larger once in 10⁸ steps or less often.

    >>> padded_width(600, 0.05), padded_width(600, 1.0)
    (63, 600)
    """
    mean = rate * records
    return min(records, math.ceil(mean + 6 * math.sqrt(mean)))


def party_sum(
    network: Network,
    theta: NDArray[np.float64],
    features: NDArray[np.floating],
    labels: NDArray[np.generic],
    batch: NDArray[np.int64],
    training: LocalTraining,
    *,
    pad: bool,
) -> NDArray[np.float64]:
    """`[d]` the clipped sum of one party's batch; plain where the training clips no record.

    Args:
        network: at any θ.
        theta: `[d]`.
        features, labels: `[n, p]`, `[n]` all of the party's records.
        batch: `[b]` places of those that were drawn.
        training: its clip norm, way of clipping, and most records at once.
        pad: work on `padded_width` rows.
    """
    network.use(network.rows(theta))
    width = padded_width(len(labels), training.sampling_rate) if pad else 0
    rows = np.concatenate([batch, np.zeros(max(0, width - len(batch)), dtype=np.int64)])
    mask = network.rows(np.arange(len(rows)) < len(batch)) if pad else None
    total = torch.zeros(network.dimension, dtype=network.dtype, device=network.device)
    for first, last in _pieces(len(rows), training.micro_batch):
        x, y = _chosen(network, features, labels, rows[first:last])
        total += _sum(network, x, y, training, None if mask is None else mask[first:last])
    return np.asarray(total.cpu().numpy(), dtype=np.float64)


def union_sums(
    network: Network,
    theta: NDArray[np.float64],
    features: NDArray[np.floating],
    labels: NDArray[np.generic],
    batches: Sequence[NDArray[np.int64]],
    training: LocalTraining,
) -> NDArray[np.float64]:
    """`[B, d]` the clipped sums of B parties' batches, by one pass over all of them.

    Ghost clipping alone has something to gain: other ways write every gradient out, or clip none.

    Args:
        network: at any θ.
        theta: `[d]`.
        features, labels: `[N, p]`, `[N]` all parties' records.
        batches: of every party, places among all N records.
        training: its clip norm, way of clipping, and most records at once.
    """
    network.use(network.rows(theta))
    shape = (len(batches), network.dimension)
    sums = torch.zeros(shape, dtype=network.dtype, device=network.device)
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *batches])
    bounds = np.cumsum([0, *(len(batch) for batch in batches)])
    for first, last in _pieces(len(rows), training.micro_batch):
        x, y = _chosen(network, features, labels, rows[first:last])
        own = np.clip(bounds, first, last) - first  # of each party within this piece
        ranges = [(int(j), int(own[j]), int(own[j + 1])) for j in np.flatnonzero(np.diff(own))]
        if training.clip_norm is not None and training.per_example_method == "ghost":
            clipped = ghost_parts(network.module, x, y, training.clip_norm)
            with torch.no_grad():
                for party, begin, end in ranges:
                    clipped.add_to(sums[party], begin, end)
        else:
            for party, begin, end in ranges:
                sums[party] += _sum(network, x[begin:end], y[begin:end], training, None).detach()
    return np.asarray(sums.cpu().numpy(), dtype=np.float64)


def union_total(
    network: Network,
    theta: NDArray[np.float64],
    features: NDArray[np.floating],
    labels: NDArray[np.generic],
    rows: NDArray[np.int64],
    training: LocalTraining,
) -> NDArray[np.float64]:
    """`[d]` the clipped sum of all parties' batches together: nobody's own is made.

    Args:
        rows: `[b]` places of the batches' records among all N; the others as in `union_sums`.
    """
    return party_sum(network, theta, features, labels, rows, training, pad=False)


def _chosen(
    network: Network,
    features: NDArray[np.floating],
    labels: NDArray[np.generic],
    rows: NDArray[np.int64],
) -> tuple[Tensor, Tensor]:
    """The records at these places, on the network's device: `[b, p]`, `[b]`."""
    y = torch.as_tensor(np.asarray(labels[rows], dtype=np.int64), device=network.device)
    return network.rows(features[rows]), y


def _sum(
    network: Network, x: Tensor, y: Tensor, training: LocalTraining, mask: Tensor | None
) -> Tensor:
    """`[d]` of one batch; where no record is clipped, rows that are not there have no loss."""
    if training.clip_norm is None:
        return plain_sum(network.module, x, y, mask)
    return WAYS[training.per_example_method](network.module, x, y, training.clip_norm, mask)[0]


def _pieces(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of at most `most`, of about the same length."""
    pieces = -(-count // most)
    for at in range(pieces):
        yield count * at // pieces, count * (at + 1) // pieces
