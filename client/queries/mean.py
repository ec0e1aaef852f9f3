"""The mean of a column: `mean`, of all records that are selected, or in every group.

A record adds (a, round(s·t)) to its group's two cells (`parley.client.queries.moments`). One vector
costs ε once; a count and a sum of ε/2 each would have twice the error. w = 1 is best for Laplace
noise and every mean, replace-one; w² = ⅓ for Gaussian noise, replace-one; under add-or-remove-one
the best depends on the mean itself, and w = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from parley.client.queries.base import Facts, Integers, Table, groups_of
from parley.client.queries.moments import UNIT_BALANCE, Moments, public_size
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.estimation.reach import Reach

_GAUSSIAN_BALANCE = round(UNIT_BALANCE / math.sqrt(3))


@dataclass(frozen=True, kw_only=True)
class Mean(Moments):
    """The mean of a column of numbers."""

    kind: ClassVar[str] = "mean"
    polynomials = (lambda t: t,)
    spread: ClassVar[tuple[float, float]] = (1.0, 0.5)  # at t = ½

    def tuned(self, law: str, neighbouring: Neighbouring) -> Self:
        """w² = ⅓ for Gaussian noise under replace-one, else w = 1; counted where N is private."""
        third = law == "gaussian" and neighbouring is Neighbouring.REPLACE_ONE
        return replace(
            self,
            balance=_GAUSSIAN_BALANCE if third else UNIT_BALANCE,
            counted=not public_size(self, neighbouring),
        )

    def answer(self, noisy: Integers, weight: int, noise: Reach, facts: Facts) -> Table:
        """See `Query.answer`."""
        ((value, low, high),) = self.averages(noisy, weight, noise, facts)
        centre, width = self.scale(facts.schema)
        ends = {"value": value, "low": low, "high": high}
        keys = groups_of(facts.schema, self.by).keys()
        return {**keys, **{name: centre + width * x for name, x in ends.items()}}
