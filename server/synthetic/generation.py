"""Fit a generator to a run's released sum, and write synthetic records.

Fitting and drawing are post-processing of the release: they cost no privacy, however many rows are
drawn. A run that was killed in between fits again when it is resumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.record_discretization import build_coded_columns
from parley.client.data.schema import Schema
from parley.server.records.run_summary import SyntheticSummary
from parley.server.synthetic.image_grid import GRID_IMAGES, build_image_grid
from parley.server.synthetic.registry import GENERATORS, Tensors, can_draw
from parley.server.synthetic.synthetic_rows import get_file_name, take_rows, write_rows


class GenerationError(ValueError):
    """No rows can be drawn from the release; its cost stays charged."""


def _draw_network(
    network: Any, schema: Schema, theta: NDArray[Any], rows: int, seed: int
) -> Iterator[NDArray[Any]]:
    from parley.server.synthetic.released_network_rows import draw_network_rows  # noqa: PLC0415 - start-up: `run` and `sample` of tables load no torch (1.5 s)

    return draw_network_rows(network, schema, theta, rows, seed)


def _draw_images(trained: Any, theta: NDArray[np.float64], schema: str) -> Tensors:
    """Return images of every class that a network draws; empty if its own code fails."""
    network, parsed = trained.model, Schema.from_toml(schema)
    count = GRID_IMAGES * network.classes
    try:
        rows = take_rows(_draw_network(network, parsed, theta, count, 0), count)[:, :-1]
    # The user's own code failed: the model is still saved, and `parley sample` shows the error.
    except Exception:
        return {}
    return build_image_grid(rows.reshape(GRID_IMAGES, network.classes, -1).swapaxes(0, 1), parsed)


def draw_rows(
    algorithm: Any, schema: Schema, tensors: Mapping[str, NDArray[Any]], rows: int, seed: int
) -> Iterator[NDArray[Any]]:
    """Draw rows from the content of a model file: a generator, or a network that draws.

    Raises:
        ValueError: it holds neither, or a damaged one.
    """
    row = GENERATORS.get(algorithm.kind)
    if row is not None:
        if algorithm.columns and algorithm.columns != tuple(
            each.size for each in build_coded_columns(schema)
        ):
            raise ValueError("Expected a schema of the summed columns, got others.")
        return row.draw(algorithm, schema, tensors, rows, seed)
    if not can_draw(algorithm):
        raise ValueError(
            f"Expected a run of {', '.join(GENERATORS)}, or a network whose module has the "
            f"method drawn(labels, generator), got {algorithm.kind}: it makes no rows."
        )
    return _draw_network(algorithm.model, schema, tensors["theta"], rows, seed)


def generate_synthetic(
    counted: Any, settings: Any, released: NDArray[np.float64], *, schema: str, folder: Path
) -> tuple[Tensors, SyntheticSummary | None]:
    """Fit a generator and write the records; return the tensors to save, and the summary.

    Args:
        counted: the algorithm. One that makes no rows gives only images, if it is a network that
            draws.
        released: `[d]` its noisy result.

    Raises:
        GenerationError: no generator can be fitted to the release.
    """
    row = GENERATORS.get(counted.kind)
    if row is None:
        return _draw_images(counted, released, schema) if can_draw(counted) and schema else {}, None
    parsed = Schema.from_toml(schema)
    try:
        tensors, total = row.fit(counted, parsed, settings, released)
    except ValueError as error:
        raise GenerationError(
            f"No synthetic table: {error} The cost of the release stays charged."
        ) from error
    rows = max(round(total), 1) if settings.rows == "auto" else settings.rows
    name = get_file_name(parsed)
    drawn = row.draw(counted, parsed, tensors, rows, settings.seed)
    write_rows(drawn, parsed, folder / name, rows=rows, seed=settings.seed)
    facts = SyntheticSummary(
        path=name, rows=rows, seed=settings.seed, records=total, **row.count_released(counted)
    )
    return tensors, facts
