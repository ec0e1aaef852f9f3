"""DP-SGD in a party (Abadi et al. 2016, arXiv:1607.00133, Algorithm 1): a pure local core.

Each step takes a Poisson batch at rate q and sums the per-record gradients clipped to C
(`parley.client.dp_sgd.torch_clipping`). It adds N(0, (σC)²I) to the **sum**, divides by the public
q·n, and passes the result to an optimiser, which is post-processing. Noise on the average instead
would be too small by a factor of the batch size.

The sum consists of whole numbers on a grid, and its noise of integers
(`parley.client.dp_sgd.grid_noise`).

If a share of each step's privacy is reserved for it
(`parley.privacy.accounting.subsampled_gaussian`), a party also releases the fraction of its
gradients that was clipped: ½ + (Σ (2b_i − 1) + noise)/(2·q·n·steps), over all steps.

Randomness is an argument: each party has one stream for the batches and one for the noise. Small
parties are trained in chunks (`split_party_chunks`), on several cores if no two chunks share a
stream. Each party gets the same bits next to any others in its chunk, so no party's records change
another party's update. If privacy comes from noise on a clipped sum of updates, no record is
clipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parley.client.data.threaded_chunks import map_chunks
from parley.client.dp_sgd.batch_sums import (
    choose_layout,
    compute_batch_sums,
    split_party_chunks,
    supports_joint_pass,
)
from parley.client.dp_sgd.grid_noise import COUNT_SCALE, add_noise
from parley.client.dp_sgd.optimisers import compute_direction
from parley.client.dp_sgd.poisson_batches import PassLayout, check_records, draw_joint_batches
from parley.client.dp_sgd.sampled_batch import SampledBatch
from parley.client.dp_sgd.training_data import PartyData, TrainingParties
from parley.client.dp_sgd.training_settings import LocalTraining
from parley.client.models.networks import Network
from parley.privacy.sampling.random_stream import NoiseStream

_MAX_JOINT_BATCH: Final = 256
"""Maximum expected records per step of a small party."""


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """Result of B parties' training.

    Attributes:
        theta: `[B, d]` parameters after their local steps; not finite if training diverged.
        clipped_fractions: `[B]` noisy fractions of clipped gradients; None without a share for
            them.
    """

    theta: NDArray[np.float64]
    clipped_fractions: NDArray[np.float64] | None


def compute_largest_noise(config: LocalTraining) -> float:
    """Return the largest standard deviation, in grid units, of a party's noise."""
    if config.clip_norm is None:
        return 0.0
    of_sums = config.gradient_multiplier * config.clip_norm
    of_sums *= 2.0**config.grid_bits
    return max(of_sums, config.count_deviation * COUNT_SCALE if config.clipped_share else 0.0)


def _add_grid_noise(total: Tensor, config: LocalTraining, noise: Sequence[NoiseStream]) -> Tensor:
    """Return each party's sum `[B, d]` on its grid plus integer noise; may overwrite `total`.

    Clipped sums are finite (`parley.client.dp_sgd.torch_clipping`), so this fails for no record.
    """
    if config.clip_norm is None or not config.noise_multiplier:
        return total
    # Contiguous, so that the flat view below is not a copy.
    values = np.ascontiguousarray(total.detach().cpu().numpy(), dtype=np.float64)
    deviation = config.gradient_multiplier * config.clip_norm
    add_noise(values, deviation, 2.0**config.grid_bits, noise)
    return torch.as_tensor(values, dtype=total.dtype, device=total.device)


def _estimate_fractions(
    signs: Tensor, divisors: NDArray[np.int64], noise: Sequence[NoiseStream], config: LocalTraining
) -> NDArray[np.float64] | None:
    """Return noisy fractions `[B]` of clipped gradients, from all steps' Σ (2b_i − 1) `[B]`."""
    if not config.clipped_share:
        return None
    values = signs.cpu().numpy()[:, None]
    add_noise(values, config.count_deviation, COUNT_SCALE, noise)
    expected = config.sampling_rate * config.steps * divisors
    return np.asarray(0.5 + values[:, 0] / (2 * expected))


def train_party(
    network: Network, theta: NDArray[np.float64], data: PartyData, config: LocalTraining
) -> TrainingResult:
    """Run one party's local steps from `theta` `[d]`, B = 1, in a separate pass."""
    layout = choose_layout(network, config, data.divisor)
    parties = TrainingParties.from_parties([data])
    return _train(network, theta, parties, np.arange(1), config, layout)


