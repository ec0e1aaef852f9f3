"""Registry of the generators of synthetic records: one row of text for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.schema import Schema
from parley.module_loading.plugin_table import PluginTable

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class SyntheticGenerator:
    """Functions that turn a release into rows.

    Attributes:
        fit: what was summed, the schema, the job's settings and the noisy release → tensors for the
            model file, and N̂. Raises ValueError.
        draw: what was summed, the schema, tensors of the model file, rows, seed → pieces of `[rows,
            columns]`, the label last: codes, or the position of each array entry in its range.
            Raises ValueError for tensors of another generator.
        count_released: the numbers of tables, or of classes with a sum of features, by name.
    """

    fit: Callable[[Any, Schema, Any, NDArray[np.float64]], tuple[Tensors, float]]
    draw: Callable[[Any, Schema, Mapping[str, NDArray[Any]], int, int], Iterator[NDArray[Any]]]
    count_released: Callable[[Any], dict[str, int]]


def can_draw(trained: Any) -> bool:
    """Return whether the model is a network whose module draws records.

    See `parley.server.synthetic.released_network_rows`.
    """
    return callable(getattr(getattr(trained.model, "module", None), "drawn", None))


GENERATORS = PluginTable[SyntheticGenerator](
    {
        "marginals": "parley.server.synthetic.mixture_generator:GENERATOR",
        "random-features": "parley.server.synthetic.kernel_rows:GENERATOR",
    }
)
"""`algorithm.kind` → how its release becomes rows."""


def makes_records(algorithm: Any) -> bool:
    """Return whether synthetic records can be made from what an algorithm releases."""
    return algorithm.kind in GENERATORS or can_draw(algorithm)
