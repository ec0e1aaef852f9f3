"""How many records have each value: `histogram`, of categories or of intervals of a number.

A record adds 1 to the cell of its value, in its group. The intervals are of one width over the
column's public range, or have edges that somebody wrote down; the last one is closed, and what lies
outside the edges is in the first or last.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.data.schema import Schema
from parley.client.data.table_block import Range, TableBlock, Texts, field_of
from parley.client.queries.base import ColumnQuery, Part, QueryError, counts_in, groups_of, numeric
from parley.client.queries.cells import Axis, Cells
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
    sampling: ClassVar[bool] = True

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

    def parts(self, schema: Schema, weight: int) -> tuple[Part, ...]:
        """A count for every group and value."""
        field = field_of(schema, self.column)
        if isinstance(field, Texts):
            cells = groups_of(schema, (*self.by, self.column))
        else:
            cells = Cells(axes=(*groups_of(schema, self.by).axes, self._intervals(field)))
        return (counts_in(cells, weight),)

    def _intervals(self, known: Range) -> Axis:
        size = self.bins or len(self.edges) - 1

        def codes(block: TableBlock) -> NDArray[np.intp]:
            values = block.columns[self.column]
            if self.edges:
                found = np.searchsorted(self.edges, values, side="right") - 1
            else:
                found = np.floor((values - known.low) * (size / (known.high - known.low)))
            return np.clip(found, 0, size - 1).astype(np.intp)

        def keys() -> dict[str, NDArray[np.float64]]:
            edges = np.array(self.edges or np.linspace(known.low, known.high, size + 1))
            return {f"{self.column} from": edges[:-1], f"{self.column} to": edges[1:]}

        return Axis(size=size, codes=codes, keys=keys)
