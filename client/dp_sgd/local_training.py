"""DP-SGD in a party (Abadi et al. 2016, arXiv:1607.00133, Algorithm 1): a pure local core.

Every step takes a Poisson batch at rate q, sums the per-record gradients clipped to C
(`parley.client.dp_sgd.torch_clipping`), adds N(0, (σC)²I) to the **sum**, divides by the public
q·n, and hands the result to an optimiser, which is post-processing. Noise on the average instead
would be too small by a factor of the batch size.

The sum is of whole numbers on a grid, and its noise is of integers
(`parley.client.dp_sgd.grid_noise`).

With a share of every step's privacy (`parley.privacy.accounting.subsampled_gaussian`) a party also
tells which fraction of its gradients was clipped: ½ + (Σ (2b_i − 1) + noise)/(2·q·n·steps), of all
steps.

Randomness is an argument: one stream for the batches, one for the noise, of each party. Small
parties are trained in chunks (`party_chunks`), on several cores where no two chunks share a stream:
each comes to the same bits whoever else is in its chunk, so that nobody's records move anybody
else's update. Where privacy comes from noise on a clipped sum of updates, no record is clipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parley.client.data.record_chunks import for_each_chunk
from parley.client.dp_sgd.batch_sums import (
    batch_sums,
    layout_for,
    party_chunks,
    together,
)
from parley.client.dp_sgd.drawn_batch import Batch
from parley.client.dp_sgd.grid_noise import COUNT_SCALE, add_noise
from parley.client.dp_sgd.optimisers import direction
from parley.client.dp_sgd.poisson_batches import Layout, batches_of, check_records
from parley.client.dp_sgd.training_data import Parties, PartyData
from parley.client.dp_sgd.training_settings import LocalTraining
from parley.client.models.networks import Network
from parley.privacy.sampling.random_stream import NoiseStream

_LARGEST_BATCH: Final = 256
"""Expected records of a step up to which a party is small."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What B parties came to.

    Attributes:
        theta: `[B, d]` parameters after their local steps; not finite where training diverged.
        clipped: `[B]` noisy fractions of clipped gradients; None without a share for them.
    """

    theta: NDArray[np.float64]
    clipped: NDArray[np.float64] | None


def largest_noise(config: LocalTraining) -> float:
    """Largest standard deviation, in grid units, of what a party would draw."""
    if config.clip_norm is None:
        return 0.0
    of_sums = config.gradient_multiplier * config.clip_norm
    of_sums *= 2.0**config.grid_bits
    return max(of_sums, config.count_deviation * COUNT_SCALE if config.clipped_share else 0.0)


def _noisy(total: Tensor, config: LocalTraining, noise: Sequence[NoiseStream]) -> Tensor:
    """Every party's sum `[B, d]` on its grid plus integer noise; may overwrite `total`.

    Clipped sums are finite (`parley.client.dp_sgd.torch_clipping`), so that this does not fail for
    any record.
    """
    if config.clip_norm is None or not config.noise_multiplier:
        return total
    # Contiguous, so that its flat view below is no copy.
    values = np.ascontiguousarray(total.detach().cpu().numpy(), dtype=np.float64)
    deviation = config.gradient_multiplier * config.clip_norm
    add_noise(values, deviation, 2.0**config.grid_bits, noise)
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
    """One party's local steps from `theta` `[d]`, B = 1, in a pass by itself."""
    layout = layout_for(network, config, data.divisor)
    return _train(network, theta, Parties.of([data]), np.arange(1), config, layout)


def train_parties(
    network: Network,
    theta: NDArray[np.float64],
    parties: Parties,
    config: LocalTraining,
    *,
    records: int | None = None,
) -> Trained:
    """Every party's local steps from `theta` `[d]`, together where network and parties are small.

    Args:
        records: a public number of records of a party; None: the largest that is here.
    """
    result, clipped = np.zeros((len(parties), network.dimension)), np.zeros(len(parties))

    def keep(rows: NDArray[np.int64], own: Trained) -> None:
        result[rows] = own.theta
        if own.clipped is not None:
            clipped[rows] = own.clipped

    few = config.sampling_rate * parties.divisors <= _LARGEST_BATCH
    few &= together(network, config)
    ranges = party_chunks(network, len(parties), config)
    if few.any():
        public = int(parties.divisors.max()) if records is None else records
        layout = layout_for(network, config, public)

    def train(first: int, last: int) -> None:
        rows = first + np.flatnonzero(few[first:last])
        if len(rows):
            keep(rows, _train(network, theta, parties, rows, config, layout, stacked=True))

    if _own_streams(parties, ranges):
        for_each_chunk(train, ranges)
    else:  # a stream is used from one thread only
        for chunk in ranges:
            train(*chunk)
    for row in np.flatnonzero(~few).tolist():
        keep(np.array([row]), train_party(network, theta, parties[row], config))
    return Trained(theta=result, clipped=clipped if config.clipped_share else None)


def _own_streams(parties: Parties, ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether no stream is used in two chunks."""
    of_chunks = [
        set(map(id, parties.batches[first:last])) | set(map(id, parties.noise[first:last]))
        for first, last in ranges
    ]
    return len(set().union(*of_chunks)) == sum(map(len, of_chunks))


def _train(
    network: Network,
    theta: NDArray[np.float64],
    parties: Parties,
    rows: NDArray[np.int64],
    config: LocalTraining,
    layout: Layout,
    *,
    stacked: bool = False,
) -> Trained:
    """All steps of the parties at `rows`: of one, or of several that are in one pass."""
    if network.draws and config.clip_norm is not None:
        raise ValueError("Expected a loss that draws nothing with training inside the parties.")
    whole = stacked or (config.exact and config.clip_norm is not None)
    flat = torch.as_tensor(theta) if whole else network.rows(theta)
    flat = flat.repeat(len(rows), 1)
    if not whole:
        network.use(flat[0])
    first, sizes = parties.offsets[rows], np.diff(parties.offsets)[rows]
    check_records(int(sizes.max()), config.sampling_rate)
    owners = np.repeat(np.arange(len(rows)), sizes)
    places = np.arange(len(owners)) + np.repeat(first - (np.cumsum(sizes) - sizes), sizes)
    batches, noise = ([own[row] for row in rows] for own in (parties.batches, parties.noise))
    divisors = parties.divisors[rows]
    factors = torch.as_tensor(1 / (config.sampling_rate * divisors[:, None]), device=flat.device)
    rng = np.random.default_rng(0)  # of a baseline without privacy

    def chosen(rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        at = torch.as_tensor(rows, device=flat.device)
        own = parties.features[at]
        if network.draws:
            drawn = network.rows(rng.standard_normal((len(rows), network.draws)))
            own = torch.cat([own, drawn], dim=1)
        return own, parties.labels[at]

    signs = torch.zeros(len(rows), dtype=torch.float64, device=flat.device)
    mean: Tensor | float = 0.0
    square: Tensor | float = 0.0
    for count in range(1, config.steps + 1):
        drawn = batches_of(sizes, config.sampling_rate, batches)
        batch = Batch(chosen=chosen, places=places[drawn], owners=owners[drawn], first=first)
        total, clipped = batch_sums(
            network, config, layout, batch, theta=flat if whole else None, threads=not stacked
        )
        signs += clipped
        gradient = (_noisy(total, config, noise) * factors).to(flat)
        step, mean, square = direction(gradient, mean, square, count, config)
        flat -= config.learning_rate * step
    return Trained(
        theta=flat.cpu().numpy().astype(np.float64),
        clipped=_fractions(signs, divisors, noise, config),
    )
