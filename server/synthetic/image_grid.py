"""Images of each class that a generator draws, for the report."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.record_discretization import find_array_column
from parley.client.data.schema import Schema
from parley.server.records.run_summary import IMAGE_GRID
from parley.server.synthetic.registry import Tensors

GRID_IMAGES = 8
"""Number of images per class in the grid."""


def build_image_grid(cells: NDArray[Any], schema: Schema) -> Tensors:
    """Return `[K, n, p]` numbers from 0 to 1 as images, if records are images."""
    array = find_array_column(schema)
    if array is None or len(array[1].shape) != 2:
        return {}
    grid = np.rint(cells * 255).astype(np.uint8)
    return {IMAGE_GRID: grid.reshape(*cells.shape[:2], *array[1].shape)}
