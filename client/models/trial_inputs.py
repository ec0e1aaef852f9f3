"""Build inputs for network checks: made-up records, and random parameters.

`parley.client.models.batch_invariance_check` and `parley.client.dp_sgd.invariant_pass_layout` check
networks with them. No record of a party is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parley.client.models.networks import Network

Rows = NDArray[np.float64]


def build_trial_rows(network: Network, count: int) -> Rows:
    """Return `[count, p]` rows of norm at most 1, like records; none of them is zero."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn((count, network.features), generator=generator, dtype=torch.float64)
    rows *= torch.rand(count, generator=generator)[:, None] / rows.norm(dim=1, keepdim=True)
    return np.asarray(rows.numpy())


def add_trial_labels(network: Network, rows: Rows) -> tuple[Tensor, Tensor]:
    """Return `[n, p + D]` rows followed by their draws, and `[n]` labels."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, network.classes, (len(rows),), generator=generator)
    shape = (len(rows), network.draws_per_record)
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    return network.with_draws(rows, drawn.numpy()), labels.to(network.device)


@contextmanager
def move_near_start(network: Network, *, seed: int = 1) -> Iterator[None]:
    """Move the network's parameters near its start, at random, and move them back afterwards.

    At the start itself a parameter may be zero and hide what it multiplies. Far away, layers
    saturate.
    """
    parameters = [p for p in network.module.parameters() if p.requires_grad]
    kept = [parameter.data for parameter in parameters]
    start, rng = network.start(), np.random.default_rng(seed)
    size = max(float(np.sqrt(np.mean(start**2))), 0.05)
    try:
        moved = start + size / 2 * rng.standard_normal(len(start))
        network.set_parameters(network.to_tensor(moved).clone())
        yield
    finally:
        for parameter, data in zip(parameters, kept, strict=True):
            parameter.data = data
