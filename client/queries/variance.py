"""The variance of a column: `variance`, of all records that are selected, or in every group.

A record adds (a, round(s·t), round(s·(2t² − 1))), s = round(a·w), to its group's three cells
(`parley.client.queries.moments`). With D = t − t′ and S = t + t′ a record that is replaced within
its cell moves the last two by s·D and 2s·D·S, |D| + |S| ≤ 2: Δ₁ = 3.125s, and Δ₂² = s²D²(1 + 4S²)
at S = (1 + √½)/2, D = 2 − S. Rounding moves each of the two differences by at most 1, which is
added. w² = ⅓: Δ₂ = 1.30953a. The variance is half-width²·(m₂ − m₁²), of n records, not n − 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from parley.client.data.schema import Schema
from parley.client.queries.base import Facts, Integers, Part, Table, groups_of
from parley.client.queries.moments import UNIT_BALANCE, Moments, balanced, public_size
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.estimation.reach import Reach


@dataclass(frozen=True, kw_only=True)
class Variance(Moments):
    """The variance of a column of numbers."""

    kind: ClassVar[str] = "variance"
    polynomials = (lambda t: t, lambda t: 2 * t * t - 1)
    spread: ClassVar[tuple[float, float]] = (0.5, 0.25)  # at t̄ = 0 and a variance of a quarter

    balance: int = round(UNIT_BALANCE / math.sqrt(3))

    def tuned(self, law: str, neighbouring: Neighbouring) -> Self:
        """Counted where N is private; w² = ⅓, near the best of either law."""
        del law
        return replace(self, counted=not public_size(self, neighbouring))

    def parts(self, schema: Schema, weight: int) -> tuple[Part, ...]:
        """Within a cell, as the module says."""
        (part,) = super().parts(schema, weight)
        return (replace(part, within=replaced_norms(balanced(weight, self.balance)[1])),)

    def answer(self, noisy: Integers, weight: int, noise: Reach, facts: Facts) -> Table:
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
        keys, (_, width) = groups_of(facts.schema, self.by).keys(), self.scale(facts.schema)
        return {**keys, **{name: width**2 * np.clip(x, 0, 1) for name, x in ends.items()}}


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
