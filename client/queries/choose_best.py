"""The best of several candidates by score: `choose-best`, such as the model that errs least.

Candidates are columns of scores in [0, 1], one a record: which model errs on it, how well a
threshold does. A record adds round(a·u) to each of the k sums, all of which may move at once:
Δ₁ = ka and Δ₂ = √k·a, replace-one and add-or-remove-one. The winner is read off the noisy sums, and
nobody need see a bare one; that costs √k in Gaussian noise, k in Laplace noise. A trusted server
that chooses by the exact sums needs Δ = a of a single score (`law = "permute-and-flip"`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from parley.client.data.schema import Schema
from parley.client.queries.base import (
    ColumnsQuery,
    Facts,
    Integers,
    Part,
    QueryError,
    Table,
    numeric,
)
from parley.client.queries.cells import Adds, Cells
from parley.client.queries.choosing import Choosable
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.estimation.reach import Reach

_MOST = 1024


@dataclass(frozen=True, kw_only=True)
class ChooseBest(ColumnsQuery, Choosable):
    """The column of scores of the largest sum; of the `least`, where scores are errors."""

    kind: ClassVar[str] = "choose-best"
    whole: ClassVar[bool] = False

    least: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= len(set(self.of)) == len(self.of) <= _MOST:
            raise QueryError(
                f"Expected 2 to {_MOST} distinct candidates, columns of scores, got "
                f"{', '.join(self.of[:8]) or 'none'}."
            )

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """See `Query.check`."""
        super().check(schema, neighbouring)
        for name in self.of:
            known = numeric(schema, name)
            if not 0 <= known.low < known.high <= 1:
                raise QueryError(
                    f"Expected scores in [0, 1], got {name!r} in [{known.low:g}, {known.high:g}]."
                )

    def parts(self, schema: Schema, weight: int) -> tuple[Part, ...]:
        """k sums."""
        del schema

        def score(name: str) -> Adds:
            return Adds(low=0, high=weight, of=lambda block: weight * block.columns[name])

        return (Part(cells=Cells(), adds=tuple(map(score, self.of))),)

    def answer(self, noisy: Integers, weight: int, noise: Reach, facts: Facts) -> Table:
        """The winner with its noisy sum, and by how much it leads the second."""
        del facts
        sums = noisy / weight
        order = np.argsort(sums if self.least else -sums, kind="stable")
        value, second = sums[order[:1]], sums[order[1:2]]
        # The winner is one of so many: its interval holds for all of them at once.
        half = noise.half_width(cells=len(self.of)) / weight
        return {
            "winner": [self.of[order[0]]],
            "lead": np.abs(value - second),
            "value": value,
            "low": value - half,
            "high": value + half,
        }

    def check_choice(self, schema: Schema) -> None:
        """There is one winner."""

    def candidates(self, schema: Schema) -> int:
        """k."""
        return self.cells(schema)

    def score_unit(self, weight: int) -> int:
        """a."""
        return weight

    def scores(self, total: Integers, weight: int, facts: Facts) -> Integers:
        """The sums, or what is smallest first."""
        del weight, facts
        return -total if self.least else total

    def score_sensitivity(self, neighbouring: Neighbouring, weight: int) -> int:
        """a."""
        del neighbouring
        return weight

    def chosen(self, place: int, facts: Facts) -> Table:
        """See `Choosable.chosen`."""
        del facts
        hidden = np.array([np.nan])
        return {"winner": [self.of[place]], "value": hidden, "low": hidden, "high": hidden}
