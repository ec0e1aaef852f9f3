"""k-means on records as points of a cube: several columns of numbers, each scaled to [−1, 1].

`kmeans` with method grid is k-means by one histogram, in one to three columns of numbers.

`kmeans-step` is one step of Lloyd's k-means (1982), from public centres to noisy new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.data.query_party_block import RawPartyBlock
from parley.client.data.schema import Schema
from parley.client.queries.base import (
    CellSums,
    ColumnsQuery,
    Integers,
    Numbers,
    QueryError,
    QueryFacts,
    Table,
    build_cell_counts,
    get_answer_key,
    get_range,
)
from parley.client.queries.group_cells import Axis, CellGrid, Codes, Summand
from parley.client.queries.moments import UNIT_BALANCE, check_balance, compute_unit_weights
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.marginals import project_onto_simplex
from parley.privacy.estimation.noise_intervals import CellNoise

MAX_CLUSTERS = 64

_PIECE = 8192
"""Points processed at a time."""


def check_points(schema: Schema, columns: Sequence[str], clusters: int, max_columns: int) -> None:
    """Check that the columns are numbers and the numbers of columns and clusters are allowed.

    Raises:
        QueryError: they are not.
    """
    if not 1 <= len(columns) <= max_columns or len(set(columns)) < len(columns):
        got = ", ".join(columns) or "none"
        raise QueryError(f"Expected 1 to {max_columns} distinct columns, got {got}.")
    for name in columns:
        get_range(schema, name)
    if not 1 <= clusters <= MAX_CLUSTERS:
        raise QueryError(f"Expected 1 to {MAX_CLUSTERS} clusters, got {clusters}.")


def scale_points(block: RawPartyBlock, columns: Sequence[str]) -> NDArray[np.float64]:
    """Return `[N, D]` the points of the block's records."""
    ranges = [get_range(block.schema, name) for name in columns]
    own = [(block.columns[name], known) for name, known in zip(columns, ranges, strict=True)]
    parts = [(2 * cells - r.low - r.high) / (r.high - r.low) for cells, r in own]
    return np.clip(np.stack(parts, axis=1), -1, 1)


def _unscale_points(schema: Schema, columns: Sequence[str], points: Numbers) -> Table:
    """Return the coordinates of `[k, columns]` scaled points in the columns' units."""
    found: Table = {}
    for axis, name in enumerate(columns):
        known = get_range(schema, name)
        middle, width = (known.low + known.high) / 2, (known.high - known.low) / 2
        found[get_answer_key(name)] = middle + width * points[:, axis]
    return found


def compute_squared_distances(points: Numbers, centres: Numbers) -> Numbers:
    """Return `[n, k]` squared distances, |p|² − 2p·c + |c|², for public points."""
    lengths = np.square(points).sum(axis=1)[:, None] + np.square(centres).sum(axis=1)
    return np.asarray(np.maximum(lengths - 2 * points @ centres.T, 0))


