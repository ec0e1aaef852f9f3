"""The sum of a column: `sum`, of all records that are selected, or in every group.

A record adds round(a·x/X), X = max(|low|, |high|) of the range, to its group's cell. The ends of
the range go to whole numbers round(a·low/X) and round(a·high/X), and every value between them, so
that rounding costs no sensitivity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from parley.client.data.schema import Schema
from parley.client.queries.base import (
    ColumnQuery,
    Facts,
    Numbers,
    Part,
    QueryError,
    groups_of,
    numeric,
)
from parley.client.queries.cells import Adds
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.estimation.sampling import summed_deviation


@dataclass(frozen=True, kw_only=True)
class Total(ColumnQuery):
    """The sum of a column of numbers."""

    kind: ClassVar[str] = "sum"
    whole: ClassVar[bool] = False

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """See `Query.check`."""
        super().check(schema, neighbouring)
        if not self.unit(schema) > 0:
            raise QueryError(f"Expected a range of {self.column!r} that is not 0 alone, got 0.")

    def parts(self, schema: Schema, weight: int) -> tuple[Part, ...]:
        """G sums."""
        known, most = numeric(schema, self.column), self.unit(schema)
        low, high = (round(weight * end / most) for end in (known.low, known.high))
        scaled = Adds(low=low, high=high, of=lambda b: b.columns[self.column] * (weight / most))
        return (Part(cells=groups_of(schema, self.by), adds=(scaled,)),)

    def unit(self, schema: Schema) -> float:
        """X."""
        known = numeric(schema, self.column)
        return max(abs(known.low), abs(known.high))

    def samples(self, facts: Facts) -> bool:
        """Where N is public, or the range has one sign."""
        known = numeric(facts.schema, self.column)
        return facts.records is not None or known.low >= 0 or known.high <= 0

    def deviations(self, values: Numbers, facts: Facts) -> Numbers:
        """Who is not selected adds 0.

        Where N is private it is taken as Poisson's: Var = E Σx² ≤ X·E Σ|x|.
        """
        if facts.records is None:
            found: Numbers = np.sqrt(self.unit(facts.schema) * np.abs(values))
            return found
        known = numeric(facts.schema, self.column)
        low, high = known.low, known.high
        if self.selects or self.by:
            low, high = min(low, 0.0), max(high, 0.0)
        return summed_deviation(values, low, high, facts.records)
