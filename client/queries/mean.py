"""The mean of a column: `mean`, of all records that are selected, or in every group.

A record adds (a, round(s·t)) to its group's two cells (`parley.client.queries.moments`).

| | Δ₁ | Δ₂² |
|---|---|---|
| replace-one, all records | 2s | 4s² |
| replace-one, `where` | max(2s, a + s) | max(4s², a² + s²) |
| replace-one, groups | 2(a + s) | max(2(a² + s²), 4s²) |
| add-or-remove-one | a + s | a² + s² |

One vector costs ε once; a count and a sum of ε/2 each would have twice the error. w = 1 is best for
Laplace noise and every mean, replace-one; w² = ⅓ for Gaussian noise, replace-one; under add-or-
remove-one the best depends on the mean itself, and w = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from parley.client.data.schema import Schema
from parley.client.queries.base import Facts, Integers, Noise, Norms, Table, groups_of, numeric
from parley.client.queries.moments import UNIT_BALANCE, Moments, Numbers, public_size
from parley.privacy.accounting.guarantee import Neighbouring

_GAUSSIAN_BALANCE = round(UNIT_BALANCE / math.sqrt(3))


@dataclass(frozen=True, kw_only=True)
class Mean(Moments):
    """The mean of a column of numbers."""

    kind: ClassVar[str] = "mean"
    moments: ClassVar[int] = 1

    def tuned(self, law: str, neighbouring: Neighbouring) -> Self:
        """w² = ⅓ for Gaussian noise under replace-one, else w = 1; counted where N is private."""
        third = law == "gaussian" and neighbouring is Neighbouring.REPLACE_ONE
        return replace(
            self,
            balance=_GAUSSIAN_BALANCE if third else UNIT_BALANCE,
            counted=not public_size(self, neighbouring),
        )

    def norms(self, schema: Schema, neighbouring: Neighbouring, weight: int) -> Norms:
        """As the module's table says."""
        a, s = self.parts(weight)
        if not self.counted:
            return Norms(l1=2 * s, l2_squared=4 * s**2, largest=s)
        both, squares = a + s, a**2 + s**2
        if neighbouring is Neighbouring.REPLACE_ONE:
            if groups_of(schema, self.by).count > 1:
                # Into another group, or from end to end within its own.
                both, squares = 2 * both, max(2 * squares, 4 * s**2)
            else:
                both, squares = max(2 * s, both), max(4 * s**2, squares)
        return Norms(l1=both, l2_squared=squares, largest=max(a, s))

    def polynomials(self, t: Numbers) -> tuple[Numbers, ...]:
        """t."""
        return (t,)

    def answer(self, noisy: Integers, weight: int, noise: Noise, facts: Facts) -> Table:
        """See `Query.answer`."""
        ((value, low, high),) = self.averages(noisy, weight, noise, facts)
        known = numeric(facts.schema, self.column)
        centre, width = (known.low + known.high) / 2, (known.high - known.low) / 2
        ends = {"value": value, "low": low, "high": high}
        keys = groups_of(facts.schema, self.by).keys()
        return {**keys, **{name: centre + width * x for name, x in ends.items()}}

    def expected_error(self, weight: int, noise: Noise, facts: Facts) -> float:
        """Half-width/N·deviation·√(1/w² + t²) at t = ½; of all records, for want of a number."""
        known, (a, s) = numeric(facts.schema, self.column), self.parts(weight)
        each = noise.deviation / (facts.records or 1) * groups_of(facts.schema, self.by).count
        spread = math.hypot(1 / s, 0.5 / a if self.counted else 0.0)
        return (known.high - known.low) / 2 * each * spread
