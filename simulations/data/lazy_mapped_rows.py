"""`MappedRows`: rows that are computed from cells when they are read, to save memory.

`prepare_raw_rows` prepares them, or sparse rows, for a simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from parley.client.data.schema import Schema
from parley.client.data.sparse_rows import FeatureRows, RowStorage, SparseRows
from parley.client.data.threaded_chunks import compute_byte_ranges, map_chunks
from parley.client.features.base import FeatureMap
from parley.client.models.contribution_clipping import zero_broken_rows
from parley.client.models.row_quantization import prepare_rows


@dataclass(frozen=True, kw_only=True, repr=False)
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
    raw: SparseRows | MappedRows, *, intercept: bool, order: NDArray[np.int64] | None = None
) -> FeatureRows:
    """Build prepared rows as `build_prepared_rows` does, sparse if many rows have few entries."""
    chosen = np.arange(len(raw)) if order is None else order
    count, width = len(chosen), raw.shape[1] + intercept
    storage = RowStorage(max_entries=raw.max_entries + intercept)
    rows = storage.allocate(count, width, dtype=raw.dtype)

    def fill(begin: int, end: int) -> None:
        own = np.asarray(raw[chosen[begin:end]])
        rows[begin:end] = prepare_rows(own, intercept=intercept)

    map_chunks(fill, compute_byte_ranges(count, 8 * width))
    return rows


def map_when_read(
    features: FeatureMap | None, schema: Schema, cells: FeatureRows
) -> MappedRows | None:
    """Return rows that are mapped a piece at a time; None if the map has no bound on entries.

    Without a map, cells are scaled.
    """
    if features is None:
        return MappedRows(
            cells=cells,
            width=cells.shape[1],
            max_entries=schema.max_entries,
            dtype=cells.dtype,
            compute=schema.scale_rows,
        )
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
