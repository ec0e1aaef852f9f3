"""Sums of one party's batch by torch: clipped, for networks that are not chains; or not clipped.

The assumption of clipped sums about torch is printed next to ε
(`parley.client.dp_sgd.invariant_pass_layout`). Sums that are not clipped belong to updates that are
clipped as a whole.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parley.client.dp_sgd.parallel_passes import map_passes
from parley.client.dp_sgd.poisson_batches import PassLayout
from parley.client.dp_sgd.sampled_batch import SampledBatch
from parley.client.dp_sgd.torch_clipping import compute_clipped_sum, compute_plain_sum
from parley.client.dp_sgd.training_settings import LocalTraining
from parley.client.models.networks import Network


def compute_torch_sums(
    network: Network,
    training: LocalTraining,
    layout: PassLayout,
    batch: SampledBatch,
    *,
    min_chunks: int,
) -> tuple[Tensor, Tensor]:
    """Compute `[1, d]` the sum of a batch at the network's own θ, and `[1]` signs as in
    `batch_sums`.

    Args:
        min_chunks: minimum number of passes.
    """
    classes = np.zeros(len(batch.positions), dtype=np.int64)
    if layout.period > 1 and len(batch.positions):
        x, y = batch.lookup(batch.positions)
        classes = compute_record_classes(x.cpu().numpy(), y.cpu().numpy(), layout.period)
    (holds,) = layout.assign_rows(classes, batch.owners, min_chunks=min_chunks)
    total = torch.zeros((1, network.dimension), dtype=torch.float64, device=network.device)
    signs = torch.zeros(1, dtype=torch.float64, device=network.device)
    passes = [holds[None, at : at + layout.width] for at in range(0, len(holds), layout.width)]
    if training.clip_norm is None:
        for assigned in passes:
            rows, there = batch.find_positions(assigned)
            mask = network.to_tensor(there.ravel())
            x, y = batch.lookup(rows.ravel())
            total += compute_plain_sum(network.module, x, y, mask, losses=network.losses)
        return total, signs
    clip, losses = training.clip_norm, network.losses

    def add_up(module: nn.Module, begin: int, end: int) -> tuple[NDArray[np.float64], float]:
        found, above = np.zeros(network.dimension), 0.0
        for assigned in passes[begin:end]:
            rows, there = batch.find_positions(assigned)
            x, y = batch.lookup(rows.ravel())
            # New memory: an address within a larger tensor may have another alignment.
            sums, norms = compute_clipped_sum(module, x.clone(), y, clip, there[0], losses=losses)
            found += sums
            if training.clipped_share:
                above += float(np.where(norms <= clip, -1, 1) @ there[0])
        return found, above

    for found, above in map_passes(network, len(passes), layout.width, add_up):
        total += torch.as_tensor(found, device=network.device)  # exact, in any order
        signs += above
    return total, signs


def compute_record_classes(
    x: NDArray[np.floating], y: NDArray[np.int64], period: int
) -> NDArray[np.int64]:
    """Return `[b]` the class of each record `[b, …]`, from a digest of its values and label."""
    if period == 1:
        return np.zeros(len(x), dtype=np.int64)
    words = np.ascontiguousarray(x.reshape(len(x), -1), dtype=np.float64).view(np.uint64)
    words = np.concatenate([words, y.astype(np.uint64)[:, None]], axis=1)
    # Odd multipliers, modulo 2⁶⁴; the upper half depends on all bits.
    factors = np.random.default_rng(0).integers(0, 2**63, words.shape[1], dtype=np.uint64)
    with np.errstate(over="ignore"):
        digest = (words * (2 * factors + np.uint64(1))).sum(axis=1, dtype=np.uint64)
        digest *= np.uint64(0x9E3779B97F4A7C15)
    return np.asarray((digest >> np.uint64(33)) % np.uint64(period), dtype=np.int64)
