"""What `mean` and `variance` share: sums of polynomials of a column, beside the number of records.

With t = (x − centre)/half-width ∈ [−1, 1] a record adds a to its group's count and round(s·p(t)) to
a cell for each polynomial p, s = round(a·w); no count where the number of records is public
(replace-one, all records). A ratio's interval is Fieller's.
"""

from __future__ import annotations

import math
from abc import abstractmethod
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
    Query,
    QueryError,
    State,
    groups_of,
    numeric,
    selected,
)
from parley.client.queries.total import summed
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.estimation.intervals import ratio_interval
from parley.privacy.estimation.sampling import mean_deviation

UNIT_BALANCE = 4096
"""Of `balance`: w = 1."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Moments(ColumnQuery):
    """Sums of polynomials of a column of numbers.

    Attributes:
        moments: how many polynomials.
        balance: w in units of 1/4096.
        counted: whether the number of records is asked for too.
    """

    whole: ClassVar[bool] = False
    moments: ClassVar[int]

    balance: int = UNIT_BALANCE
    counted: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.balance <= 16 * UNIT_BALANCE:
            raise QueryError(f"Expected a balance of 1 to 2^16, got {self.balance}.")

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """See `Query.check`."""
        super().check(schema, neighbouring)
        numeric(schema, self.column)
        if not self.counted and not public_size(self, neighbouring):
            raise QueryError(
                f"Expected a {self.kind} that counts its records, under add-or-remove-one, with "
                "where or in groups: how many there are is not public. Got counted = false."
            )

    @abstractmethod
    def polynomials(self, t: Numbers) -> tuple[Numbers, ...]:
        """`[N]` each, in [−1, 1]."""

    def parts(self, weight: int) -> tuple[int, int]:
        """a and s."""
        return weight, max(1, round(weight * self.balance / UNIT_BALANCE))

    def cells(self, schema: Schema) -> int:
        """A group's: one a polynomial, and how many records where they are counted."""
        return (self.moments + self.counted) * groups_of(schema, self.by).count

    def vectors(self, block: TableBlock, weight: int, state: State) -> Iterator[Integers]:
        """See `Query.vectors`."""
        del state
        (a, s), groups = self.parts(weight), groups_of(block.schema, self.by)
        known = numeric(block.schema, self.column)
        centre, half = (known.low + known.high) / 2, (known.high - known.low) / 2
        t = np.clip((block.columns[self.column] - centre) / half, -1, 1)
        values = [np.rint(s * each) for each in self.polynomials(t)]
        for places, group in selected(self, block, groups):
            sums = [summed(group, each[places], groups.count) for each in values]
            if self.counted:
                sums.insert(0, np.bincount(group, minlength=groups.count) * a)
            yield np.concatenate(sums)

    def averages(
        self, noisy: Integers, weight: int, noise: Noise, facts: Facts, level: float = 0.95
    ) -> list[tuple[Numbers, Numbers, Numbers]]:
        """`[G]` the average of each polynomial, in [−1, 1], and the ends of its noise interval."""
        groups, (a, s) = groups_of(facts.schema, self.by), self.parts(weight)
        cells = noisy.reshape(-1, groups.count)
        if self.counted:
            counts, sums = cells[0] / a, cells[1:] / s
            found = [_fieller(counts, each, 1 / a, 1 / s, noise, level) for each in sums]
        else:
            counts = np.full(groups.count, float(facts.records or 1))
            half = noise.half_width(level) / s / counts
            means = cells / s / counts
            found = [(np.clip(m, -1, 1), m - half, m + half) for m in means]
        return [_with_sampling(*each, counts, noise, level) for each in found]

    def samples(self, facts: Facts) -> bool:
        """See `Query.samples`."""
        del facts
        return True


def public_size(query: Query, neighbouring: Neighbouring) -> bool:
    """Whether the number of records that it is about is public."""
    return not query.selects and not query.by and neighbouring is Neighbouring.REPLACE_ONE


def _with_sampling(
    value: Numbers, low: Numbers, high: Numbers, counts: Numbers, noise: Noise, level: float
) -> tuple[Numbers, Numbers, Numbers]:
    """`[G]` both errors together, each side by itself (Zou & Donner 2008), within [−1, 1]."""
    sampled = mean_deviation(value, counts)
    low = value - noise.widened(value - low, sampled, level)
    high = value + noise.widened(high - value, sampled, level)
    return value, np.clip(low, -1, 1), np.clip(high, -1, 1)


def _fieller(
    counts: Numbers,
    sums: Numbers,
    count_unit: float,
    sum_unit: float,
    noise: Noise,
    level: float,
) -> tuple[Numbers, Numbers, Numbers]:
    """`[G]` sums/counts in [−1, 1], and the ends of its noise interval (Fieller 1954).

    Where it has no end, value and interval are NaN: too few records for this ε.
    """
    tail = noise.ratio_tail(sum_unit, count_unit)
    ratio = np.clip(np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0), -1, 1)
    ends = [
        ratio_interval(float(part), float(whole), tail, noise.alpha(level)) or (math.nan, math.nan)
        for part, whole in zip(sums, counts, strict=True)
    ]
    lows, highs = np.clip(np.array(ends).T, -1, 1)
    return np.where(np.isnan(lows), math.nan, ratio), lows, highs
