"""Records from the released sum of random features, and images of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.schema import Schema
from parley.server.synthetic.image_grid import GRID_IMAGES, build_image_grid
from parley.server.synthetic.kernel_generator import RecordShape, draw_rows, fit
from parley.server.synthetic.registry import SyntheticGenerator, Tensors
from parley.server.synthetic.synthetic_rows import take_rows


def _fit_kernel(
    summed: Any, schema: Schema, settings: Any, released: NDArray[np.float64]
) -> tuple[Tensors, float]:
    shape = RecordShape.from_schema(summed, schema)
    tensors, total = fit(summed, shape, released, steps=settings.steps, seed=settings.seed)
    shown = []
    for number in range(summed.classes):
        one = {**tensors, "shares": np.eye(summed.classes, dtype=np.float32)[number]}
        rows = draw_rows(summed, schema, one, GRID_IMAGES, 0)
        shown.append(take_rows(rows, GRID_IMAGES)[:, :-1])
    return tensors | build_image_grid(np.stack(shown), schema), total


GENERATOR = SyntheticGenerator(
    fit=_fit_kernel, draw=draw_rows, count_released=lambda of: {"classes": of.classes}
)
