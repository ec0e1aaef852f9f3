"""The variance of a column: `variance`, of all records that are selected, or in every group.

A record adds (a, round(s·t), round(u·(2t² − 1))), s = u = round(a·w), to its group's three cells
(`parley.client.queries.moments`). With D = t − t′ and S = t + t′ a replaced record moves the last
two by s·D and 2u·D·S:

| | Δ₁ | Δ₂² |
|---|---|---|
| add-or-remove-one | a + s + u | a² + s² + u² |
| replace-one, groups | 2(a + s + u), or the next line's | 2(a² + s² + u²), likewise |
| replace-one, else | max over |D| + |S| ≤ 2, or that of one who leaves | the same |

The maximum is at t = 1: Δ₁ = s + 2u + s²/(8u) for s ≤ 4u; Δ₂² = D²(s² + 4u²S²) at S = (1 + √(1 −
s²/2u²))/2, D = 2 − S. Rounding moves each of the two differences by at most 1, which is added.
w² = ⅓: Δ₂ = 1.30953a. The variance is half-width²·(m₂ − m₁²), of n records, not n − 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from parley.client.data.schema import Schema
from parley.client.queries.base import Facts, Integers, Noise, Norms, Table, groups_of, numeric
from parley.client.queries.moments import UNIT_BALANCE, Moments, Numbers, public_size
from parley.privacy.accounting.guarantee import Neighbouring


@dataclass(frozen=True, kw_only=True)
class Variance(Moments):
    """The variance of a column of numbers."""

    kind: ClassVar[str] = "variance"
    moments: ClassVar[int] = 2

    balance: int = round(UNIT_BALANCE / math.sqrt(3))

    def tuned(self, law: str, neighbouring: Neighbouring) -> Self:
        """Counted where N is private; w² = ⅓, near the best of either law."""
        del law
        return replace(self, counted=not public_size(self, neighbouring))

    def norms(self, schema: Schema, neighbouring: Neighbouring, weight: int) -> Norms:
        """As the module's table says."""
        a, s = self.parts(weight)
        own = a if self.counted else 0
        l1, squares = own + 2 * s, own**2 + 2 * s**2
        if neighbouring is Neighbouring.REPLACE_ONE:
            if groups_of(schema, self.by).count > 1:
                l1, squares = 2 * l1, 2 * squares
            # Within its own group, too.
            moved = replaced_norms(s)
            l1, squares = max(l1, moved[0]), max(squares, moved[1])
        return Norms(l1=l1, l2_squared=squares, largest=max(own, s))

    def polynomials(self, t: Numbers) -> tuple[Numbers, ...]:
        """t and 2t² − 1."""
        return t, 2 * t * t - 1

    def answer(self, noisy: Integers, weight: int, noise: Noise, facts: Facts) -> Table:
        """Each moment's interval holds with 97.5 %, so that both do with 95 %."""
        moments = self.averages(noisy, weight, noise, facts, level=0.975)
        (m, m_low, m_high), (q, q_low, q_high) = moments
        square = np.maximum(m_low**2, m_high**2)
        least = np.where((m_low < 0) & (m_high > 0), 0.0, np.minimum(m_low**2, m_high**2))
        ends = {
            "value": (q + 1) / 2 - m**2,
            "low": (q_low + 1) / 2 - square,
            "high": (q_high + 1) / 2 - least,
        }
        known, keys = numeric(facts.schema, self.column), groups_of(facts.schema, self.by).keys()
        width = (known.high - known.low) / 2
        return {**keys, **{name: width**2 * np.clip(x, 0, 1) for name, x in ends.items()}}

    def expected_error(self, weight: int, noise: Noise, facts: Facts) -> float:
        """Half-width²·deviation/N·½·√(1/w² + ¼): at t̄ = 0 and a variance of a quarter."""
        known, (a, s) = numeric(facts.schema, self.column), self.parts(weight)
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
