"""DP-SGD in a party (Abadi et al. 2016, arXiv:1607.00133, Algorithm 1): a pure local core.

Every step takes a Poisson batch at rate q, sums the per-record gradients clipped to C
(`parley.client.dp_sgd.clipping`), adds N(0, (σC)²I) to the **sum**, divides by the public q·n, and
hands the result to an optimiser, which is post-processing. Noise on the average instead would be
too small by a factor of the batch size.

The sum is rounded to a grid and its noise is of integers (`parley.client.dp_sgd.noise`). Clipping
aims 2⁻¹⁰·C below C, which covers the grid, the norms and the sum's rounding.

With a share of every step's privacy (`parley.privacy.accounting.clipped_count`) a party also tells
which fraction of
its gradients was clipped: ½ + (Σ (2b_i − 1) + noise)/(2·q·n·steps) over all its steps.

Randomness is an argument: one stream for the batches, one for the noise, of each party. Small
parties are trained in chunks (`party_chunks`), on several cores where no two chunks share a stream.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parley.client.data.chunks import for_each_chunk
from parley.client.dp_sgd import plain_together
from parley.client.dp_sgd.apart import chunks_of, dense_layout
from parley.client.dp_sgd.batches import padded_batches, poisson_batch
from parley.client.dp_sgd.clip_factors import clip_signs
from parley.client.dp_sgd.clipping_dense import Dense, squared_norms
from parley.client.dp_sgd.gradients import plain_sum
from parley.client.dp_sgd.layout import check_records, record_classes, widths_for
from parley.client.dp_sgd.noise import COUNT_SCALE, add_noise, grid_scale
from parley.client.dp_sgd.optimisers import Optimiser
from parley.client.dp_sgd.parties import Parties, PartyData
from parley.client.dp_sgd.settings import LocalTraining
from parley.client.models.networks import Network
from parley.privacy.sampling.stream import NoiseStream

Array: TypeAlias = NDArray[Any]

_PARTIES_TOGETHER = 50_000
"""Parameters up to which parties are trained together: beyond, one party fills the cores."""

_VALUES_TOGETHER = 1 << 17
"""Parameters, of the parties of a chunk, that stay in the cache with records."""

_LEAST_VALUES = 1 << 12
"""Parameters below which the cost of calls, not of values, is a chunk's time."""

_CHUNKS = 2
"""Chunks that a block gives at least, if its values are enough for two threads.

Not more: threads wait for the interpreter's lock between numpy's calls, and large calls wait least
(two cores, 100 parties of d = 2,410, five steps: 2 chunks took 30 ms, 4 took 33, 8 took 45).
"""

_KEPT = 1 << 24
"""Bytes of the block that `_keep_freed_pages` frees; glibc learns from those of up to 2²⁵."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What B parties came to.

    Attributes:
        theta: `[B, d]` parameters after their local steps; not finite where training diverged.
        clipped: `[B]` noisy fractions of clipped gradients; None without a share for them.
    """

    theta: NDArray[np.float64]
    clipped: NDArray[np.float64] | None


@dataclass(frozen=True, kw_only=True)
class Among:
    """What is public of all parties of a round: it decides how many records a pass has.

    So a party has the same bits whoever else is trained beside it.

    Attributes:
        parties: how many there are.
        records: of one of them, about.
    """

    parties: int
    records: int


def largest_noise(config: LocalTraining, dimension: int) -> float:
    """Largest standard deviation, in grid units, of what a party of a network of d would draw."""
    if config.clip_norm is None:
        return 0.0
    of_sums = config.gradient_multiplier * config.clip_norm
    of_sums *= grid_scale(config.clip_norm, dimension)
    return max(of_sums, config.count_deviation * COUNT_SCALE if config.clipped_share else 0.0)


def _noisy(total: Tensor, config: LocalTraining, noise: Sequence[NoiseStream]) -> Tensor:
    """Every party's sum `[B, d]` on its grid plus integer noise; may overwrite `total`.

    Clipped sums are finite (`parley.client.dp_sgd.clip_factors`), so that this does not fail for
    any record.
    """
    if config.clip_norm is None or not config.noise_multiplier:
        return total
    # Contiguous, so that its flat view below is no copy.
    values = np.ascontiguousarray(total.detach().cpu().numpy(), dtype=np.float64)
    scale = grid_scale(config.clip_norm, values.shape[1])
    add_noise(values, config.gradient_multiplier * config.clip_norm, scale, noise)
    return torch.as_tensor(values, dtype=total.dtype, device=total.device)


