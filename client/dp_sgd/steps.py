"""Sums of one step's batches: of a party by itself, or of many parties in one pass.

    g_j = Σ_{i ∈ batch j} clip(∇_θ ℓ(f_θ(x_i), y_i), C)

A real party works on as many rows in every step, whatever it drew (`layout.padded_width`): what a
batch's size would say through the time that it takes (`pad`). A larger batch is worked on whole.

Many small parties stand in one pass, each with its own rows and its own θ (`stacks`): a layer is
one call for all of them and one product for each. In one thread a party's sum has the same bits
whoever stands beside it. All passes have one shape (`parley.client.dp_sgd.apart`), whose rows
follow from a public number of records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor

from parley.client.data.chunks import for_each_chunk
from parley.client.dp_sgd.apart import layout_of
from parley.client.dp_sgd.batches import Layout, check_records, record_classes, widths_for
from parley.client.dp_sgd.clipped import clip_signs, plain_sum
from parley.client.dp_sgd.clipping import PASSES
from parley.client.dp_sgd.ghost import stacks
from parley.client.dp_sgd.settings import LocalTraining
from parley.client.models.networks import Network
from parley.privacy.sampling.stream import NoiseStream

Chosen: TypeAlias = Callable[[NDArray[np.int64]], tuple[Tensor, Tensor]]
"""Places in the data → their rows and labels on the network's device."""

_LARGEST_TOGETHER: Final = 1 << 18
"""Parameters up to which parties are in one pass: beyond, one party fills the cores."""

_VALUES_TOGETHER: Final = 1 << 17
"""Parameters, of the parties of a chunk, that stay in the cache with records."""

_CHUNKS: Final = 2
"""Chunks that a block gives at least. Not more: threads wait for the interpreter's lock between
calls, and large calls wait least."""


def together(network: Network, training: LocalTraining) -> bool:
    """Whether small parties of this network are in one pass."""
    return (
        network.dimension <= _LARGEST_TOGETHER
        and training.per_example_method == "ghost"
        and network.device.type == "cpu"
        and stacks(network.module)
    )


