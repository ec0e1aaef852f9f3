"""On which side of a place a quantile lies: `balance`, one signed sum of all that are selected.

Of the value q = n/d a record adds d − n where it lies below the border, else −n. The sum is d times
(1 − q)·below − q·above, which is 0 at the q-quantile. Below and above are never told apart, so
that it costs less than both:

| | Δ₁, Δ₂ |
|---|---|
| add-or-remove-one | max(n, d − n) |
| replace-one | d |

Of the median that is ½ of a record that comes or goes. Two counts of Δ₁ = 1, taken together with
the same weights, have √2 times the noise: √(2·¼)·√2·b against √2·b/2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from parley.client.data.schema import Schema
from parley.client.data.table_block import TableBlock
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
    numeric,
    selected,
)
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.accounting.rounding import exact

FINEST = 10**6
"""d at most: six digits of q."""


@dataclass(frozen=True, kw_only=True)
class Balance(ColumnQuery):
    """(1 − q)·(records below the border) − q·(records at or above it).

    Attributes:
        border: within the column's range.
        share: q, of at most six digits.
    """

    kind: ClassVar[str] = "balance"

    border: float
    share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share < 1 or self.fraction.denominator > FINEST:
            raise QueryError(
                f"Expected a share between 0 and 1 of at most six digits, got {self.share!r}."
            )
        if self.by:
            raise QueryError("Expected balance without groups, got some: use where.")

    @property
    def fraction(self) -> Fraction:
        """q = n/d."""
        return exact(self.share)

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """See `Query.check`."""
        super().check(schema, neighbouring)
        known = numeric(schema, self.column)
        if not known.low < self.border <= known.high:
            raise QueryError(
                f"Expected a border within [{known.low:g}, {known.high:g}], the range of "
                f"{self.column!r}, got {self.border:g}."
            )

    def cells(self, schema: Schema) -> int:
        """1."""
        del schema
        return 1

    def norms(self, schema: Schema, neighbouring: Neighbouring, weight: int) -> Norms:
        """As the module's table says."""
        del schema
        q = self.fraction
        largest = max(q.numerator, q.denominator - q.numerator) * weight
        moved = largest if neighbouring is not Neighbouring.REPLACE_ONE else q.denominator * weight
        return Norms(l1=moved, l2_squared=moved**2, largest=largest)

    def vectors(self, block: TableBlock, weight: int, state: State) -> Iterator[Integers]:
        """See `Query.vectors`."""
        del state
        below, q = block.columns[self.column] < self.border, self.fraction
        for places, _ in selected(self, block, groups_of(block.schema, ())):
            sums = q.denominator * int(below[places].sum()) - q.numerator * len(places)
            yield np.array([sums * weight], dtype=np.int64)

    def answer(self, noisy: Integers, weight: int, noise: Noise, facts: Facts) -> Table:
        """In records."""
        del facts
        unit = weight * self.fraction.denominator
        value, half = noisy / unit, noise.half_width() / unit
        return {"value": value, "low": value - half, "high": value + half}

    def expected_error(self, weight: int, noise: Noise, facts: Facts) -> float:
        """In records."""
        del facts
        return noise.deviation / (weight * self.fraction.denominator)
