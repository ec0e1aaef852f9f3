"""Sums of one step's batches: of a party by itself, or of many parties in one pass.

    g_j = Σ_{i ∈ batch j} clip(∇_θ ℓ(f_θ(x_i), y_i), C)

A real party works on as many rows in every step, whatever it drew (`batches.compute_padded_width`):
what a batch's size would say through the time that it takes (`pad`). A larger batch is worked on
whole.

Chains of linear layers are computed in whole numbers (`parley.client.dp_sgd.exact_clipping`): a
party's sum has the same bits beside any others, in any pieces, on any number of threads. Of other
networks each party has its passes (`parley.client.dp_sgd.torch_gradients`), of one shape, whose
rows follow from a public number of records.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor

from parley.client.data.record_chunks import compute_core_ranges, map_chunks
from parley.client.dp_sgd.batch_invariance import find_layout
from parley.client.dp_sgd.drawn_batch import RecordLookup, SampledBatch
from parley.client.dp_sgd.exact_clipping import ExactChain
from parley.client.dp_sgd.exact_layers import find_exact_layers
from parley.client.dp_sgd.integer_convolution import Array
from parley.client.dp_sgd.poisson_batches import PassLayout, check_records, choose_widths
from parley.client.dp_sgd.torch_gradients import compute_torch_sums
from parley.client.dp_sgd.training_settings import LocalTraining
from parley.client.models.networks import Network
from parley.privacy.sampling.random_stream import NoiseStream

_MAX_JOINT_DIMENSION: Final = 1 << 18
"""Parameters up to which parties are in one pass: beyond, one party fills the cores."""

_ROWS_AT_ONCE: Final = (128, 256)
"""Records of a party in whole numbers that are worth a thread, and that stay in its cache."""

_WRITTEN_AT_ONCE: Final = 1 << 21
"""Numbers of windows and their gradients that stay in a machine's cache."""

_VALUES_TOGETHER: Final = 1 << 17
"""Parameters, of the parties of a chunk, that stay in the cache with records."""

_CHUNKS: Final = 2
"""Chunks that a block gives at least. Not more: threads wait for the interpreter's lock between
calls, and large calls wait least."""


def supports_joint_pass(network: Network, training: LocalTraining) -> bool:
    """Whether small parties of this network are in one pass."""
    return training.exact and network.dimension <= _MAX_JOINT_DIMENSION


