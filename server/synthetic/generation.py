"""What a run that releases tables leaves beside its model: a generator, and `synthetic.csv`.

Fitting and drawing are post-processing of what was released: they cost nothing, however many rows
are drawn. A run that was killed in between fits again when it is resumed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
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

__all__ = [
    "GENERATORS",
    "Generator",
    "NoTable",
    "first_rows",
    "generated",
    "pieces",
    "tables_of",
    "write_table",
]

FILE = "synthetic.csv"

_PIECE = 1 << 18
"""Rows drawn and written at a time: memory does not grow with how many are asked for."""

Tensors = dict[str, NDArray[Any]]


class NoTable(ValueError):
    """A release that no rows can be made of; what it cost stays charged."""


@dataclass(frozen=True, kw_only=True)
class Generator:
    """From a release to rows.

    Attributes:
        fit: what was counted, the job's settings and the noisy release → tensors to keep in the
            model file, and N̂. Raises ValueError.
        codes: what was counted, tensors of the model file, rows, seed → pieces of
            `[rows, columns]` codes. Raises ValueError: tensors that are none of its own.
    """

    fit: Callable[[Any, Any, NDArray[np.float64]], tuple[Tensors, float]]
    codes: Callable[[Any, Mapping[str, NDArray[Any]], int, int], Iterator[NDArray[np.int64]]]


def _fit_mixture(
    counted: PairTables, settings: Marginals, released: NDArray[np.float64]
) -> tuple[Tensors, float]:
    pairs = tuple((i, j) for i, j in counted.pairs)
    tables = Tables(sizes=counted.sizes, pairs=pairs, values=released)
    mixture = fit(tables, components=settings.components, steps=settings.steps, seed=settings.seed)
    return {"shares": mixture.shares}, tables.total


def _mixture_codes(
    counted: PairTables, tensors: Mapping[str, NDArray[Any]], rows: int, seed: int
) -> Iterator[NDArray[np.int64]]:
    mixture = Mixture.of(counted.sizes, tensors.get("shares"))
    rng = np.random.default_rng([seed, 0])
    return (mixture.sample(count, rng) for count in pieces(rows, _PIECE))


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
    write_table(tables_of(codes, parsed, seed=settings.seed), parsed, folder / FILE)
    facts = Synthetic(
        path=FILE, rows=rows, seed=settings.seed, tables=len(counted.pairs), records=total
    )
    return tensors, facts


def pieces(rows: int, most: int) -> Iterator[int]:
    """How many rows each piece has.

    >>> list(pieces(10, 4))
    [4, 4, 2]
    """
    return (min(most, rows - begin) for begin in range(0, rows, most))


def first_rows(codes: Iterable[NDArray[np.int64]], most: int) -> NDArray[np.int64]:
    """`[n, columns]` the first pieces, together: as few as have `most` rows, and no more rows."""
    kept: list[NDArray[np.int64]] = []
    for piece in codes:
        kept.append(piece)
        if sum(map(len, kept)) >= most:
            break
    return np.concatenate(kept)[:most]


def tables_of(
    codes: Iterable[NDArray[np.int64]], schema: Schema, *, seed: int
) -> Iterator[pl.DataFrame]:
    """Codes as the table that the schema reads, in pieces; ignored columns are there, and empty.

    Args:
        codes: pieces of `[n, columns]`, of `coded_columns(schema)`.
        seed: public; where within its part a number lies.
    """
    rng, columns = np.random.default_rng([seed, 1]), coded_columns(schema)
    for piece in codes:
        values = {
            column.name: column.values(own, rng)
            for column, own in zip(columns, piece.T, strict=True)
        }
        empty = pl.repeat(None, len(piece), dtype=pl.String, eager=True)
        yield pl.DataFrame({name: values.get(name, empty) for name in schema.columns})


def write_table(frames: Iterable[pl.DataFrame], schema: Schema, out: Path) -> None:
    """Writes a CSV as the schema says that it is written; whole or not at all."""
    file = schema.file
    numbers = pl.selectors.float()
    draft = out.with_name(f".{out.name}.part")
    try:
        # One open file: an encoding with a mark at its beginning writes it once.
        with draft.open("w", encoding=file.encoding, newline="") as written:
            for number, frame in enumerate(frames):
                if file.decimal != ".":
                    texts = numbers.cast(pl.String).str.replace(".", ",", literal=True)
                    frame = frame.with_columns(texts)  # noqa: PLW2901 - the same rows, as text
                header = file.header and not number
                written.write(frame.write_csv(separator=file.separator, include_header=header))
        os.replace(draft, out)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
