"""One step of Lloyd's k-means (1982): `kmeans-step`, from public centres to noisy new ones.

A record, a point x ∈ [−1, 1]^D, adds (a, round(s·x)), s = round(a·w), to the cells of its nearest
centre. Δ₁ = a + s·D and Δ₂² = a² + s²·D for one that comes or goes; one that is replaced may go to
another cluster, 2(a + s·D) and 2(a² + s²·D), or through its own, 2s·D and 4s²·D. T steps are T
releases, each charged: the centres of each come from the answer before.

As printed, T rounds at ε have noise of scale 2T/ε on counts, and of 2T·|dom|/ε on sums, with
|dom| = D the largest ‖x‖₁: w = 1/D and ε/T a round under add-or-remove-one. Under replace-one that
costs 2ε/T a round, and is charged so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.data.schema import Schema
from parley.client.data.table_block import TableBlock
from parley.client.queries.base import (
    Facts,
    Integers,
    Noise,
    Norms,
    Query,
    QueryError,
    State,
    Table,
    groups_of,
    key_of,
    numeric,
    selected,
)
from parley.client.queries.moments import UNIT_BALANCE
from parley.client.queries.points import check_points, clusters_of, points_of
from parley.client.queries.total import summed
from parley.privacy.accounting.guarantee import Neighbouring

MOST_COORDINATES = 64
"""Of all centres together."""


@dataclass(frozen=True, kw_only=True)
class KMeansStep(Query):
    """The centres of the points that are nearest to given centres.

    Attributes:
        of: D columns of numbers.
        centres: k·D coordinates in [−1, 1], centre after centre: public.
        balance: w in units of 1/4096.
    """

    kind: ClassVar[str] = "kmeans-step"
    whole: ClassVar[bool] = False

    of: tuple[str, ...]
    centres: tuple[float, ...]
    balance: int = UNIT_BALANCE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by:
            raise QueryError("Expected k-means without groups, got some: use where.")
        if not 1 <= self.balance <= 16 * UNIT_BALANCE:
            raise QueryError(f"Expected a balance of 1 to 2^16, got {self.balance}.")
        size = len(self.centres)
        if not self.of or not size or size % len(self.of) or size > MOST_COORDINATES:
            raise QueryError(
                f"Expected 1 to {MOST_COORDINATES} coordinates of centres in {len(self.of)} "
                f"columns, got {size}."
            )
        if not all(-1 <= each <= 1 for each in self.centres):
            raise QueryError("Expected coordinates in [-1, 1], got one outside.")

    @property
    def columns(self) -> frozenset[str]:
        """Those of every query, and the points'."""
        return super().columns | set(self.of)

    @property
    def clusters(self) -> int:
        """k."""
        return len(self.centres) // len(self.of)

    def _centres(self) -> NDArray[np.float64]:
        return np.array(self.centres, dtype=np.float64).reshape(self.clusters, len(self.of))

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """See `Query.check`."""
        super().check(schema, neighbouring)
        check_points(schema, self.of, self.clusters, MOST_COORDINATES)

    def _parts(self, weight: int) -> tuple[int, int]:
        """a and s."""
        return weight, max(1, round(weight * self.balance / UNIT_BALANCE))

    def cells(self, schema: Schema) -> int:
        """k counts, and k·D sums."""
        del schema
        return self.clusters + len(self.centres)

    def norms(self, schema: Schema, neighbouring: Neighbouring, weight: int) -> Norms:
        """As the module says."""
        (a, s), d = self._parts(weight), len(self.of)
        l1, squares = a + s * d, a**2 + s**2 * d
        if neighbouring is Neighbouring.REPLACE_ONE:
            if self.clusters > 1 or self.selects:
                l1, squares = 2 * l1, max(2 * squares, 4 * s**2 * d)
            else:
                l1, squares = 2 * s * d, 4 * s**2 * d
        return Norms(l1=l1, l2_squared=squares, largest=max(a, s))

    def vectors(self, block: TableBlock, weight: int, state: State) -> Iterator[Integers]:
        """See `Query.vectors`."""
        del state
        (a, s), k = self._parts(weight), self.clusters
        points = points_of(block, self.of)
        labels = clusters_of(points, self._centres())
        whole = np.rint(s * points)
        for places, _ in selected(self, block, groups_of(block.schema, ())):
            own = labels[places]
            sums = [summed(own, axis, k) for axis in whole[places].T]
            yield np.concatenate([np.bincount(own, minlength=k) * a, *sums])

    def answer(self, noisy: Integers, weight: int, noise: Noise, facts: Facts) -> Table:
        """The centres in the order of those given; a cluster without records keeps its own."""
        (a, s), k = self._parts(weight), self.clusters
        counts, sums = noisy[:k] / a, noisy[k:].reshape(len(self.of), k).T / s
        centres = self._centres()
        held = counts >= 1
        centres[held] = np.clip(sums[held] / counts[held, None], -1, 1)
        found: Table = {"cluster": list(range(1, k + 1))}
        for axis, name in enumerate(self.of):
            known = numeric(facts.schema, name)
            middle, width = (known.low + known.high) / 2, (known.high - known.low) / 2
            found[key_of(name)] = middle + width * centres[:, axis]
        half = noise.half_width() / a
        return {**found, "value": counts, "low": counts - half, "high": counts + half}
