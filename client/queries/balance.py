"""On which side of a place a quantile lies: `balance`, one signed sum of all that are selected.

Of the value q = n/d a record adds d − n where it lies below the border, else −n. The sum is d times
(1 − q)·below − q·above, which is 0 at the q-quantile. Below and above are never told apart, so
that it costs less than both: max(n, d − n) under add-or-remove-one, d under replace-one.

Of the median that is ½ of a record that comes or goes. Two counts of Δ₁ = 1, taken together with
the same weights, have √2 times the noise: √(2·¼)·√2·b against √2·b/2.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from parley.client.data.schema import Schema
from parley.client.queries.base import ColumnQuery, Part, QueryError, numeric
from parley.client.queries.cells import Adds, Cells
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.accounting.rounding import exact

FINEST = 10**6
"""d at most: six digits of q."""


@dataclass(frozen=True, kw_only=True)
class Balance(ColumnQuery):
    """(1 − q)·(records below the border) − q·(records at or above it), q = `share`."""

    kind: ClassVar[str] = "balance"
    grouped: ClassVar[bool] = False

    border: float
    share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share < 1 or self.fraction.denominator > FINEST:
            raise QueryError(
                f"Expected a share between 0 and 1 of at most six digits, got {self.share!r}."
            )

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

    def parts(self, schema: Schema, weight: int) -> tuple[Part, ...]:
        """One sum."""
        del schema
        low, high = -self.fraction.numerator * weight, self.steps(weight)
        signed = Adds(
            low=low,
            high=low + high,
            of=lambda b: np.where(b.columns[self.column] < self.border, low + high, low),
        )
        return (Part(cells=Cells(), adds=(signed,)),)

    def steps(self, weight: int) -> int:
        """Of a record, d."""
        return weight * self.fraction.denominator