def _fractions(
    signs: Tensor,
    divisors: NDArray[np.int64],
    noise: Sequence[NoiseStream],
    config: LocalTraining,
) -> NDArray[np.float64] | None:
    """Noisy fractions `[B]` of clipped gradients, from all steps' Σ (2b_i − 1) `[B]`."""
    if not config.clipped_share:
        return None
    values = signs.cpu().numpy()[:, None]
    add_noise(values, config.count_deviation, COUNT_SCALE, noise)
    expected = config.sampling_rate * config.steps * divisors
    return np.asarray(0.5 + values[:, 0] / (2 * expected))


def train_party(
    network: Network, theta: NDArray[np.float64], data: PartyData, config: LocalTraining
) -> Trained:
    """One party's local steps from `theta` `[d]`, B = 1."""
    flat = torch.as_tensor(theta, dtype=network.dtype, device=network.device).clone()
    network.use(flat)
    optimiser = Optimiser.begin(config, flat)
    signs = torch.zeros(1, dtype=torch.float64, device=flat.device)
    rate, most = config.sampling_rate, config.micro_batch
    check_records(len(data.labels), rate)
    width = config.most_at_once(network.dimension)
    widths = widths_for(data.divisor, rate, pad=False, most=width)

    if network.draws and config.clip_norm is not None:
        raise ValueError("Expected a loss that draws nothing with training inside the parties.")
    rng = np.random.default_rng(0)  # of a baseline without privacy

    def chosen(rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        at = torch.as_tensor(rows, device=flat.device)
        own = data.features[at]
        if network.draws:
            drawn = network.rows(rng.standard_normal((len(rows), network.draws)))
            own = torch.cat([own, drawn], dim=1)
        return own, data.labels[at]

    for _ in range(config.steps):
        batch = poisson_batch(len(data.labels), rate, data.batches)
        total = torch.zeros(network.dimension, dtype=torch.float64, device=flat.device)
        if config.clip_norm is None:
            for at in range(0, len(batch), most):
                total += plain_sum(
                    network.module, *chosen(batch[at : at + most]), losses=network.losses
                )
        else:
            way, clip = config.per_example_method, config.clip_norm
            for clipped, holds in chunks_of(network, way, clip, chosen, batch, widths=widths):
                clipped.add_to(total)
                if config.clipped_share:
                    there = torch.as_tensor(holds >= 0, device=flat.device)
                    signs += clip_signs(clipped.norms[there], clip).sum()
        noisy = _noisy(total[None], config, [data.noise])
        optimiser.step(flat, (noisy[0] / (rate * data.divisor)).to(flat))
    return Trained(
        theta=flat.cpu().numpy().astype(np.float64)[None],
        clipped=_fractions(signs, np.array([data.divisor]), [data.noise], config),
    )


def _together(network: Network, parties: int, config: LocalTraining) -> Dense | None:
    """The network as a chain of layers, where so many parties are trained together."""
    if (
        parties < 2
        or config.clip_norm is None
        or config.per_example_method != "ghost"
        or network.dimension > _PARTIES_TOGETHER
    ):
        return None
    return Dense.of(network.module, network.losses)


def party_chunks(network: Network, parties: int, config: LocalTraining) -> list[tuple[int, int]]:
    """Ranges (first, last + 1) of parties that `train_parties` trains together.

    A function of public sizes and never of the machine: streams keyed by a chunk's number give the
    same result on any number of cores. Parties that each train alone are one range.
    """
    if _together(network, parties, config) is None:
        return [(0, parties)]
    return _ranges(network, parties)


def _ranges(network: Network, parties: int) -> list[tuple[int, int]]:
    count = _chunk_count(network, parties)
    return [(parties * at // count, parties * (at + 1) // count) for at in range(count)]


def _chunk_count(network: Network, parties: int) -> int:
    wanted = max(-(-parties // _CHUNKS), _LEAST_VALUES // network.dimension)
    size = max(1, min(wanted, _VALUES_TOGETHER // network.dimension))
    return -(-parties // size)


def train_parties(
    network: Network,
    theta: NDArray[np.float64],
    parties: Parties,
    config: LocalTraining,
    *,
    among: Among | None = None,
) -> Trained:
    """Every party's local steps from `theta` `[d]`, together where the network is small.

    Args:
        network: what is trained.
        theta: where from.
        parties: their records, and streams.
        config: how.
        among: all of the round, if these are not.
    """
    among = among or Among(parties=len(parties), records=int(parties.divisors.max()))
    result, clipped = np.zeros((len(parties), network.dimension)), np.zeros(len(parties))

    def keep(first: int, own: Trained) -> None:
        rows = slice(first, first + len(own.theta))
        result[rows] = own.theta
        if own.clipped is not None:
            clipped[rows] = own.clipped

    # More parties than the round has are worlds of an audit.
    dense = _together(network, max(among.parties, len(parties)), config)
    plain = plain_together.together(network, config)
    if dense is not None:
        _train_chunks(network, theta, parties, config, keep, dense, among)
        alone: list[int] = []
    elif plain is not None:
        few = plain_together.small(np.diff(parties.offsets), config)
        rows = np.flatnonzero(few)
        plain_together.train_plainly(network, plain, theta, parties, rows, config, result)
        alone = np.flatnonzero(~few).tolist()
    else:
        alone = list(range(len(parties)))
    for row in alone:
        keep(row, train_party(network, theta, parties[row], config))
    return Trained(theta=result, clipped=clipped if config.clipped_share else None)


def _train_chunks(
    network: Network,
    theta: NDArray[np.float64],
    parties: Parties,
    config: LocalTraining,
    keep: Callable[[int, Trained], None],
    dense: Dense,
    among: Among,
) -> None:
    """Trains chunk after chunk, on several cores where that is safe, and has each kept."""
    ranges = _ranges(network, len(parties))
    _keep_freed_pages()

    def train(first: int, last: int) -> None:
        own = parties.part(first, last)
        keep(first, _train_together(network, theta, own, config, dense, among))

    def train_in_thread(first: int, last: int) -> None:
        torch.set_num_threads(1)  # of this thread: the cores are taken already
        train(first, last)

    if _own_streams(parties, ranges):
        threads = torch.get_num_threads()
        try:
            for_each_chunk(train_in_thread, ranges)
        finally:
            torch.set_num_threads(threads)
    else:
        for chunk in ranges:
            train(*chunk)


@functools.cache
def _keep_freed_pages() -> None:
    """Frees a large block that was never touched: glibc then keeps up to twice as much at hand.

    A step frees some megabytes and takes them again at once. Where they went back to the system in
    between, page faults took a fifth of the time, in some processes and not in others.
    """
    np.empty(_KEPT, dtype=np.uint8)


def _own_streams(parties: Parties, ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether no stream is used in two chunks: a stream is used from one thread only."""
    of_chunks = [
        set(map(id, parties.batches[first:last])) | set(map(id, parties.noise[first:last]))
        for first, last in ranges
    ]
    return len(set().union(*of_chunks)) == sum(map(len, of_chunks))


def _train_together(
    network: Network,
    theta: NDArray[np.float64],
    parties: Parties,
    config: LocalTraining,
    dense: Dense,
    among: Among,
) -> Trained:
    """All steps of a few parties, whose parameters and records stay in the cache meanwhile."""
    clip = float(config.clip_norm or 0)
    flat = torch.from_numpy(np.repeat(network.rows(theta).numpy()[None], len(parties), axis=0))
    optimiser = Optimiser.begin(config, flat)
    features, labels = dense.prepared(parties.features), parties.labels.numpy()
    sizes = np.diff(parties.offsets)
    # Of the round and not of who is here: a party's bits follow from a pass's shape.
    usual = -(-among.parties // _chunk_count(network, among.parties))
    rate, most = config.sampling_rate, max(1, config.micro_batch // usual)
    check_records(int(sizes.max()), rate)
    widths = widths_for(among.records, rate, pad=False, most=most)
    layout = dense_layout(network, dense, usual, widths)
    classes = record_classes(features, labels, layout.period)
    factors = torch.from_numpy(1 / (rate * parties.divisors[:, None]))
    squares = squared_norms(features)

    def pieces() -> Iterator[tuple[Array, Array, Array, Array]]:
        """The parties' batches of one step: x `[B, b, p]`; y, mask, ‖x‖² `[B, b]`."""
        batches = padded_batches(sizes, rate, parties.batches, layout, classes)
        for at in range(0, batches.rows.shape[1], layout.width):
            rows = batches.rows[:, at : at + layout.width]
            mask = batches.there[:, at : at + layout.width].astype(features.dtype)
            yield features.take(rows, axis=0), labels.take(rows), mask, squares.take(rows)

    # At q = 1 every step takes all records: they are laid out once, unless that is too many.
    same = list(pieces()) if rate >= 1 and sizes.max() <= most else None
    signs = torch.zeros(len(parties), dtype=torch.float64)

    def sums() -> Iterator[Array]:
        for x, y, mask, known in same or pieces():
            own, norms = dense.sums(flat.numpy(), x, y, mask, clip, known)
            if config.clipped_share:
                weights = torch.from_numpy(mask)
                signs.add_((clip_signs(torch.from_numpy(norms), clip) * weights).sum(1))
            yield own

    for _ in range(config.steps):
        total = torch.from_numpy(functools.reduce(np.ndarray.__iadd__, sums()))
        noisy = _noisy(total, config, parties.noise)
        optimiser.step(flat, noisy.mul_(factors).to(flat))
    fractions = _fractions(signs, parties.divisors, parties.noise, config)
    return Trained(theta=flat.cpu().numpy(), clipped=fractions)
