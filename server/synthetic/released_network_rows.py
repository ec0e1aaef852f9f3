"""Draw records with a trained network whose module has a method for it.

A module with the method `drawn(labels, generator)` returns `[n, p]` numbers from 0 to 1: the
position in its public range of each entry of an array, for records of the classes `labels` `[n]`.
The network is what was released. Drawing is post-processing of it, like every use of a model. How
common the classes are was not released: rows are of every class in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from parley.client.data.record_discretization import find_array_column
from parley.client.data.schema import Schema

_CHUNK_ROWS = 1 << 12


def draw_network_rows(
    network: Any, schema: Schema, theta: NDArray[Any], rows: int, seed: int
) -> Iterator[NDArray[Any]]:
    """Yield pieces of `[n, p + 1]`: the position of every entry in its range, and the class.

    Args:
        theta: `[d]` its parameters.

    Raises:
        ValueError: other records, other parameters, or a module that returns something else.
    """
    array = find_array_column(schema)
    if array is None or array[1].width != network.features:
        raise ValueError("Expected records that are one array of the network's width, got others.")
    if theta.shape != (network.dimension,) or not np.isfinite(theta).all():
        raise ValueError(f"Expected {network.dimension} finite parameters, got others.")
    network.set_parameters(network.to_tensor(theta).clone())
    generator = torch.Generator().manual_seed(seed % 2**63)
    return _draw_chunks(network, rows, generator)


def _draw_chunks(network: Any, rows: int, generator: torch.Generator) -> Iterator[NDArray[Any]]:
    for begin in range(0, rows, _CHUNK_ROWS):
        labels = torch.arange(begin, min(begin + _CHUNK_ROWS, rows)) % network.classes
        with torch.no_grad():
            made = network.module.drawn(labels, generator)
        shape = (len(labels), network.features)
        # refuses NaN too
        if tuple(made.shape) != shape or not bool(((made >= 0) & (made <= 1)).all()):
            raise ValueError(
                f"Expected numbers from 0 to 1 of shape {list(shape)} from drawn(labels, "
                f"generator), got others, {list(made.shape)}."
            )
        yield torch.cat([made.float(), labels[:, None].float()], dim=1).cpu().numpy()