def split_party_chunks(
    network: Network, parties: int, training: LocalTraining
) -> list[tuple[int, int]]:
    """Ranges (first, last + 1) of parties that are in one pass; one range where none are.

    A function of public sizes and never of the machine: streams keyed by a chunk's number give the
    same result on any number of cores.
    """
    if not supports_joint_pass(network, training):
        return [(0, parties)]
    size = max(1, min(-(-parties // _CHUNKS), _VALUES_TOGETHER // network.dimension))
    count = -(-parties // size)
    return [(parties * at // count, parties * (at + 1) // count) for at in range(count)]


def choose_layout(
    network: Network, training: LocalTraining, public: int, *, pad: bool = False
) -> PassLayout:
    """Where records stand in passes, for batches out of `public` records."""
    most = training.compute_pass_rows(network.dimension)
    widths = choose_widths(public, training.sampling_rate, pad=pad, most=most)
    if training.clip_norm is None or training.exact:
        # No record is told from another, or none moves another.
        return PassLayout(width=widths[0], period=1)
    return find_layout(network, widths)


def compute_batch_sums(
    network: Network,
    training: LocalTraining,
    layout: PassLayout,
    batch: SampledBatch,
    *,
    theta: Tensor | None = None,
    min_chunks: int = 0,
    threads: bool = False,
) -> tuple[Tensor, Tensor]:
    """`[B, d]` the sums of B parties' batches, clipped where the training clips, and `[B]` signs.

    Signs are Σ (2b_i − 1), of a training that tells the fraction of clipped gradients; else zeros.

    Args:
        theta: `[B, d]`, or `[1, d]` of all parties, of a chain in whole numbers; None: of one
            party, at the network's own θ.
        min_chunks: passes to work on at least.
        threads: a batch of one party is spread over cores, where its numbers are whole.
    """
    if theta is not None:
        return _compute_exact_sums(
            network, training, layout, batch, theta, min_chunks, threads=threads
        )
    return compute_torch_sums(network, training, layout, batch, min_chunks=min_chunks)


def _compute_exact_sums(
    network: Network,
    training: LocalTraining,
    layout: PassLayout,
    batch: SampledBatch,
    theta: Tensor,
    least: int,
    *,
    threads: bool,
) -> tuple[Tensor, Tensor]:
    """`compute_batch_sums` in whole numbers: exact sums, in whatever pieces they are added up."""
    parties = len(batch.first)
    layers = find_exact_layers(network.module)
    if layers is None:
        raise ValueError("Expected a chain (nn.Sequential) of linear layers, got another network.")
    chain = ExactChain.from_parameters(layers, theta.numpy(), network.class_weights)
    holds = layout.assign_rows(
        np.zeros_like(batch.owners), batch.owners, parties=parties, min_chunks=least
    )
    if not holds.shape[1]:  # nobody drew a record
        total = torch.zeros((parties, network.dimension), dtype=torch.float64)
        return total, torch.zeros(parties, dtype=torch.float64)

    def added(first: int, last: int) -> tuple[list[Array], Array]:
        rows, there = batch.find_positions(holds[:, first:last])
        x, y = batch.lookup(rows.ravel())
        values = x.cpu().numpy().astype(np.float64).reshape(*rows.shape, -1)
        labels = y.cpu().numpy().reshape(rows.shape)
        return chain.compute_clipped_sums(
            values, labels, there, training.radius, training.grid_bits
        )

    room = max(1, _WRITTEN_AT_ONCE // max(1, parties * chain.expanded_size))
    width = min(layout.width, room)
    least, most = (min(width, rows) if threads else width for rows in _ROWS_AT_ONCE)
    ranges = compute_core_ranges(holds.shape[1], min_rows=least, max_rows=most)
    pieces = map_chunks(added, ranges) if threads else list(starmap(added, ranges))
    sums, signs = pieces[0]
    for more, clipped in pieces[1:]:
        for at, own in enumerate(more):
            sums[at] += own
        signs += clipped
    unit = 1.0 if training.radius is None else 2.0**-training.grid_bits
    if not training.clipped_share:
        signs[:] = 0
    return torch.as_tensor(chain.flatten(sums, unit)), torch.as_tensor(signs)


def compute_party_sum(
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
    """`[d]` the sum of one party's batch; plain where the training clips no record.

    Args:
        features, labels: `[n, p]`, `[n]` all of the party's records.
        public: a number of records that everyone knows: the shape of a pass follows from it.
        pad: work on as many passes as nearly every batch needs.
        draws: where random numbers of the records' losses come from, if the network's take any.

    Raises:
        ValueError: batches too large to be added within the margin of clipping.
    """
    check_records(len(labels), training.sampling_rate)
    whole = training.exact and training.clip_norm is not None
    if not whole:
        network.set_parameters(network.to_tensor(theta).clone())
    layout = choose_layout(network, training, public, pad=pad)
    own = SampledBatch.from_one_party(
        _build_record_lookup(network, features, labels, batch, draws), batch
    )
    least = layout.count_padded_chunks(len(labels), training.sampling_rate) if pad else 0
    at = torch.as_tensor(theta)[None] if whole else None
    total, _ = compute_batch_sums(
        network, training, layout, own, theta=at, min_chunks=least, threads=True
    )
    return np.asarray(total[0].cpu().numpy())


def compute_union_sums(
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
    """`[B, d]` the clipped sums of B parties' batches at one θ, of one network.

    Args:
        features, labels: `[N, p]`, `[N]` all parties' records.
        batches: of every party, places among all N records.
        public, draws: of all parties' records; the others as in `compute_party_sum`.
    """
    each = max(1, public // len(batches))
    if training.clip_norm is None or not training.exact:
        alone = [
            compute_party_sum(
                network, theta, features, labels, batch, training,
                public=each, pad=False, draws=draws,
            )
            for batch in batches
        ]  # fmt: skip
        return np.stack(alone)
    sums = np.zeros((len(batches), network.dimension))
    chosen = _build_record_lookup(network, features, labels, np.concatenate(batches), draws)
    layout = choose_layout(network, training, each)

    def add_up(first: int, last: int) -> None:
        own = batches[first:last]
        batch = SampledBatch(
            lookup=chosen,
            positions=np.concatenate(own),
            owners=np.repeat(np.arange(len(own)), [len(each) for each in own]),
            first=np.zeros(len(own), dtype=np.int64),
        )
        at = torch.as_tensor(theta)[None]
        sums[first:last] = compute_batch_sums(network, training, layout, batch, theta=at)[0].numpy()

    map_chunks(add_up, split_party_chunks(network, len(batches), training))
    return sums


def _build_record_lookup(
    network: Network,
    features: NDArray[np.floating],
    labels: NDArray[np.generic],
    batch: NDArray[np.int64],
    draws: NoiseStream | None,
) -> RecordLookup:
    """Places → the records there, on the network's device: `[b, p]`, `[b]`.

    Random numbers of their losses stand behind them: each record of the batch has its own, which
    are independent of all others', so that one more or less in the batch changes no law of theirs.
    """
    wide = network.draws_per_record
    if wide and draws is None:
        raise ValueError("Expected a stream for the draws of records' losses, got none.")
    drawn = draw_normals(draws, len(batch) * wide).reshape(-1, wide) if wide and draws else None
    at = np.full(len(labels), -1)
    at[batch] = np.arange(len(batch))

    def chosen(rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        y = torch.as_tensor(np.asarray(labels[rows], dtype=np.int64), device=network.device)
        own = None if drawn is None or not len(drawn) else drawn[at[rows]]
        return network.with_draws(features[rows], own), y

    return chosen


def draw_normals(stream: NoiseStream, count: int) -> NDArray[np.float64]:
    """`[count]` standard normal numbers."""
    return np.asarray(ndtri(((stream.draw_words(count) >> np.uint64(11)) + 0.5) * 2.0**-53))
