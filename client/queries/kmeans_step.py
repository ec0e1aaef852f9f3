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

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from parley.client.data.schema import Schema
from parley.client.queries.base import (
    ColumnsQuery,
    Facts,
    Integers,
    Numbers,
    Part,
    QueryError,
    Table,
    key_of,
    numeric,
)
from parley.client.queries.cells import Adds, Axis, Cells
from parley.client.queries.moments import UNIT_BALANCE, balanced, check_balance
from parley.client.queries.points import check_points, clusters_of, points_of
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.estimation.reach import Reach

MOST_COORDINATES = 64
"""Of all centres together."""


@dataclass(frozen=True, kw_only=True)
class KMeansStep(ColumnsQuery):
    """The centres of the points that are nearest to given centres.

    Attributes:
        centres: k·D coordinates in [−1, 1], centre after centre: public.
        balance: w in units of 1/4096.
    """

    kind: ClassVar[str] = "kmeans-step"
    whole: ClassVar[bool] = False

    centres: tuple[float, ...]
    balance: int = UNIT_BALANCE

    def __post_init__(self) -> None:
        super().__post_init__()
        check_balance(self.balance)
        size = len(self.centres)
        if not self.of or not size or size % len(self.of) or size > MOST_COORDINATES:
            raise QueryError(
                f"Expected 1 to {MOST_COORDINATES} coordinates of centres in {len(self.of)} "
                f"columns, got {size}."
            )
        if not all(-1 <= each <= 1 for each in self.centres):
            raise QueryError("Expected coordinates in [-1, 1], got one outside.")

    @property
    def clusters(self) -> int:
        """k."""
        return len(self.centres) // len(self.of)

    def _centres(self) -> Numbers:
        return np.array(self.centres, dtype=np.float64).reshape(self.clusters, len(self.of))

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """See `Query.check`."""
        super().check(schema, neighbouring)
        check_points(schema, self.of, self.clusters, MOST_COORDINATES)

    def parts(self, schema: Schema, weight: int) -> tuple[Part, ...]:
        """k counts, and k sums a column."""
        del schema
        a, s = balanced(weight, self.balance)
        centres = self._centres()

        def along(name: str) -> Adds:
            return Adds(low=-s, high=s, of=lambda block: s * points_of(block, (name,))[:, 0])

        labels = Axis(
            size=self.clusters, codes=lambda block: clusters_of(points_of(block, self.of), centres)
        )
        sums = tuple(map(along, self.of))
        return (Part(cells=Cells(axes=(labels,)), adds=(Adds.always(a), *sums)),)

    def answer(self, noisy: Integers, weight: int, noise: Reach, facts: Facts) -> Table:
        """The centres in the order of those given; a cluster without records keeps its own."""
        (a, s), k = balanced(weight, self.balance), self.clusters
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
