"""Records as points of a cube: several columns of numbers, each scaled to [−1, 1]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parley.client.data.schema import Schema
from parley.client.data.table_block import TableBlock
from parley.client.queries.base import QueryError, Table, key_of, numeric

MOST_CLUSTERS = 64

_PIECE = 8192
"""Points at a time."""


def check_points(schema: Schema, columns: Sequence[str], clusters: int, most: int) -> None:
    """Refuses clusters of what are no points."""
    if not 1 <= len(columns) <= most or len(set(columns)) < len(columns):
        raise QueryError(
            f"Expected 1 to {most} distinct columns, got {', '.join(columns) or 'none'}."
        )
    for name in columns:
        numeric(schema, name)
    if not 1 <= clusters <= MOST_CLUSTERS:
        raise QueryError(f"Expected 1 to {MOST_CLUSTERS} clusters, got {clusters}.")


def points_of(block: TableBlock, columns: Sequence[str]) -> NDArray[np.float64]:
    """`[N, D]` of the block's records."""
    ranges = [numeric(block.schema, name) for name in columns]
    parts = [
        (2 * block.columns[name] - known.low - known.high) / (known.high - known.low)
        for name, known in zip(columns, ranges, strict=True)
    ]
    return np.clip(np.stack(parts, axis=1), -1, 1)


def nearest(points: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.float64]:
    """`[n, k]` squared distances, |p|² − 2p·c + |c|²: for points that are public."""
    lengths = np.square(points).sum(axis=1)[:, None] + np.square(centres).sum(axis=1)
    squares: NDArray[np.float64] = np.maximum(lengths - 2 * points @ centres.T, 0)
    return squares


def clusters_of(points: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.intp]:
    """`[n]` the nearest centre of each point, by arithmetic on that point alone.

    No product of matrices: its last digits depend on how many points there are, and centres that
    somebody chose may tie there, so that one record more or less would move others' clusters.
    """
    labels = np.empty(len(points), dtype=np.intp)
    for begin in range(0, len(points), _PIECE):
        piece = points[begin : begin + _PIECE]
        squares = np.zeros((len(piece), len(centres)))
        for axis, along in enumerate(piece.T):
            squares += np.square(along[:, None] - centres[:, axis])
        labels[begin : begin + _PIECE] = squares.argmin(axis=1)
    return labels


def centre_table(
    schema: Schema,
    columns: Sequence[str],
    centres: NDArray[np.float64],
    counts: NDArray[np.float64],
    half: NDArray[np.float64],
) -> Table:
    """Clusters by falling size: each column's value at `centres` `[k, D]`, and its records."""
    order = np.argsort(-counts, kind="stable")
    found: Table = {"cluster": (np.arange(len(counts)) + 1).tolist()}
    for axis, name in enumerate(columns):
        known = numeric(schema, name)
        middle, width = (known.low + known.high) / 2, (known.high - known.low) / 2
        found[key_of(name)] = middle + width * centres[order, axis]
    value, reach = counts[order], half[order]
    return {**found, "value": value, "low": value - reach, "high": value + reach}
