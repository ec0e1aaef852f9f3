"""The sum of a column: `sum`, of all records that are selected, or in every group.

A record adds round(a·x/X), X = max(|low|, |high|) of the range. The ends of the range go to
whole numbers l = round(a·low/X) and h = round(a·high/X), and every value between them, so that
rounding costs no sensitivity:

| | Δ₁ | Δ₂² |
|---|---|---|
| replace-one, all records | h − l | (h − l)² |
| replace-one, `where` | max(h − l, |l|, |h|) | its square |
| replace-one, groups | 2·max(|l|, |h|) | max(2·max(|l|, |h|)², (h − l)²) |
| add-or-remove-one | max(|l|, |h|) | its square |
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
from parley.privacy.estimation.sampling import summed_deviation

_DIGITS = 2**20
"""Of entries up to 2⁴⁰: either half of so many as memory holds adds up to less than 2⁵³."""


@dataclass(frozen=True, kw_only=True)
class Total(ColumnQuery):
    """The sum of a column of numbers."""

    kind: ClassVar[str] = "sum"
    whole: ClassVar[bool] = False

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """See `Query.check`."""
        super().check(schema, neighbouring)
        if not _largest(schema, self.column) > 0:
            raise QueryError(f"Expected a range of {self.column!r} that is not 0 alone, got 0.")

    def cells(self, schema: Schema) -> int:
        """G."""
        return groups_of(schema, self.by).count

    def norms(self, schema: Schema, neighbouring: Neighbouring, weight: int) -> Norms:
        """As the module's table says."""
        known, most = numeric(schema, self.column), _largest(schema, self.column)
        low, high = (round(weight * end / most) for end in (known.low, known.high))
        alone = max(abs(low), abs(high))
        if neighbouring is not Neighbouring.REPLACE_ONE:
            return Norms(l1=alone, l2_squared=alone**2, largest=alone)
        if self.cells(schema) > 1:
            # Into another group, or from one end of the range to the other within its own.
            squares = max(2 * alone**2, (high - low) ** 2)
            return Norms(l1=2 * alone, l2_squared=squares, largest=alone)
        moved = max(high - low, alone) if self.selects else high - low
        return Norms(l1=moved, l2_squared=moved**2, largest=alone)

    def vectors(self, block: TableBlock, weight: int, state: State) -> Iterator[Integers]:
        """See `Query.vectors`."""
        del state
        groups = groups_of(block.schema, self.by)
        most = _largest(block.schema, self.column)
        values = np.rint(block.columns[self.column] * (weight / most))
        # Within the ends' own whole numbers, whatever the product rounds to.
        known = numeric(block.schema, self.column)
        np.clip(values, *(round(weight * e / most) for e in (known.low, known.high)), out=values)
        for places, group in selected(self, block, groups):
            yield summed(group, values[places], groups.count)

    def answer(self, noisy: Integers, weight: int, noise: Noise, facts: Facts) -> Table:
        """See `Query.answer`."""
        keys = groups_of(facts.schema, self.by).keys()
        most = _largest(facts.schema, self.column)
        values = noisy / weight * most
        half = np.full(len(values), noise.half_width() / weight * most)
        half = noise.widened(half, self._sampled(values, facts))
        return {**keys, "value": values, "low": values - half, "high": values + half}

    def samples(self, facts: Facts) -> bool:
        """Where N is public, or the range has one sign."""
        known = numeric(facts.schema, self.column)
        return facts.records is not None or known.low >= 0 or known.high <= 0

    def _sampled(self, sums: NDArray[np.float64], facts: Facts) -> NDArray[np.float64]:
        """`[G]` deviations of the sums over another sample; who is not selected adds 0.

        Where N is private it is taken as Poisson's: Var = E Σx² ≤ X·E Σ|x|.
        """
        known, most = numeric(facts.schema, self.column), _largest(facts.schema, self.column)
        low, high = known.low, known.high
        if self.selects or self.by:
            low, high = min(low, 0.0), max(high, 0.0)
        if facts.records is None:
            found: NDArray[np.float64] = np.sqrt(most * np.abs(sums))
            return found
        return summed_deviation(sums, low, high, facts.records)

    def expected_error(self, weight: int, noise: Noise, facts: Facts) -> float:
        """In the column's unit."""
        return noise.deviation / weight * _largest(facts.schema, self.column)


def _largest(schema: Schema, column: str) -> float:
    known = numeric(schema, column)
    return max(abs(known.low), abs(known.high))


def summed(codes: Integers, values: NDArray[np.float64], cells: int) -> Integers:
    """`[cells]` exact sums of whole numbers by code, while they are below 2⁶³.

    Doubles are exact below 2⁵³ only: beyond, a record more would round the others' sums. There the
    high and the low digits are added up apart.
    """
    if np.abs(values).max(initial=0) * len(values) < 2**53:
        return np.bincount(codes, weights=values, minlength=cells).astype(np.int64)
    high = np.floor(values / _DIGITS)
    sums = [
        np.bincount(codes, weights=part, minlength=cells).astype(np.int64)
        for part in (high, values - high * _DIGITS)
    ]
    return sums[0] * _DIGITS + sums[1]
