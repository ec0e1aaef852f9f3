"""Tables of several columns at once: `marginals`, each `ways` of them together.

A record adds 1 to one cell of every table. M tables: Δ₁ = M and Δ₂ = √M for a record that comes or
goes, 2M and √(2M) for one that is replaced. All tables share one noise, where M queries of their
own would share one budget. They are then made to agree in their totals and in each column's counts
(`parley.privacy.estimation.marginals`), and each becomes the nearest table without negative counts;
that costs nothing and lowers the error. What the last step moves, tables differ by again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from parley.client.data.schema import Schema
from parley.client.queries.base import (
    ColumnsQuery,
    Facts,
    Integers,
    Part,
    QueryError,
    Table,
    counts_in,
    groups_of,
    key_of,
)
from parley.client.queries.cells import Cells
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.estimation.marginals import agree
from parley.privacy.estimation.reach import Reach
from parley.privacy.estimation.simplex import simplex

MOST_TABLES = 4096
"""Of one query; 90 columns in pairs."""


@dataclass(frozen=True, kw_only=True)
class Marginals(ColumnsQuery):
    """Records by the categories of every `ways` of several columns."""

    kind: ClassVar[str] = "marginals"
    counts: ClassVar[bool] = True
    shared: ClassVar[bool] = True
    sampling: ClassVar[bool] = True

    ways: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.of)) < len(self.of):
            raise QueryError(f"Expected columns once each, got {', '.join(self.of)}.")
        if not 1 <= self.ways <= len(self.of):
            raise QueryError(
                f"Expected ways from 1 to {len(self.of)}, the number of columns, got {self.ways}."
            )
        if (tables := math.comb(len(self.of), self.ways)) > MOST_TABLES:
            raise QueryError(f"Expected at most {MOST_TABLES} tables, got {tables:.3g}.")

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """See `Query.check`."""
        super().check(schema, neighbouring)
        groups_of(schema, self.of)

    def _tables(self, schema: Schema) -> dict[tuple[str, ...], Cells]:
        return {names: groups_of(schema, names) for names in combinations(self.of, self.ways)}

    def parts(self, schema: Schema, weight: int) -> tuple[Part, ...]:
        """Counts in every table."""
        return tuple(counts_in(cells, weight) for cells in self._tables(schema).values())

    def answer(self, noisy: Integers, weight: int, noise: Reach, facts: Facts) -> Table:
        """Tables that agree, one below the other; a column that a table lacks is empty there."""
        tables = self._tables(facts.schema)
        ends = np.cumsum([cells.count for cells in tables.values()])
        parts = np.split(noisy / weight, ends[:-1])
        shaped = {
            names: part.reshape([axis.size for axis in cells.axes])
            for (names, cells), part in zip(tables.items(), parts, strict=True)
        }
        agreed = agree(shaped, total=None if self.selects else facts.records)
        keys: dict[str, list[Any]] = {name: [] for name in ("table", *map(key_of, self.of))}
        for names, cells in tables.items():
            own = cells.keys()
            keys["table"] += [", ".join(names)] * cells.count
            for name in map(key_of, self.of):
                keys[name] += own[name].tolist() if name in own else [None] * cells.count
        flat = [agreed[names].ravel() for names in tables]
        values = np.concatenate([simplex(part, total=max(part.sum(), 0.0)) for part in flat])
        # Agreeing takes averages over cells: none is off by more than one cell's noise may be.
        # No true count is negative: an interval may as well begin at 0.
        middle = np.concatenate(flat)
        half = np.full(len(middle), noise.half_width() / weight)
        half = noise.widened(half, self.deviations(middle, facts))
        low, high = np.maximum(middle - half, 0), np.maximum(middle + half, 0)
        return {
            **keys,
            "value": values,
            "low": np.minimum(low, values),
            "high": np.maximum(high, values),
        }
