"""The mean of a column: `mean`, of all records that are selected, or in every group.

With t = (x − centre)/half-width ∈ [−1, 1] a record adds (a, round(s·t)), s = round(a·w), to its
group's two cells; only round(s·t) where the number of records is public (replace-one, all records).

| | Δ₁ | Δ₂² |
|---|---|---|
| replace-one, all records | 2s | 4s² |
| replace-one, `where` | max(2s, a + s) | max(4s², a² + s²) |
| replace-one, groups | 2(a + s) | 2(a² + s²) |
| add-or-remove-one | a + s | a² + s² |

One vector costs ε once; a count and a sum of ε/2 each would have twice the error. w = 1 is best for
Laplace noise and every mean, replace-one; w² = ⅓ for Gaussian noise, replace-one; under add-or-
remove-one the best depends on the mean itself, and w = 1. The ratio's interval is Fieller's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

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
    numeric,
    selected,
)
from parley.client.queries.total import summed
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.estimation.intervals import ratio_interval

__all__ = ["UNIT_BALANCE", "Mean", "fieller", "public_size", "scaled"]

UNIT_BALANCE = 4096
"""Of `balance`: w = 1."""

_GAUSSIAN_BALANCE = round(UNIT_BALANCE / math.sqrt(3))


@dataclass(frozen=True, kw_only=True)
class Mean(Query):
    """The mean of a column of numbers.

    Attributes:
        column: of numbers, with a range.
        balance: w in units of 1/4096.
        counted: whether the number of records is asked for too.
    """

    kind: ClassVar[str] = "mean"
    whole: ClassVar[bool] = False

    column: str
    balance: int = UNIT_BALANCE
    counted: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.balance <= 16 * UNIT_BALANCE:
            raise QueryError(f"Expected a balance of 1 to 2^16, got {self.balance}.")

    @property
    def columns(self) -> frozenset[str]:
        """Those of every query, and the column."""
        return super().columns | {self.column}

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """See `Query.check`."""
        super().check(schema, neighbouring)
        numeric(schema, self.column)
        if not self.counted and not public_size(self, neighbouring):
            raise QueryError(
                "Expected a mean that counts its records, under add-or-remove-one, with where or "
                "in groups: how many there are is not public. Got counted = false."
            )

    def tuned(self, law: str, neighbouring: Neighbouring) -> Self:
        """w² = ⅓ for Gaussian noise under replace-one, else w = 1; counted where N is private."""
        third = law == "gaussian" and neighbouring is Neighbouring.REPLACE_ONE
        return replace(
            self,
            balance=_GAUSSIAN_BALANCE if third else UNIT_BALANCE,
            counted=not public_size(self, neighbouring),
        )

    def cells(self, schema: Schema) -> int:
        """Two a group: how many, and the sum; the sum alone where it is not counted."""
        return (1 + self.counted) * groups_of(schema, self.by).count

    def norms(self, schema: Schema, neighbouring: Neighbouring, weight: int) -> Norms:
        """As the module's table says."""
        a, s = _parts(self, weight)
        if not self.counted:
            return Norms(l1=2 * s, l2_squared=4 * s**2, largest=s)
        both, squares = a + s, a**2 + s**2
        if neighbouring is Neighbouring.REPLACE_ONE:
            if groups_of(schema, self.by).count > 1:
                both, squares = 2 * both, 2 * squares
            else:
                both, squares = max(2 * s, both), max(4 * s**2, squares)
        return Norms(l1=both, l2_squared=squares, largest=max(a, s))

    def vectors(self, block: TableBlock, weight: int, state: State) -> Iterator[Integers]:
        """See `Query.vectors`."""
        del state
        (a, s), groups = _parts(self, weight), groups_of(block.schema, self.by)
        values = np.rint(s * scaled(block, self.column))
        for places, group in selected(self, block, groups):
            sums = summed(group, values[places], groups.count)
            if not self.counted:
                yield sums
                continue
            yield np.concatenate([np.bincount(group, minlength=groups.count) * a, sums])

    def answer(self, noisy: Integers, weight: int, noise: Noise, facts: Facts) -> Table:
        """See `Query.answer`."""
        groups, (a, s) = groups_of(facts.schema, self.by), _parts(self, weight)
        known = numeric(facts.schema, self.column)
        if self.counted:
            counts, sums = noisy[: groups.count] / a, noisy[groups.count :] / s
            value, low, high = fieller(counts, sums, 1 / a, 1 / s, noise)
        else:
            records = facts.records or 1
            middle, half = noisy / s / records, noise.half_width() / s / records
            value, low, high = (np.clip(x, -1, 1) for x in (middle, middle - half, middle + half))
        centre, width = (known.low + known.high) / 2, (known.high - known.low) / 2
        told = {"value": value, "low": low, "high": high}
        return {**groups.keys(), **{name: centre + width * x for name, x in told.items()}}

    def expected_error(self, weight: int, noise: Noise, facts: Facts) -> float:
        """Half-width/N·deviation·√(1/w² + t²) at t = ½; of all records, for want of a number."""
        known, (a, s) = numeric(facts.schema, self.column), _parts(self, weight)
        each = noise.deviation / (facts.records or 1) * groups_of(facts.schema, self.by).count
        spread = math.hypot(1 / s, 0.5 / a if self.counted else 0.0)
        return (known.high - known.low) / 2 * each * spread


def public_size(query: Query, neighbouring: Neighbouring) -> bool:
    """Whether the number of records that it is about is public."""
    return not query.selects and not query.by and neighbouring is Neighbouring.REPLACE_ONE


def _parts(query: Mean, weight: int) -> tuple[int, int]:
    """a and s."""
    return weight, max(1, round(weight * query.balance / UNIT_BALANCE))


def scaled(block: TableBlock, column: str) -> NDArray[np.float64]:
    """`[N]` t of each record, in [−1, 1]."""
    known = numeric(block.schema, column)
    centre, half = (known.low + known.high) / 2, (known.high - known.low) / 2
    return np.clip((block.columns[column] - centre) / half, -1, 1)


def fieller(
    counts: NDArray[np.float64],
    sums: NDArray[np.float64],
    count_unit: float,
    sum_unit: float,
    noise: Noise,
    level: float = 0.95,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """`[G]` sums/counts in [−1, 1], and the ends of its noise interval (Fieller 1954).

    Where it has no end, value and interval are NaN: too few records for this ε.
    """
    tail = noise.ratio_tail(sum_unit, count_unit)
    ratio = np.clip(np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0), -1, 1)
    ends = [
        ratio_interval(float(part), float(whole), tail, 1 - level) or (math.nan, math.nan)
        for part, whole in zip(sums, counts, strict=True)
    ]
    lows, highs = np.clip(np.array(ends).T, -1, 1)
    return np.where(np.isnan(lows), math.nan, ratio), lows, highs
