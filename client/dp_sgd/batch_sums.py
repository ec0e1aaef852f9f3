"""Sums of one step's batches: for a single party, or for many parties in one pass.

    g_j = Σ_{i ∈ batch j} clip(∇_θ ℓ(f_θ(x_i), y_i), C)

A real party processes the same number of rows in each step, for any batch
(`poisson_batches.compute_padded_width`). Otherwise the time taken would reveal the batch's size
(`pad`). A larger batch is processed whole.

Chains of linear layers are computed in whole numbers (`parley.client.dp_sgd.exact_clipping`). A
party's sum has the same bits next to any others, in any pieces, on any number of threads. For other
networks each party has its own passes (`parley.client.dp_sgd.torch_batch_sums`). They have one
shape, and their number of rows follows from a public number of records.
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

from parley.client.data.threaded_chunks import compute_core_ranges, map_chunks
from parley.client.dp_sgd.convolution_windows import Array
from parley.client.dp_sgd.exact_clipping import ExactChain
from parley.client.dp_sgd.exact_layer_detection import find_exact_layers
from parley.client.dp_sgd.invariant_pass_layout import find_layout
from parley.client.dp_sgd.poisson_batches import PassLayout, check_records, choose_widths
from parley.client.dp_sgd.sampled_batch import RecordLookup, SampledBatch
from parley.client.dp_sgd.torch_batch_sums import compute_torch_sums
from parley.client.dp_sgd.training_settings import LocalTraining
from parley.client.models.networks import Network
from parley.privacy.sampling.random_stream import NoiseStream

_MAX_JOINT_DIMENSION: Final = 1 << 18
"""Maximum parameters with which parties share a pass. Beyond, one party fills the cores."""

_ROWS_AT_ONCE: Final = (128, 256)
"""Minimum and maximum records per thread: worth a thread, and small enough for its cache."""

_WRITTEN_AT_ONCE: Final = 1 << 21
"""Values of windows and their gradients that stay in a machine's cache."""

_VALUES_TOGETHER: Final = 1 << 17
"""Parameters, of all parties of a chunk, that stay in the cache together with records."""

_CHUNKS: Final = 2
"""Minimum number of chunks per block. More would be slower: threads wait for the interpreter's lock
between calls, and large calls wait least.
"""


def supports_joint_pass(network: Network, training: LocalTraining) -> bool:
    """Return whether small parties of this network share a pass."""
    return training.exact and network.dimension <= _MAX_JOINT_DIMENSION


def split_party_chunks(
    network: Network, parties: int, training: LocalTraining
) -> list[tuple[int, int]]:
    """Return ranges (first, last + 1) of parties that share a pass; one range if none do.

    The result depends on public sizes and never on the machine: streams keyed by a chunk's number
    give the same result on any number of cores.
    """
    if not supports_joint_pass(network, training):
        return [(0, parties)]
    size = max(1, min(-(-parties // _CHUNKS), _VALUES_TOGETHER // network.dimension))
    count = -(-parties // size)
    return [(parties * at // count, parties * (at + 1) // count) for at in range(count)]


def choose_layout(
    network: Network, training: LocalTraining, public: int, *, pad: bool = False
) -> PassLayout:
    """Return the positions of records in passes, for batches from `public` records."""
    most = training.compute_pass_rows(network.dimension)
    widths = choose_widths(public, training.sampling_rate, pad=pad, most=most)
    if training.clip_norm is None or training.exact:
        # Records are not distinguished, or no record changes another's gradient.
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
    """Compute `[B, d]` sums of B parties' batches, clipped if the training clips, and `[B]` signs.

    Signs are Σ (2b_i − 1) if the training releases the fraction of clipped gradients, otherwise
    zeros.

    Args:
        theta: `[B, d]`, or `[1, d]` for all parties, for a chain in whole numbers; None: one party,
            at the network's own θ.
        min_chunks: minimum number of passes.
        threads: whether one party's batch is spread over cores, if its numbers are whole.
    """
    if theta is None:
        return compute_torch_sums(network, training, layout, batch, min_chunks=min_chunks)
    # In whole numbers: the sums are exact for any split into pieces.
    parties = len(batch.first)
    layers = find_exact_layers(network.module)
    if layers is None:
        raise ValueError("Expected a chain (nn.Sequential) of linear layers, got another network.")
    chain = ExactChain.from_parameters(layers, theta.numpy(), network.class_weights)
    classes = np.zeros_like(batch.owners)
    holds = layout.assign_rows(classes, batch.owners, parties=parties, min_chunks=min_chunks)
    if not holds.shape[1]:  # no party sampled a record
        total = torch.zeros((parties, network.dimension), dtype=torch.float64)
        return total, torch.zeros(parties, dtype=torch.float64)

    def added(first: int, last: int) -> tuple[list[Array], Array]:
        rows, there = batch.find_positions(holds[:, first:last])
        x, y = batch.lookup(rows.ravel())
        values = x.cpu().numpy().astype(np.float64).reshape(*rows.shape, -1)
        labels = y.cpu().numpy().reshape(rows.shape)
        radius, bits = training.radius, training.grid_bits
        return chain.compute_clipped_sums(values, labels, there, radius, bits)

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
    """Compute `[d]`, the sum of one party's batch; not clipped if the training clips no record.

    Args:
        features, labels: `[n, p]`, `[n]` all of the party's records.
        public: a public number of records, from which the shape of a pass follows.
        pad: whether to process as many passes as nearly all batches need.
        draws: stream of the random numbers of the records' losses, if the network's use any.

    Raises:
        ValueError: batches are too large to be added within the margin of clipping.
    """
    check_records(len(labels), training.sampling_rate)
    whole = training.exact and training.clip_norm is not None
    if not whole:
        network.set_parameters(network.to_tensor(theta).clone())
    layout = choose_layout(network, training, public, pad=pad)
    lookup = _build_record_lookup(network, features, labels, batch, draws)
    own = SampledBatch.from_one_party(lookup, batch)
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
    """Compute `[B, d]` clipped sums of B parties' batches at one θ, for one network.

    Args:
        features, labels: `[N, p]`, `[N]` all parties' records.
        batches: per party, positions among all N records.
        public, draws: for all parties' records; the others are as in `compute_party_sum`.
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
    """Build a function from positions to records on the network's device: `[b, p]`, `[b]`.

    Random numbers of their losses follow them. Each record of the batch has its own, independent of
    all others', so that one more or one fewer record in the batch does not change their
    distribution.
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
    """Sample `[count]` standard normal numbers."""
    return np.asarray(ndtri(((stream.draw_words(count) >> np.uint64(11)) + 0.5) * 2.0**-53))