def party_chunks(network: Network, parties: int, training: LocalTraining) -> list[tuple[int, int]]:
    """Ranges (first, last + 1) of parties that are in one pass; one range where none are.

    A function of public sizes and never of the machine: streams keyed by a chunk's number give the
    same result on any number of cores.
    """
    if not together(network, training):
        return [(0, parties)]
    size = max(1, min(-(-parties // _CHUNKS), _VALUES_TOGETHER // network.dimension))
    count = -(-parties // size)
    return [(parties * at // count, parties * (at + 1) // count) for at in range(count)]


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch in one thread: products of many parties then keep each party's bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What B parties drew.

    Attributes:
        first: `[B]` a place of each party, which rows of weight zero repeat: no party's values
            touch another's.
    """

    chosen: Chosen
    places: NDArray[np.int64]
    owners: NDArray[np.int64]
    first: NDArray[np.int64]

    @classmethod
    def of_one(cls, chosen: Chosen, places: NDArray[np.int64]) -> Batch:
        """Of one party."""
        zero = np.zeros(1, dtype=np.int64)
        return cls(chosen=chosen, places=places, owners=np.zeros_like(places), first=zero)


def layout_for(
    network: Network,
    training: LocalTraining,
    public: int,
    *,
    pad: bool = False,
    stacked: bool = False,
) -> Layout:
    """Where records stand in passes, for batches out of `public` records."""
    most = training.most_at_once(network.dimension)
    widths = widths_for(public, training.sampling_rate, pad=pad, most=most)
    if training.clip_norm is None:  # no record is told from another
        return Layout(width=widths[0], period=1)
    return layout_of(network, training.per_example_method, widths, stacked=stacked)


def batch_sums(
    network: Network,
    training: LocalTraining,
    layout: Layout,
    batch: Batch,
    *,
    theta: Tensor | None = None,
    least: int = 0,
) -> tuple[Tensor, Tensor]:
    """`[B, d]` the sums of B parties' batches, clipped where the training clips, and `[B]` signs.

    Signs are Σ (2b_i − 1), of a training that tells the fraction of clipped gradients; else zeros.

    Args:
        theta: `[B, d]` of parties that are in one pass.
        least: passes to work on at least.
    """
    parties, classes = len(batch.first), np.zeros(len(batch.places), dtype=np.int64)
    if layout.period > 1 and len(batch.places):
        x, y = batch.chosen(batch.places)
        classes = record_classes(x.cpu().numpy(), y.cpu().numpy(), layout.period)
    holds = layout.holds(classes, batch.owners, parties=parties, least=least)
    places = np.append(batch.places, 0)
    shape = (parties, network.dimension)
    total = torch.zeros(shape, dtype=torch.float64, device=network.device)
    signs = torch.zeros(parties, dtype=torch.float64, device=network.device)
    for at in range(0, holds.shape[1], layout.width):
        own = holds[:, at : at + layout.width]
        there = own >= 0
        # Parties without a record in these rows are in no pass; one alone may have to work on them.
        who = np.flatnonzero(there.any(axis=1)) if parties > 1 else np.arange(1)
        own, there = own[who], there[who]
        x, y = batch.chosen(np.where(there, places[own], batch.first[who, None]).ravel())
        mask = network.rows(there.ravel())
        here = torch.as_tensor(who, device=network.device)
        given = {} if theta is None else {"theta": theta[here]}
        if training.clip_norm is not None or theta is not None:
            # New memory: an address within a larger tensor may be of another alignment.
            found = PASSES[training.per_example_method](
                network.module, x.clone(), y, training.clip_norm, mask,
                losses=network.losses, **given,
            )  # fmt: skip
            total.index_add_(0, here, found.total())
            if training.clip_norm is not None and training.clipped_share:
                of_each = clip_signs(found.norms, training.clip_norm) * mask
                signs.index_add_(0, here, of_each.view(len(who), -1).sum(1))
        else:
            total += plain_sum(network.module, x, y, mask, losses=network.losses)
    return total, signs


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
    network.use(network.rows(theta).clone())
    layout = layout_for(network, training, public, pad=pad)
    own = Batch.of_one(_chosen(network, features, labels, batch, draws), batch)
    least = layout.padded(len(labels), training.sampling_rate) if pad else 0
    total, _ = batch_sums(network, training, layout, own, least=least)
    return np.asarray(total[0].cpu().numpy())


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
    """`[B, d]` the clipped sums of B parties' batches at one θ, of one network.

    Args:
        features, labels: `[N, p]`, `[N]` all parties' records.
        batches: of every party, places among all N records.
        public, draws: of all parties' records; the others as in `party_sum`.
    """
    each = max(1, public // len(batches))
    if training.clip_norm is None or not together(network, training):
        alone = [
            party_sum(
                network, theta, features, labels, batch, training,
                public=each, pad=False, draws=draws,
            )
            for batch in batches
        ]  # fmt: skip
        return np.stack(alone)
    sums = np.zeros((len(batches), network.dimension))
    chosen = _chosen(network, features, labels, np.concatenate(batches), draws)
    with one_thread():
        layout = layout_for(network, training, each, stacked=True)

    def add_up(first: int, last: int) -> None:
        own = batches[first:last]
        batch = Batch(
            chosen=chosen,
            places=np.concatenate(own),
            owners=np.repeat(np.arange(len(own)), [len(each) for each in own]),
            first=np.zeros(len(own), dtype=np.int64),
        )
        with one_thread():
            stack = network.rows(theta).repeat(len(own), 1)
            sums[first:last] = batch_sums(network, training, layout, batch, theta=stack)[0].numpy()

    for_each_chunk(add_up, party_chunks(network, len(batches), training))
    return sums


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
