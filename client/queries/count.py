"""How many records: `count`, of all that are selected, or in every group.

A record adds 1 to its group's cell. Δ₁ = Δ₂ = 1 where it may be selected or not, or be there or
not; replaced, it may leave one group for another: Δ₁ = 2, Δ₂ = √2. Without `where` and groups the
number of records is public under replace-one, and nothing is to be asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

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
    selected,
)
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.estimation.sampling import counted_deviation


@dataclass(frozen=True, kw_only=True)
class Count(Query):
    """How many records."""

    kind: ClassVar[str] = "count"
    counts: ClassVar[bool] = True

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """See `Query.check`."""
        super().check(schema, neighbouring)
        if self.where is None and not self.by and neighbouring is Neighbouring.REPLACE_ONE:
            raise QueryError(
                "Expected where or group_by with count, got neither: under replace-one the number "
                "of records is public, and costs nothing (Answer.records, Session.records)."
            )

    def cells(self, schema: Schema) -> int:
        """G."""
        return groups_of(schema, self.by).count

    def norms(self, schema: Schema, neighbouring: Neighbouring, weight: int) -> Norms:
        """As the module says."""
        return cell_norms(self.cells(schema), neighbouring, weight)

    def vectors(self, block: TableBlock, weight: int, state: State) -> Iterator[Integers]:
        """See `Query.vectors`."""
        del state
        groups = groups_of(block.schema, self.by)
        for _, codes in selected(self, block, groups):
            yield np.bincount(codes, minlength=groups.count) * weight

    def answer(self, noisy: Integers, weight: int, noise: Noise, facts: Facts) -> Table:
        """See `Query.answer`."""
        keys = groups_of(facts.schema, self.by).keys()
        return cell_table(keys, noisy, weight, noise, records=facts.records)

    def samples(self, facts: Facts) -> bool:
        """See `Query.samples`."""
        del facts
        return True


def cell_norms(cells: int, neighbouring: Neighbouring, weight: int) -> Norms:
    """Of a query whose records add `weight` to one of so many cells, or to none."""
    moved = 2 if neighbouring is Neighbouring.REPLACE_ONE and cells > 1 else 1
    return Norms(l1=moved * weight, l2_squared=moved * weight**2, largest=weight)


def cell_table(
    keys: Table, noisy: Integers, weight: int, noise: Noise, *, records: int | None
) -> Table:
    """Cells with their noisy counts and intervals, in counts; `records`: N, where it is public."""
    values = noisy / weight
    half = np.full(len(values), noise.half_width() / weight)
    half = noise.widened(half, counted_deviation(values, records))
    return {**keys, "value": values, "low": values - half, "high": values + half}