def assign_clusters(points: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return `[n]` the nearest centre of each point, by arithmetic on only that point.

    It avoids matrix products. Their last digits depend on the number of points, and deliberately
    chosen centres may tie there. One record more or less would then move others' clusters.
    """
    labels = np.empty(len(points), dtype=np.intp)
    for begin in range(0, len(points), _PIECE):
        piece = points[begin : begin + _PIECE]
        squares = np.zeros((len(piece), len(centres)))
        for axis, along in enumerate(piece.T):
            squares += np.square(along[:, None] - centres[:, axis])
        labels[begin : begin + _PIECE] = squares.argmin(axis=1)
    return labels


_MAX_COLUMNS = 3
_STARTS = 10
_STEPS = 100


@dataclass(frozen=True, kw_only=True)
class KMeansGrid(ColumnsQuery):
    """Centres of k clusters, from at most three columns cut into g cells each."""

    kind: ClassVar[str] = "kmeans-grid"
    nonnegative: ClassVar[bool] = True
    simultaneous: ClassVar[bool] = False

    clusters: int
    grid: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.grid <= 256:
            raise QueryError(f"Expected a grid of 2 to 256 cells per column, got {self.grid}.")

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Run the checks of `Query.check`."""
        super().check(schema, neighbouring)
        check_points(schema, self.of, self.clusters, _MAX_COLUMNS)
        if self.clusters > self.count_cells(schema):
            expected = f"Expected at most {self.count_cells(schema)} clusters, the cells"
            raise QueryError(f"{expected}, got {self.clusters}.")

    def derive_tables(
        self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts
    ) -> dict[str, Table]:
        """Return no tables: a test of a thousand cells takes longer than the clusters."""
        return {}

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Return a count for each of g^D cells."""
        return (build_cell_counts(CellGrid(axes=tuple(map(self._build_axis, self.of))), weight),)

    def _build_axis(self, name: str) -> Axis:
        def codes(block: RawPartyBlock) -> NDArray[np.intp]:
            place = np.floor((scale_points(block, (name,))[:, 0] + 1) * (self.grid / 2))
            return np.fmin(np.fmax(place, 0), self.grid - 1).astype(np.intp)

        return Axis(size=self.grid, codes=codes)

    def answer(self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts) -> Table:
        """Return clusters by size. An interval is about that of a sum over cells."""
        counts = noisy / weight
        public = None if self.selects else facts.records
        total = max(float(counts.sum()), 0.0) if public is None else float(public)
        weights = project_onto_simplex(counts, total=total)
        middles = (2 * np.arange(self.grid) + 1) / self.grid - 1
        axes = np.meshgrid(*[middles] * len(self.of), indexing="ij")
        points = np.stack([axis.ravel() for axis in axes], axis=1)
        centres, labels = fit_weighted_kmeans(points, weights, self.clusters)
        sums: Numbers = np.zeros(self.clusters)
        np.add.at(sums, labels, weights)
        cells = np.bincount(labels, minlength=self.clusters)
        half = noise.compute_half_width() / weight * np.sqrt(cells)
        order = np.argsort(-sums, kind="stable")
        found: Table = {"cluster": list(range(1, self.clusters + 1))}
        found |= _unscale_points(facts.schema, self.of, centres[order])
        value, reach = sums[order], half[order]
        return {**found, "value": value, "low": value - reach, "high": value + reach}


def fit_weighted_kmeans(points: Numbers, weights: Numbers, clusters: int) -> tuple[Numbers, Codes]:
    """Return `[k, D]` centres and `[n]` labels of weighted points: the best of several starts.

    If no point has weight, all points count the same.
    """
    if not weights.sum() > 0:
        weights = np.ones(len(points))
    best: tuple[float, Numbers, NDArray[np.intp]] | None = None
    for start in range(_STARTS):
        centres = _choose_starting_centres(points, weights, clusters, np.random.default_rng(start))
        labels = compute_squared_distances(points, centres).argmin(axis=1)
        for _ in range(_STEPS):
            for axis in range(points.shape[1]):
                sums = np.bincount(labels, weights=weights * points[:, axis], minlength=clusters)
                mass = np.bincount(labels, weights=weights, minlength=clusters)
                # A cluster without weight keeps its centre.
                np.divide(sums, mass, out=centres[:, axis], where=mass > 0)
            distances = compute_squared_distances(points, centres)
            moved, labels = labels, distances.argmin(axis=1)
            if (moved == labels).all():
                break
        inertia = float(weights @ distances[np.arange(len(points)), labels])
        if best is None or inertia < best[0]:
            best = inertia, centres, labels
    if best is None:
        raise QueryError("Expected at least one start, got none.")
    return best[1], best[2]


def _choose_starting_centres(
    points: Numbers, weights: Numbers, clusters: int, rng: np.random.Generator
) -> Numbers:
    """Return `[k, D]` k-means++ centres, each drawn by weight times squared distance."""
    likely = weights / weights.sum()
    centres = [points[rng.choice(len(points), p=likely)]]
    while len(centres) < clusters:
        gaps = weights * compute_squared_distances(points, np.array(centres)).min(axis=1)
        likely = gaps / gaps.sum() if gaps.sum() > 0 else np.full(len(points), 1 / len(points))
        centres.append(points[rng.choice(len(points), p=likely)])
    return np.array(centres)


MAX_COORDINATES = 64
"""Maximum number of coordinates of all centres together."""


@dataclass(frozen=True, kw_only=True)
class KMeansStep(ColumnsQuery):
    """The centres of the points that are nearest to given centres.

    Attributes:
        centres: k·D coordinates in [−1, 1], centre after centre: public.
        balance: w in units of 1/4096.
    """

    kind: ClassVar[str] = "kmeans-step"
    integral: ClassVar[bool] = False
    derived_fields: ClassVar[frozenset[str]] = frozenset({"balance"})

    centres: tuple[float, ...]
    balance: int = UNIT_BALANCE

    def __post_init__(self) -> None:
        super().__post_init__()
        check_balance(self.balance)
        size = len(self.centres)
        if not self.of or not size or size % len(self.of) or size > MAX_COORDINATES:
            expected = f"1 to {MAX_COORDINATES} coordinates of centres in {len(self.of)} columns"
            raise QueryError(f"Expected {expected}, got {size}.")
        if not all(-1 <= each <= 1 for each in self.centres):
            raise QueryError("Expected coordinates in [-1, 1], got one outside.")

    @property
    def clusters(self) -> int:
        """k, the number of clusters."""
        return len(self.centres) // len(self.of)

    def _get_centres(self) -> Numbers:
        return np.array(self.centres, dtype=np.float64).reshape(self.clusters, len(self.of))

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Run the checks of `Query.check`."""
        super().check(schema, neighbouring)
        check_points(schema, self.of, self.clusters, MAX_COORDINATES)

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Return k counts, and k sums per column."""
        a, s = compute_unit_weights(weight, self.balance)
        centres = self._get_centres()

        def along(name: str) -> Summand:
            return Summand(low=-s, high=s, compute=lambda b: s * scale_points(b, (name,))[:, 0])

        def codes(block: RawPartyBlock) -> NDArray[np.intp]:
            return assign_clusters(scale_points(block, self.of), centres)

        labels = Axis(size=self.clusters, codes=codes)
        sums = tuple(map(along, self.of))
        summands = (Summand.from_constant(a), *sums)
        return (CellSums(cells=CellGrid(axes=(labels,)), summands=summands),)

    def answer(self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts) -> Table:
        """Return the new centres in the given order. An empty cluster keeps its centre."""
        (a, s), k = compute_unit_weights(weight, self.balance), self.clusters
        counts, sums = noisy[:k] / a, noisy[k:].reshape(len(self.of), k).T / s
        centres = self._get_centres()
        held = counts >= 1
        centres[held] = np.clip(sums[held] / counts[held, None], -1, 1)
        found = {"cluster": list(range(1, k + 1))} | _unscale_points(facts.schema, self.of, centres)
        half = noise.compute_half_width() / a
        return {**found, "value": counts, "low": counts - half, "high": counts + half}