def train_parties(
    network: Network,
    theta: NDArray[np.float64],
    parties: TrainingParties,
    config: LocalTraining,
    *,
    records: int | None = None,
) -> TrainingResult:
    """Run each party's local steps from `theta` `[d]`; small parties of small networks share
    passes.

    Args:
        records: a public number of records of a party; None: the largest in `parties`.
    """
    result, clipped = np.zeros((len(parties), network.dimension)), np.zeros(len(parties))

    def keep(rows: NDArray[np.int64], own: TrainingResult) -> None:
        result[rows] = own.theta
        if own.clipped_fractions is not None:
            clipped[rows] = own.clipped_fractions

    few = config.sampling_rate * parties.divisors <= _MAX_JOINT_BATCH
    few &= supports_joint_pass(network, config)
    ranges = split_party_chunks(network, len(parties), config)
    if few.any():
        public = int(parties.divisors.max()) if records is None else records
        layout = choose_layout(network, config, public)

    def train(first: int, last: int) -> None:
        rows = first + np.flatnonzero(few[first:last])
        if len(rows):
            keep(rows, _train(network, theta, parties, rows, config, layout, stacked=True))

    if _has_own_streams(parties, ranges):
        map_chunks(train, ranges)
    else:  # a stream is used from one thread only
        for chunk in ranges:
            train(*chunk)
    for row in np.flatnonzero(~few).tolist():
        keep(np.array([row]), train_party(network, theta, parties[row], config))
    return TrainingResult(theta=result, clipped_fractions=clipped if config.clipped_share else None)


def _has_own_streams(parties: TrainingParties, ranges: Sequence[tuple[int, int]]) -> bool:
    """Return whether no stream is used in two chunks."""
    of_chunks = [
        set(map(id, parties.batches[first:last])) | set(map(id, parties.noise[first:last]))
        for first, last in ranges
    ]
    return len(set().union(*of_chunks)) == sum(map(len, of_chunks))


def _train(
    network: Network,
    theta: NDArray[np.float64],
    parties: TrainingParties,
    rows: NDArray[np.int64],
    config: LocalTraining,
    layout: PassLayout,
    *,
    stacked: bool = False,
) -> TrainingResult:
    """Run all steps of the parties at `rows`: of one party, or of several in one pass."""
    if network.draws_per_record and config.clip_norm is not None:
        expected = "Expected a loss without random numbers if records are clipped in the parties"
        raise ValueError(f"{expected}, got one with draws = {network.draws_per_record}.")
    whole = stacked or (config.exact and config.clip_norm is not None)
    flat = torch.as_tensor(theta) if whole else network.to_tensor(theta)
    flat = flat.repeat(len(rows), 1)
    if not whole:
        network.set_parameters(flat[0])
    first, sizes = parties.offsets[rows], np.diff(parties.offsets)[rows]
    check_records(int(sizes.max()), config.sampling_rate)
    owners = np.repeat(np.arange(len(rows)), sizes)
    places = np.arange(len(owners)) + np.repeat(first - (np.cumsum(sizes) - sizes), sizes)
    batches, noise = ([own[row] for row in rows] for own in (parties.batches, parties.noise))
    divisors = parties.divisors[rows]
    factors = torch.as_tensor(1 / (config.sampling_rate * divisors[:, None]), device=flat.device)
    rng = np.random.default_rng(0)  # only for a baseline without privacy

    def chosen(rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        at = torch.as_tensor(rows, device=flat.device)
        own = parties.features[at]
        if network.draws_per_record:
            drawn = network.to_tensor(rng.standard_normal((len(rows), network.draws_per_record)))
            own = torch.cat([own, drawn], dim=1)
        return own, parties.labels[at]

    signs = torch.zeros(len(rows), dtype=torch.float64, device=flat.device)
    mean: Tensor | float = 0.0
    square: Tensor | float = 0.0
    for count in range(1, config.steps + 1):
        drawn = draw_joint_batches(sizes, config.sampling_rate, batches)
        at, own = places[drawn], owners[drawn]
        batch = SampledBatch(lookup=chosen, positions=at, owners=own, first=first)
        total, clipped = compute_batch_sums(
            network, config, layout, batch, theta=flat if whole else None, threads=not stacked
        )
        signs += clipped
        gradient = (_add_grid_noise(total, config, noise) * factors).to(flat)
        step, mean, square = compute_direction(gradient, mean, square, count, config)
        flat -= config.learning_rate * step
    return TrainingResult(
        theta=flat.cpu().numpy().astype(np.float64),
        clipped_fractions=_estimate_fractions(signs, divisors, noise, config),
    )
