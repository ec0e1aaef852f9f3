"""How many records have each value: `histogram`, of categories or of intervals of a number.

A record adds 1 to the cell of its value, in its group. Δ as of a count in groups (`count`). The
intervals are of one width over the column's public range, or have edges that somebody wrote down;
the last one is closed, and what lies outside the edges is in the first or last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.data.schema import Schema
from parley.client.data.table_block import TableBlock, Texts, field_of
from parley.client.queries.base import (
    ColumnQuery,
    Facts,
    Integers,
    Noise,
    Norms,
    QueryError,
    State,
    Table,
    groups_of,
    key_of,
    numeric,
    selected,
)
from parley.client.queries.count import cell_norms, cell_table
from parley.privacy.accounting.guarantee import Neighbouring

MOST_CELLS = 10**7
"""Of any query: a vector of them has 80 MB."""


@dataclass(frozen=True, kw_only=True)
class Histogram(ColumnQuery):
    """Records by the value of one column.

    Attributes:
        bins: of numbers: how many intervals of one width; 0 where `edges` are given.
        edges: of numbers: increasing, within the column's range; at most 64.
    """

    kind: ClassVar[str] = "histogram"
    counts: ClassVar[bool] = True

    bins: int = 0
    edges: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.bins <= MOST_CELLS:
            raise QueryError(f"Expected 1 to {MOST_CELLS} bins, got {self.bins}.")
        if self.edges and self.bins:
            raise QueryError("Expected either bins or edges, got both.")
        rising = all(a < b for a, b in pairwise(self.edges))
        if self.edges and not (len(self.edges) > 1 and rising):
            raise QueryError(f"Expected two or more increasing edges, got {list(self.edges)}.")

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """See `Query.check`."""
        super().check(schema, neighbouring)
        if isinstance(field_of(schema, self.column), Texts):
            if self.bins or self.edges:
                raise QueryError(
                    f"Expected no bins with {self.column!r}, a column of categories, got some."
                )
            return
        known = numeric(schema, self.column)
        if not self.bins and not self.edges:
            raise QueryError(
                f"Expected bins (how many) or edges with {self.column!r}, a column of numbers, got "
                "neither: intervals are never read off the records."
            )
        if self.edges and not known.low <= self.edges[0] < self.edges[-1] <= known.high:
            raise QueryError(
                f"Expected edges within [{known.low:g}, {known.high:g}], the range of "
                f"{self.column!r}, got {self.edges[0]:g} to {self.edges[-1]:g}."
            )

    def _own(self, schema: Schema) -> int:
        field = field_of(schema, self.column)
        if isinstance(field, Texts):
            return len(field.texts)
        return self.bins or len(self.edges) - 1

    def cells(self, schema: Schema) -> int:
        """Groups times cells of the column."""
        return groups_of(schema, self.by).count * self._own(schema)

    def norms(self, schema: Schema, neighbouring: Neighbouring, weight: int) -> Norms:
        """As the module says."""
        return cell_norms(self.cells(schema), neighbouring, weight)

    def vectors(self, block: TableBlock, weight: int, state: State) -> Iterator[Integers]:
        """See `Query.vectors`."""
        del state
        own, groups = self._own(block.schema), groups_of(block.schema, self.by)
        codes = self._codes(block, own)
        for places, group in selected(self, block, groups):
            vector = np.bincount(group * own + codes[places], minlength=groups.count * own)
            if weight > 1:
                vector *= weight
            yield vector

    def _codes(self, block: TableBlock, own: int) -> NDArray[np.intp]:
        """`[N]` the cell of each record's value."""
        values = block.columns[self.column]
        if isinstance(field_of(block.schema, self.column), Texts):
            return values
        if self.edges:
            found = np.searchsorted(self.edges, values, side="right") - 1
        else:
            known = numeric(block.schema, self.column)
            found = np.floor((values - known.low) * (own / (known.high - known.low)))
        return np.clip(found, 0, own - 1).astype(np.intp)

    def answer(self, noisy: Integers, weight: int, noise: Noise, facts: Facts) -> Table:
        """See `Query.answer`."""
        groups, own = groups_of(facts.schema, self.by), self._own(facts.schema)
        keys: Table = {name: np.repeat(k, own) for name, k in groups.keys().items()}
        field = field_of(facts.schema, self.column)
        if isinstance(field, Texts):
            cells: Table = {key_of(self.column): np.array(field.texts)}
        else:
            edges = (
                np.array(self.edges)
                if self.edges
                else np.linspace(field.low, field.high, self.bins + 1)
            )
            cells = {f"{self.column} from": edges[:-1], f"{self.column} to": edges[1:]}
        keys |= {name: np.tile(np.asarray(c), groups.count) for name, c in cells.items()}
        return cell_table(keys, noisy, weight, noise, records=facts.records)

    def samples(self, facts: Facts) -> bool:
        """See `Query.samples`."""
        del facts
        return True
