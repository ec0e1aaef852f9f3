"""What a run that releases a sum of its records leaves beside its model: a generator, and records.

Fitting and drawing are post-processing of what was released: they cost nothing, however many rows
are drawn. A run that was killed in between fits again when it is resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.record_codes import array_of, coded_columns
from parley.client.data.schema import Schema
from parley.server.records.run_summary import GRID, Synthetic
from parley.server.synthetic import mixture_generator
from parley.server.synthetic.synthetic_rows import file_name, first_rows, write_rows

_SHOWN = 8
"""Images of a class in the grid."""

Tensors = dict[str, NDArray[Any]]


class NoTable(ValueError):
    """A release that no rows can be made of; what it cost stays charged."""


@dataclass(frozen=True, kw_only=True)
class Generator:
    """From a release to rows.

    Attributes:
        fit: what was summed, the schema, the job's settings and the noisy release → tensors to
            keep in the model file, and N̂. Raises ValueError.
        rows: what was summed, the schema, tensors of the model file, rows, seed → pieces of
            `[rows, columns]`, the label last: codes, or where in its range each entry of an array
            lies. Raises ValueError: tensors of another generator.
        released: how many tables, or classes with a sum of features, there are, by name.
    """

    fit: Callable[[Any, Schema, Any, NDArray[np.float64]], tuple[Tensors, float]]
    rows: Callable[[Any, Schema, Mapping[str, NDArray[Any]], int, int], Iterator[NDArray[Any]]]
    released: Callable[[Any], dict[str, int]]


def _fit_network(
    summed: Any, schema: Schema, settings: Any, released: NDArray[np.float64]
) -> tuple[Tensors, float]:
    from parley.server.synthetic import kernel_generator  # noqa: PLC0415 - start-up: `run` and `sample` of tables load no torch (1.5 s)

    tensors, total = kernel_generator.fitted(summed, schema, settings, released)
    shown = []
    for number in range(summed.classes):
        one = {**tensors, "shares": np.eye(summed.classes, dtype=np.float32)[number]}
        shown.append(first_rows(_network_rows(summed, schema, one, _SHOWN, 0), _SHOWN)[:, :-1])
    return tensors | _as_grid(np.stack(shown), schema), total


def _as_grid(cells: NDArray[Any], schema: Schema) -> Tensors:
    """`[K, n, p]` numbers from 0 to 1 as images, where records are images."""
    array = array_of(schema)
    if array is None or len(array[1].shape) != 2:
        return {}
    return {GRID: np.rint(cells * 255).astype(np.uint8).reshape(*cells.shape[:2], *array[1].shape)}


def _draws(trained: Any) -> bool:
    """Whether it is a network whose module draws records
    (`parley.server.synthetic.network_generator`)."""
    return callable(getattr(getattr(trained.model, "module", None), "drawn", None))


def _drawn(
    network: Any, schema: Schema, theta: NDArray[Any], rows: int, seed: int
) -> Iterator[NDArray[Any]]:
    from parley.server.synthetic.network_generator import drawn_rows  # noqa: PLC0415 - start-up: `run` and `sample` of tables load no torch (1.5 s)

    return drawn_rows(network, schema, theta, rows, seed)


def _pictures(trained: Any, theta: NDArray[np.float64], schema: str) -> Tensors:
    """Images of every class that a network draws; none where its own code fails."""
    network, parsed = trained.model, Schema.from_toml(schema)
    count = _SHOWN * network.classes
    try:
        rows = first_rows(_drawn(network, parsed, theta, count, 0), count)[:, :-1]
    except Exception:  # one's own code: the model is kept all the same, `parley sample` says why
        return {}
    return _as_grid(rows.reshape(_SHOWN, network.classes, -1).swapaxes(0, 1), parsed)


def rows_of(
    made: Any, schema: Schema, tensors: Mapping[str, NDArray[Any]], rows: int, seed: int
) -> Iterator[NDArray[Any]]:
    """Rows by what a model file holds: a generator, or a network that draws.

    Raises:
        ValueError: it holds neither, or a damaged one.
    """
    row = GENERATORS.get(made.kind)
    if row is not None:
        if made.columns and made.columns != tuple(each.size for each in coded_columns(schema)):
            raise ValueError("Expected a schema of the columns that were summed, got others.")
        return row.rows(made, schema, tensors, rows, seed)
    if not _draws(made):
        raise ValueError(
            f"Expected a run of {', '.join(GENERATORS)}, or a network whose module has the method "
            f"drawn(labels, generator), which make rows, got {made.kind}."
        )
    return _drawn(made.model, schema, tensors["theta"], rows, seed)


def _network_rows(
    summed: Any, schema: Schema, tensors: Mapping[str, NDArray[Any]], rows: int, seed: int
) -> Iterator[NDArray[Any]]:
    from parley.server.synthetic import kernel_generator  # noqa: PLC0415 - start-up: `run` and `sample` of tables load no torch (1.5 s)

    return kernel_generator.drawn(summed, schema, tensors, rows, seed)


GENERATORS: dict[str, Generator] = {
    "marginals": Generator(
        fit=mixture_generator.fitted,
        rows=mixture_generator.drawn,
        released=lambda of: {"tables": len(of.pairs)},
    ),
    "random-features": Generator(
        fit=_fit_network, rows=_network_rows, released=lambda of: {"classes": of.classes}
    ),
}
"""`algorithm.kind` → how rows are made of what it releases."""


def generated(
    counted: Any, settings: Any, released: NDArray[np.float64], *, schema: str, folder: Path
) -> tuple[Tensors, Synthetic | None]:
    """Fits, and writes the records; tensors to keep, and what the summary says.

    Args:
        counted: the algorithm; of one that makes no rows, nothing comes of it but images, where it
            is a network that draws.
        released: `[d]` its noisy result.

    Raises:
        NoTable: a release that nothing can be fitted to.
    """
    row = GENERATORS.get(counted.kind)
    if row is None:
        return _pictures(counted, released, schema) if _draws(counted) and schema else {}, None
    parsed = Schema.from_toml(schema)
    try:
        tensors, total = row.fit(counted, parsed, settings, released)
    except ValueError as error:
        raise NoTable(
            f"No synthetic table: {error} What the release cost stays charged."
        ) from error
    rows = max(round(total), 1) if settings.rows == "auto" else settings.rows
    name = file_name(parsed)
    drawn = row.rows(counted, parsed, tensors, rows, settings.seed)
    write_rows(drawn, parsed, folder / name, rows=rows, seed=settings.seed)
    facts = Synthetic(
        path=name, rows=rows, seed=settings.seed, records=total, **row.released(counted)
    )
    return tensors, facts
