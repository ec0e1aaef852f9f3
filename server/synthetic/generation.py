"""What a run that releases tables leaves beside its model: a generator, and `synthetic.csv`.

Fitting and drawing are post-processing of what was released: they cost nothing, however many rows
are drawn. A run that was killed in between fits again when it is resumed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from parley.client.algorithms.pair_tables import PairTables
from parley.client.data.codes import coded_columns
from parley.client.data.schema import Schema
from parley.server.jobs.algorithm import Marginals
from parley.server.records.synthetic import Synthetic
from parley.server.synthetic.mixture import Mixture, Tables, fit

__all__ = ["GENERATORS", "Generator", "NoTable", "generated", "table_of", "write_table"]

FILE = "synthetic.csv"

Tensors = dict[str, NDArray[Any]]


class NoTable(ValueError):
    """A release that no rows can be made of; what it cost stays charged."""


@dataclass(frozen=True, kw_only=True)
class Generator:
    """From a release to rows.

    Attributes:
        fit: what was counted, the job's settings and the noisy release → tensors to keep in the
            model file, and N̂. Raises ValueError.
        codes: what was counted, tensors of the model file, rows, seed → `[rows, columns]` codes.
            Raises ValueError: tensors that are none of its own.
    """

    fit: Callable[[Any, Any, NDArray[np.float64]], tuple[Tensors, float]]
    codes: Callable[[Any, Mapping[str, NDArray[Any]], int, int], NDArray[np.int64]]


def _fit_mixture(
    counted: PairTables, settings: Marginals, released: NDArray[np.float64]
) -> tuple[Tensors, float]:
    pairs = tuple((i, j) for i, j in counted.pairs)
    tables = Tables(sizes=counted.sizes, pairs=pairs, values=released)
    mixture = fit(tables, components=settings.components, steps=settings.steps, seed=settings.seed)
    return {"shares": mixture.shares}, tables.total


def _mixture_codes(
    counted: PairTables, tensors: Mapping[str, NDArray[Any]], rows: int, seed: int
) -> NDArray[np.int64]:
    mixture = Mixture.of(counted.sizes, tensors.get("shares"))
    return mixture.sample(rows, np.random.default_rng([seed, 0]))


GENERATORS: dict[str, Generator] = {
    "marginals": Generator(fit=_fit_mixture, codes=_mixture_codes),
}
"""`algorithm.kind` → how rows are made of what it releases."""


def generated(
    counted: Any, settings: Any, released: NDArray[np.float64], *, schema: str, folder: Path
) -> tuple[Tensors, Synthetic | None]:
    """Fits, and writes `synthetic.csv`; tensors to keep, and what the summary says.

    Args:
        counted: the algorithm; of one that makes no rows, nothing comes of it.
        settings: the job's `[algorithm]`.
        released: `[d]` its noisy result.
        schema: the schema file's text.
        folder: of the run.

    Raises:
        NoTable: a release that nothing can be fitted to.
    """
    row = GENERATORS.get(counted.kind)
    if row is None:
        return {}, None
    try:
        tensors, total = row.fit(counted, settings, released)
    except ValueError as error:
        raise NoTable(
            f"No synthetic table: {error} What the release cost stays charged."
        ) from error
    rows = max(round(total), 1) if settings.rows == "auto" else settings.rows
    parsed = Schema.from_toml(schema)
    codes = row.codes(counted, tensors, rows, settings.seed)
    write_table(table_of(codes, parsed, seed=settings.seed), parsed, folder / FILE)
    facts = Synthetic(
        path=FILE, rows=rows, seed=settings.seed, tables=len(counted.pairs), records=total
    )
    return tensors, facts


def table_of(codes: NDArray[np.int64], schema: Schema, *, seed: int) -> pl.DataFrame:
    """Codes as the table that the schema reads: ignored columns are there, and empty.

    Args:
        codes: `[n, columns]`, of `coded_columns(schema)`.
        seed: public; where within its part a number lies.
    """
    rng = np.random.default_rng([seed, 1])
    values = {
        column.name: column.values(own, rng)
        for column, own in zip(coded_columns(schema), codes.T, strict=True)
    }
    empty = pl.repeat(None, len(codes), dtype=pl.String, eager=True)
    return pl.DataFrame({name: values.get(name, empty) for name in schema.columns})


def write_table(frame: pl.DataFrame, schema: Schema, out: Path) -> None:
    """Writes a CSV as the schema says that it is written; whole or not at all."""
    file = schema.file
    if file.decimal != ".":
        numbers = pl.selectors.float()
        frame = frame.with_columns(numbers.cast(pl.String).str.replace(".", ",", literal=True))
    text = frame.write_csv(separator=file.separator, include_header=file.header)
    draft = out.with_name(f".{out.name}.part")
    try:
        draft.write_bytes(text.encode(file.encoding))
        os.replace(draft, out)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
