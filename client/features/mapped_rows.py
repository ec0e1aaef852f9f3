"""`MappedRows`: rows that are computed from cells when they are read, to save memory.

`prepare_raw_rows` prepares them, or rows in memory, for a simulation: sparse if they are many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from parley.client.data.record_chunks import compute_byte_ranges, map_chunks
from parley.client.data.schema import Schema
from parley.client.data.sparse_rows import FeatureRows, allocate_rows
from parley.client.features.base import FeatureMap
from parley.client.features.row_preparation import build_prepared_rows
from parley.client.models.clipping import zero_broken_rows
from parley.client.models.row_quantization import prepare_rows


@dataclass(frozen=True, kw_only=True)
class MappedRows:
    """Rows that are computed from cells when they are read, a piece at a time.

    Attributes:
        cells: `[N, p]`.
        width: q.
        max_entries: maximum number of entries of a row that are not zero.
        compute: `[n, p]` cells → `[n, q]` rows, each row from its own cells.
    """

    cells: FeatureRows
    width: int
    max_entries: int
    dtype: DTypeLike
    compute: Callable[[NDArray[np.float64]], NDArray[np.floating[Any]]]

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, q)."""
        return len(self), self.width

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
        """Return `[n, q]` the chosen rows."""
        return self.compute(np.array(self.cells[rows]))


RawRows = FeatureRows | MappedRows


def prepare_raw_rows(
    raw: RawRows,
    *,
    intercept: bool,
    order: NDArray[np.int64] | None = None,
    buffer: NDArray[np.floating[Any]] | None = None,
) -> FeatureRows:
    """Build prepared rows as `build_prepared_rows` does, sparse if many rows have few entries."""
    if isinstance(raw, np.ndarray):
        return build_prepared_rows(raw, intercept=intercept, order=order, buffer=buffer)
    chosen = np.arange(len(raw)) if order is None else order
    count, width, most = len(chosen), raw.shape[1] + intercept, raw.max_entries + intercept
    rows = allocate_rows(count, width=width, max_entries=most, dtype=raw.dtype)

    def fill(begin: int, end: int) -> None:
        own = np.asarray(raw[chosen[begin:end]])
        rows[begin:end] = prepare_rows(own, intercept=intercept)

    map_chunks(fill, compute_byte_ranges(count, 8 * width))
    return rows


def map_when_read(features: FeatureMap, schema: Schema, cells: FeatureRows) -> MappedRows | None:
    """Return rows that are mapped a piece at a time; None if the map has no bound on entries."""
    made = features.bind(schema)
    if made.max_entries is None:
        return None

    def compute(cells: NDArray[np.float64]) -> NDArray[np.float32]:
        mapped = made.map_piece(cells)
        zero_broken_rows(mapped)
        return mapped

    return MappedRows(
        cells=cells,
        width=made.width,
        max_entries=made.max_entries,
        dtype=np.float32,
        compute=compute,
    )
