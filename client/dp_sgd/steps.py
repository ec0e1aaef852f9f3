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
from scipy.special import ndtri
from torch import Tensor

from parley.client.dp_sgd.apart import Chosen, chunks_of
from parley.client.dp_sgd.clipped import Clipped
from parley.client.dp_sgd.gradients import plain_sum
from parley.client.dp_sgd.layout import check_records, widths_for
from parley.client.dp_sgd.settings import LocalTraining
from parley.client.models.networks import Network
from parley.privacy.sampling.stream import NoiseStream

_QUICK_A_PARTY = 1 << 14
"""Values of written-out gradients, for a party, up to which a product for it takes longer."""

_QUICK = 1 << 22
"""And of one pass, in memory."""


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
    public: int,
    pad: bool,
    draws: NoiseStream | None = None,
) -> NDArray[np.float64]:
    """`[d]` the clipped sum of one party's batch; plain where the training clips no record.

    Args:
        network: at any θ.
        theta: `[d]`.
        features, labels: `[n, p]`, `[n]` all of the party's records.
        batch: `[b]` places of those that were drawn.
        training: its clip norm, way of clipping, and most records at once.
        public: a number of records that everyone knows: the shape of a pass follows from it.
        pad: work on `padded_width` rows.
        draws: where random numbers of the records' losses come from, if the network's take any.

    Raises:
        ValueError: batches too large to be added within the margin of clipping.
    """
    check_records(len(labels), training.sampling_rate)
    network.use(network.rows(theta).clone())
    chosen = _chosen(network, features, labels, batch, draws)
    total = torch.zeros(network.dimension, dtype=torch.float64, device=network.device)
    if training.clip_norm is None:
        width = padded_width(len(labels), training.sampling_rate) if pad else 0
        rows = np.concatenate([batch, np.zeros(max(0, width - len(batch)), dtype=np.int64)])
        mask = network.rows(np.arange(len(rows)) < len(batch))
        for first, last in _pieces(len(rows), training.micro_batch):
            total += plain_sum(
                network.module,
                *chosen(rows[first:last]),
                mask[first:last],
                losses=network.losses,
            )
    else:
        own = len(labels) if pad else 0
        for clipped, _ in _passes(network, chosen, batch, training, public, padded=own):
            clipped.add_to(total)
    return np.asarray(total.cpu().numpy())


def union_sums(
    network: Network,
    theta: NDArray[np.float64],
    features: NDArray[np.floating],
    labels: NDArray[np.generic],
    batches: Sequence[NDArray[np.int64]],
    training: LocalTraining,
    *,
    public: int,
    draws: NoiseStream | None = None,
) -> NDArray[np.float64]:
    """`[B, d]` the clipped sums of B parties' batches, by one pass over all of them.

    Ghost clipping alone has something to gain: other ways write every gradient out, or clip none.

    Args:
        network: at any θ.
        theta: `[d]`.
        features, labels: `[N, p]`, `[N]` all parties' records.
        batches: of every party, places among all N records.
        training: its clip norm, way of clipping, and most records at once.
        public, draws: of all parties' records; see `party_sum`.
    """
    if training.clip_norm is None:
        plain = [
            party_sum(
                network,
                theta,
                features,
                labels,
                batch,
                training,
                public=public,
                pad=False,
                draws=draws,
            )
            for batch in batches
        ]
        return np.stack(plain)
    network.use(network.rows(theta).clone())
    shape = (len(batches), network.dimension)
    zeros = np.zeros(shape)  # on large pages, which torch's own are not: a quarter of the time
    sums = torch.from_numpy(zeros).to(network.device)
    owners = np.repeat(np.arange(len(batches)), [len(batch) for batch in batches])
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *batches])
    chosen = _chosen(network, features, labels, rows, draws)
    for clipped, holds in _passes(network, chosen, rows, training, public):
        there = np.flatnonzero(holds >= 0)
        of = owners[holds[there]]
        with torch.no_grad():
            parties = np.unique(of)
            if len(of) * clipped.size <= min(len(parties) * _QUICK_A_PARTY, _QUICK):
                clipped.rows(there).add_each_to(sums, torch.as_tensor(of, device=sums.device))
                continue
            for party in parties:
                clipped.rows(there[of == party]).add_to(sums[party])
    return np.asarray(sums.cpu().numpy())


def union_total(
    network: Network,
    theta: NDArray[np.float64],
    features: NDArray[np.floating],
    labels: NDArray[np.generic],
    rows: NDArray[np.int64],
    training: LocalTraining,
    *,
    public: int,
    draws: NoiseStream | None = None,
) -> NDArray[np.float64]:
    """`[d]` the clipped sum of all parties' batches together: nobody's own is made.

    Args:
        rows: `[b]` places of the batches' records among all N; the others as in `union_sums`.
    """
    return party_sum(
        network, theta, features, labels, rows, training, public=public, pad=False, draws=draws
    )


def _chosen(
    network: Network,
    features: NDArray[np.floating],
    labels: NDArray[np.generic],
    batch: NDArray[np.int64],
    draws: NoiseStream | None,
) -> Chosen:
    """Places → the records there, on the network's device: `[b, p]`, `[b]`.

    Random numbers of their losses stand behind them: each record of the batch has its own, which
    are independent of all others', so that one more or less in the batch changes no law of theirs.
    """
    wide = network.draws
    if wide and draws is None:
        raise ValueError("Expected a stream for the draws of records' losses, got none.")
    drawn = normal_of(draws, len(batch) * wide).reshape(-1, wide) if wide and draws else None
    at = np.full(len(labels), -1)
    at[batch] = np.arange(len(batch))

    def chosen(rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        y = torch.as_tensor(np.asarray(labels[rows], dtype=np.int64), device=network.device)
        own = None if drawn is None or not len(drawn) else drawn[at[rows]]
        return network.with_draws(features[rows], own), y

    return chosen


def normal_of(stream: NoiseStream, count: int) -> NDArray[np.float64]:
    """`[count]` standard normal numbers."""
    return np.asarray(ndtri(((stream.words(count) >> np.uint64(11)) + 0.5) * 2.0**-53))


def _passes(
    network: Network,
    chosen: Chosen,
    batch: NDArray[np.int64],
    training: LocalTraining,
    public: int,
    *,
    padded: int = 0,
) -> Iterator[tuple[Clipped, NDArray[np.int64]]]:
    """Passes over a batch: as many as a party of `padded` records works on; 0: as it needs."""
    rate, most = training.sampling_rate, training.most_at_once(network.dimension)
    return chunks_of(
        network,
        training.per_example_method,
        float(training.clip_norm or 0),
        chosen,
        batch,
        widths=widths_for(public, rate, pad=bool(padded), most=most),
        padded=lambda layout: layout.padded(padded, rate) if padded else 0,
    )


def _pieces(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of at most `most`, of about the same length."""
    pieces = -(-count // most)
    for at in range(pieces):
        yield count * at // pieces, count * (at + 1) // pieces
