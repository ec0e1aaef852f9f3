"""Fit a generator to a run's released sum, and write synthetic records.

Fitting and drawing are post-processing of the release: they cost no privacy, however many rows are
drawn. A run that was killed in between fits again when it is resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.record_codes import build_coded_columns, find_array_column
from parley.client.data.schema import Schema
from parley.server.records.run_summary import IMAGE_GRID, SyntheticSummary
from parley.server.synthetic import mixture_generator
from parley.server.synthetic.synthetic_rows import get_file_name, take_rows, write_rows

_GRID_IMAGES = 8
"""Number of images per class in the grid."""

Tensors = dict[str, NDArray[Any]]


class GenerationError(ValueError):
    """No rows can be drawn from the release; its cost stays charged."""


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


def _fit_kernel(
    summed: Any, schema: Schema, settings: Any, released: NDArray[np.float64]
) -> tuple[Tensors, float]:
    from parley.server.synthetic import kernel_generator  # noqa: PLC0415 - start-up: `run` and `sample` of tables load no torch (1.5 s)

    tensors, total = kernel_generator.fit_generator(summed, schema, settings, released)
    shown = []
    for number in range(summed.classes):
        one = {**tensors, "shares": np.eye(summed.classes, dtype=np.float32)[number]}
        shown.append(
            take_rows(_draw_kernel_rows(summed, schema, one, _GRID_IMAGES, 0), _GRID_IMAGES)[:, :-1]
        )
    return tensors | _build_grid(np.stack(shown), schema), total


def _build_grid(cells: NDArray[Any], schema: Schema) -> Tensors:
    """Return `[K, n, p]` numbers from 0 to 1 as images, if records are images."""
    array = find_array_column(schema)
    if array is None or len(array[1].shape) != 2:
        return {}
    return {
        IMAGE_GRID: np.rint(cells * 255).astype(np.uint8).reshape(*cells.shape[:2], *array[1].shape)
    }


def _can_draw(trained: Any) -> bool:
    """Return whether the model is a network whose module draws records.

    See `parley.server.synthetic.network_generator`.
    """
    return callable(getattr(getattr(trained.model, "module", None), "drawn", None))


def _draw_network(
    network: Any, schema: Schema, theta: NDArray[Any], rows: int, seed: int
) -> Iterator[NDArray[Any]]:
    from parley.server.synthetic.network_generator import draw_network_rows  # noqa: PLC0415 - start-up: `run` and `sample` of tables load no torch (1.5 s)

    return draw_network_rows(network, schema, theta, rows, seed)


def _draw_images(trained: Any, theta: NDArray[np.float64], schema: str) -> Tensors:
    """Return images of every class that a network draws; empty if its own code fails."""
    network, parsed = trained.model, Schema.from_toml(schema)
    count = _GRID_IMAGES * network.classes
    try:
        rows = take_rows(_draw_network(network, parsed, theta, count, 0), count)[:, :-1]
    # The user's own code failed: the model is still saved, and `parley sample` shows the error.
    except Exception:
        return {}
    return _build_grid(rows.reshape(_GRID_IMAGES, network.classes, -1).swapaxes(0, 1), parsed)


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
            raise ValueError("Expected a schema of the columns that were summed, got others.")
        return row.draw(algorithm, schema, tensors, rows, seed)
    if not _can_draw(algorithm):
        raise ValueError(
            f"Expected a run of {', '.join(GENERATORS)}, or a network whose module has the method "
            f"drawn(labels, generator), which make rows, got {algorithm.kind}."
        )
    return _draw_network(algorithm.model, schema, tensors["theta"], rows, seed)


def _draw_kernel_rows(
    summed: Any, schema: Schema, tensors: Mapping[str, NDArray[Any]], rows: int, seed: int
) -> Iterator[NDArray[Any]]:
    from parley.server.synthetic import kernel_generator  # noqa: PLC0415 - start-up: `run` and `sample` of tables load no torch (1.5 s)

    return kernel_generator.draw_rows(summed, schema, tensors, rows, seed)


GENERATORS: dict[str, SyntheticGenerator] = {
    "marginals": SyntheticGenerator(
        fit=mixture_generator.fit_generator,
        draw=mixture_generator.draw_rows,
        count_released=lambda of: {"tables": len(of.pairs)},
    ),
    "random-features": SyntheticGenerator(
        fit=_fit_kernel, draw=_draw_kernel_rows, count_released=lambda of: {"classes": of.classes}
    ),
}
"""`algorithm.kind` → how its release becomes rows."""


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
        return _draw_images(counted, released, schema) if _can_draw(
            counted
        ) and schema else {}, None
    parsed = Schema.from_toml(schema)
    try:
        tensors, total = row.fit(counted, parsed, settings, released)
    except ValueError as error:
        raise GenerationError(
            f"No synthetic table: {error} What the release cost stays charged."
        ) from error
    rows = max(round(total), 1) if settings.rows == "auto" else settings.rows
    name = get_file_name(parsed)
    drawn = row.draw(counted, parsed, tensors, rows, settings.seed)
    write_rows(drawn, parsed, folder / name, rows=rows, seed=settings.seed)
    facts = SyntheticSummary(
        path=name, rows=rows, seed=settings.seed, records=total, **row.count_released(counted)
    )
    return tensors, facts
