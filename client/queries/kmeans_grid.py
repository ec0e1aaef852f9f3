"""k-means by one histogram: `kmeans` with method grid, in one to three columns of numbers.

The columns' ranges are a grid of g cells a column. A record adds 1 to its cell, with the Δ of a
histogram (`count`); all the rest looks at the noisy counts alone and is free: they become the
nearest counts that are not negative and add up to N (`parley.privacy.estimation.simplex`), and
Lloyd's steps (1982) from the best of several k-means++ starts (Arthur & Vassilvitskii 2007) cluster
the cells' middles with these weights. The starts come from a fixed seed: the same noisy counts have
the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.data.schema import Schema
from parley.client.data.table_block import TableBlock
from parley.client.queries.base import (
    ColumnsQuery,
    Facts,
    Integers,
    Numbers,
    Part,
    QueryError,
    Table,
    counts_in,
)
from parley.client.queries.cells import Axis, Cells
from parley.client.queries.points import centre_table, check_points, nearest, points_of
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.estimation.reach import Reach
from parley.privacy.estimation.simplex import simplex

_MOST_COLUMNS = 3
_STARTS = 10
_STEPS = 100


@dataclass(frozen=True, kw_only=True)
class KMeansGrid(ColumnsQuery):
    """Centres of k clusters, of at most three columns cut into g cells each."""

    kind: ClassVar[str] = "kmeans-grid"
    counts: ClassVar[bool] = True
    simultaneous: ClassVar[bool] = False

    clusters: int
    grid: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.grid <= 256:
            raise QueryError(f"Expected a grid of 2 to 256 cells a column, got {self.grid}.")

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """See `Query.check`."""
        super().check(schema, neighbouring)
        check_points(schema, self.of, self.clusters, _MOST_COLUMNS)
        if self.clusters > self.cells(schema):
            raise QueryError(
                f"Expected at most {self.cells(schema)} clusters, the cells, got {self.clusters}."
            )

    def parts(self, schema: Schema, weight: int) -> tuple[Part, ...]:
        """A count in each of g^D cells."""
        del schema
        return (counts_in(Cells(axes=tuple(map(self._axis, self.of))), weight),)

    def _axis(self, name: str) -> Axis:
        def codes(block: TableBlock) -> NDArray[np.intp]:
            place = np.floor((points_of(block, (name,))[:, 0] + 1) * (self.grid / 2))
            return np.clip(place.astype(np.intp), 0, self.grid - 1)

        return Axis(size=self.grid, codes=codes)

    def answer(self, noisy: Integers, weight: int, noise: Reach, facts: Facts) -> Table:
        """Clusters by size; the interval is about that of a sum over as many cells."""
        counts = noisy / weight
        public = None if self.selects else facts.records
        total = max(float(counts.sum()), 0.0) if public is None else float(public)
        weights = simplex(counts, total=total)
        middles = (2 * np.arange(self.grid) + 1) / self.grid - 1
        axes = np.meshgrid(*[middles] * len(self.of), indexing="ij")
        points = np.stack([axis.ravel() for axis in axes], axis=1)
        centres, labels = weighted_kmeans(points, weights, self.clusters)
        sums: Numbers = np.zeros(self.clusters)
        np.add.at(sums, labels, weights)
        cells = np.bincount(labels, minlength=self.clusters)
        half = noise.half_width() / weight * np.sqrt(cells)
        return centre_table(facts.schema, self.of, centres, sums, half)


def weighted_kmeans(
    points: Numbers, weights: Numbers, clusters: int
) -> tuple[Numbers, NDArray[np.intp]]:
    """`[k, D]` centres and `[n]` labels of weighted points: the best of several starts.

    Where nothing has weight every point counts the same.
    """
    if not weights.sum() > 0:
        weights = np.ones(len(points))
    best: tuple[float, Numbers, NDArray[np.intp]] | None = None
    for start in range(_STARTS):
        centres = _spread(points, weights, clusters, np.random.default_rng(start))
        labels = nearest(points, centres).argmin(axis=1)
        for _ in range(_STEPS):
            for axis in range(points.shape[1]):
                sums = np.bincount(labels, weights=weights * points[:, axis], minlength=clusters)
                mass = np.bincount(labels, weights=weights, minlength=clusters)
                # A cluster without weight stays where it is.
                np.divide(sums, mass, out=centres[:, axis], where=mass > 0)
            distances = nearest(points, centres)
            moved, labels = labels, distances.argmin(axis=1)
            if (moved == labels).all():
                break
        inertia = float(weights @ distances[np.arange(len(points)), labels])
        if best is None or inertia < best[0]:
            best = inertia, centres, labels
    if best is None:
        raise QueryError("Expected at least one start, got none.")
    return best[1], best[2]


def _spread(
    points: Numbers,
    weights: Numbers,
    clusters: int,
    rng: np.random.Generator,
) -> Numbers:
    """`[k, D]` k-means++: each next centre is a point by weight times squared distance."""
    likely = weights / weights.sum()
    centres = [points[rng.choice(len(points), p=likely)]]
    while len(centres) < clusters:
        gaps = weights * nearest(points, np.array(centres)).min(axis=1)
        likely = gaps / gaps.sum() if gaps.sum() > 0 else np.full(len(points), 1 / len(points))
        centres.append(points[rng.choice(len(points), p=likely)])
    return np.array(centres)
