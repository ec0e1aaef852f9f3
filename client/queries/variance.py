"""The variance of a column: `variance`, of all records that are selected, or in every group.

With t = (x − centre)/half-width ∈ [−1, 1] a record adds (a, round(s·t), round(u·(2t² − 1))),
s = round(a·w), u = round(a·v), to its group's three cells; the last two where the number of records
is public. With D = t − t′ and S = t + t′ a replaced record moves the last two by s·D and 2u·D·S:

| | Δ₁ | Δ₂² |
|---|---|---|
| add-or-remove-one | a + s + u | a² + s² + u² |
| replace-one, groups | 2(a + s + u) | 2(a² + s² + u²) |
| replace-one, else | max over |D| + |S| ≤ 2, or that of one who leaves | the same |

The maximum is at t = 1: Δ₁ = s + 2u + s²/(8u) for s ≤ 4u; Δ₂² = D²(s² + 4u²S²) at S = (1 + √(1 −
s²/2u²))/2, D = 2 − S. Rounding moves each of the two differences by at most 1, which is added.
w² = v² = ⅓: Δ₂ = 1.30953a. The variance is half-width²·(m₂ − m₁²), of n records, not n − 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

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
    numeric,
    selected,
)
from parley.client.queries.mean import UNIT_BALANCE, fieller, public_size, scaled
from parley.client.queries.total import summed
from parley.privacy.accounting.guarantee import Neighbouring

__all__ = ["Variance", "replaced_norms"]

_THIRD = round(UNIT_BALANCE / math.sqrt(3))


@dataclass(frozen=True, kw_only=True)
class Variance(Query):
    """The variance of a column of numbers.

    Attributes:
        column: of numbers, with a range.
        balance: w = v in units of 1/4096.
        counted: whether the number of records is asked for too.
    """

    kind: ClassVar[str] = "variance"
    whole: ClassVar[bool] = False

    column: str
    balance: int = _THIRD
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
                "Expected a variance that counts its records where how many there are is not "
                "public, got counted = false."
            )

    def tuned(self, law: str, neighbouring: Neighbouring) -> Self:
        """Counted where N is private; v² = ⅓, near the best of either law."""
        del law
        return replace(self, counted=not public_size(self, neighbouring))

    def _parts(self, weight: int) -> tuple[int, int]:
        """a and s = u."""
        return weight, max(1, round(weight * self.balance / UNIT_BALANCE))

    def cells(self, schema: Schema) -> int:
        """Three a group, or two."""
        return (2 + self.counted) * groups_of(schema, self.by).count

    def norms(self, schema: Schema, neighbouring: Neighbouring, weight: int) -> Norms:
        """As the module's table says."""
        a, s = self._parts(weight)
        own = a if self.counted else 0
        l1, squares = own + 2 * s, own**2 + 2 * s**2
        if neighbouring is Neighbouring.REPLACE_ONE:
            if groups_of(schema, self.by).count > 1:
                l1, squares = 2 * l1, 2 * squares
            else:
                moved = replaced_norms(s)
                l1, squares = max(l1, moved[0]), max(squares, moved[1])
        return Norms(l1=l1, l2_squared=squares, largest=max(own, s))

    def vectors(self, block: TableBlock, weight: int, state: State) -> Iterator[Integers]:
        """See `Query.vectors`."""
        del state
        (a, s), groups = self._parts(weight), groups_of(block.schema, self.by)
        t = scaled(block, self.column)
        first, second = np.rint(s * t), np.rint(s * (2 * t * t - 1))
        for places, group in selected(self, block, groups):
            sums = [summed(group, part[places], groups.count) for part in (first, second)]
            if self.counted:
                sums.insert(0, np.bincount(group, minlength=groups.count) * a)
            yield np.concatenate(sums)

    def answer(self, noisy: Integers, weight: int, noise: Noise, facts: Facts) -> Table:
        """Each moment's interval holds with 97.5 %, so that both do with 95 %."""
        groups, (a, s) = groups_of(facts.schema, self.by), self._parts(weight)
        known, level = numeric(facts.schema, self.column), 0.975
        parts = noisy.reshape(-1, groups.count)
        if self.counted:
            counts, sums = parts[0] / a, parts[1:] / s
            moments = [fieller(counts, each, 1 / a, 1 / s, noise, level) for each in sums]
        else:
            records = facts.records or 1
            half = noise.half_width(level) / s / records
            middle = parts / s / records
            moments = [
                (np.clip(m, -1, 1), np.clip(m - half, -1, 1), np.clip(m + half, -1, 1))
                for m in middle
            ]
        (m, m_low, m_high), (q, q_low, q_high) = moments
        square = np.maximum(m_low**2, m_high**2)
        least = np.where((m_low < 0) & (m_high > 0), 0.0, np.minimum(m_low**2, m_high**2))
        told = {
            "value": (q + 1) / 2 - m**2,
            "low": (q_low + 1) / 2 - square,
            "high": (q_high + 1) / 2 - least,
        }
        width = (known.high - known.low) / 2
        return {**groups.keys(), **{k: width**2 * np.clip(v, 0, 1) for k, v in told.items()}}

    def expected_error(self, weight: int, noise: Noise, facts: Facts) -> float:
        """Half-width²·deviation/N·½·√(1/v² + ¼): at t̄ = 0 and a variance of a quarter."""
        known, (a, s) = numeric(facts.schema, self.column), self._parts(weight)
        each = noise.deviation / (facts.records or 1) * groups_of(facts.schema, self.by).count
        spread = math.hypot(0.5 / s, 0.25 / a if self.counted else 0.0)
        return ((known.high - known.low) / 2) ** 2 * each * spread


def replaced_norms(s: int) -> tuple[int, int]:
    """Δ₁ and Δ₂² of (round(s·t), round(s·(2t² − 1))) where one record is replaced.

    >>> l1, square = replaced_norms(4096)
    >>> round(l1 / 4096, 2), round((square / 4096**2 / 3) ** 0.5, 3)
    (3.13, 1.31)
    """
    along = (1 + math.sqrt(0.5)) / 2
    apart = 2 - along
    norm = s * apart * math.sqrt(1 + 4 * along**2) * (1 + 1e-12) + math.sqrt(2)
    return math.ceil(3.125 * s) + 2, math.ceil(norm**2)
