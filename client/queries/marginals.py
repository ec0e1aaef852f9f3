"""Tables of several columns at once: `marginals`, each `ways` of them together.

A record adds 1 to one cell of every table. M tables: Δ₁ = M and Δ₂ = √M for a record that comes or
goes, 2M and √(2M) for one that is replaced. All tables share one noise, where M queries of their
own would share one budget. They are then made to agree in their totals and in each column's counts
(`parley.privacy.estimation.marginals`), and each becomes the nearest table without negative counts;
that costs nothing and lowers the error. What the last step moves, tables differ by again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from parley.client.data.schema import Schema
from parley.client.data.table_block import TableBlock
from parley.client.queries.base import (
    Facts,
    Groups,
    Integers,
    Noise,
    Norms,
    Query,
    QueryError,
    State,
    Table,
    groups_of,
    key_of,
    selected,
)
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.estimation.marginals import agree
from parley.privacy.estimation.sampling import counted_deviation
from parley.privacy.estimation.simplex import simplex

MOST_TABLES = 4096
"""Of one query; 90 columns in pairs."""


@dataclass(frozen=True, kw_only=True)
class Marginals(Query):
    """Records by the categories of every `ways` of several columns.

    Attributes:
        of: columns of categories.
        ways: how many of them a table has.
    """

    kind: ClassVar[str] = "marginals"
    counts: ClassVar[bool] = True
    shared: ClassVar[bool] = True

    of: tuple[str, ...]
    ways: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by:
            raise QueryError("Expected marginals without groups, got some: name them in `of`.")
        if len(set(self.of)) < len(self.of):
            raise QueryError(f"Expected columns once each, got {', '.join(self.of)}.")
        if not 1 <= self.ways <= len(self.of):
            raise QueryError(
                f"Expected ways from 1 to {len(self.of)}, the number of columns, got {self.ways}."
            )
        if (tables := math.comb(len(self.of), self.ways)) > MOST_TABLES:
            raise QueryError(f"Expected at most {MOST_TABLES} tables, got {tables:.3g}.")

    @property
    def columns(self) -> frozenset[str]:
        """Those of every query, and the tables'."""
        return super().columns | set(self.of)

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """See `Query.check`."""
        super().check(schema, neighbouring)
        groups_of(schema, self.of)

    def _tables(self, schema: Schema) -> list[Groups]:
        return [groups_of(schema, names) for names in combinations(self.of, self.ways)]

    def cells(self, schema: Schema) -> int:
        """Of all tables."""
        return sum(table.count for table in self._tables(schema))

    def norms(self, schema: Schema, neighbouring: Neighbouring, weight: int) -> Norms:
        """As the module says."""
        del schema
        moved = math.comb(len(self.of), self.ways)
        if neighbouring is Neighbouring.REPLACE_ONE:
            moved *= 2
        return Norms(l1=moved * weight, l2_squared=moved * weight**2, largest=weight)

    def vectors(self, block: TableBlock, weight: int, state: State) -> Iterator[Integers]:
        """See `Query.vectors`."""
        del state
        tables = self._tables(block.schema)
        codes = [table.codes(block) for table in tables]
        for places, _ in selected(self, block, groups_of(block.schema, ())):
            counts = [
                np.bincount(code[places], minlength=table.count)
                for code, table in zip(codes, tables, strict=True)
            ]
            yield np.concatenate(counts) * weight

    def answer(self, noisy: Integers, weight: int, noise: Noise, facts: Facts) -> Table:
        """Tables that agree, one below the other; a column that a table lacks is empty there."""
        tables = self._tables(facts.schema)
        ends = np.cumsum([table.count for table in tables])
        parts = np.split(noisy / weight, ends[:-1])
        shaped = {
            table.names: part.reshape([len(texts) for texts in table.texts])
            for table, part in zip(tables, parts, strict=True)
        }
        agreed = agree(shaped, total=None if self.selects else facts.records)
        keys: dict[str, list[Any]] = {name: [] for name in ("table", *map(key_of, self.of))}
        for table in tables:
            own = table.keys()
            keys["table"] += [", ".join(table.names)] * table.count
            for name in map(key_of, self.of):
                keys[name] += own.get(name, [None] * table.count)
        flat = [agreed[table.names].ravel() for table in tables]
        values = np.concatenate([simplex(part, total=max(part.sum(), 0.0)) for part in flat])
        # Agreeing takes averages over cells: none is off by more than one cell's noise may be.
        # No true count is negative: an interval may as well begin at 0.
        middle = np.concatenate(flat)
        half = np.full(len(middle), noise.half_width() / weight)
        half = noise.widened(half, counted_deviation(middle, facts.records))
        low, high = np.maximum(middle - half, 0), np.maximum(middle + half, 0)
        return {
            **keys,
            "value": values,
            "low": np.minimum(low, values),
            "high": np.maximum(high, values),
        }

    def samples(self, facts: Facts) -> bool:
        """See `Query.samples`."""
        del facts
        return True
