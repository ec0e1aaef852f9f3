"""What a query needs that may be answered by choosing: the winner alone, by exact scores.

Whoever chooses sees the scores (`parley.privacy.mechanisms.selection`): a server that must be
trusted with the bare sum. The same query with noise on its vector needs no such trust.

The best of several candidates by score: `choose-best`, such as the model that errs least.

The sum of a column: `sum`, of all records that are selected, or in every group.

On which side of a place a quantile lies: `balance`, one signed sum of all that are selected.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from parley.client.data.schema import Schema
from parley.client.queries.base import (
    ColumnQuery,
    ColumnsQuery,
    Facts,
    Integers,
    Numbers,
    Part,
    QueryError,
    Shown,
    Table,
    groups_of,
    numeric,
)
from parley.client.queries.group_cells import Adds, Cells
from parley.privacy.accounting.rounding import exact
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.noise_intervals import Reach
from parley.privacy.estimation.sampling_error import summed_deviation
from parley.privacy.sensitivity.bounded_sets import Set


class Choosable(Shown):
    """Of a query: its candidates' scores, and what the winner says."""

    @abstractmethod
    def check_choice(self, schema: Schema) -> None:
        """Raises QueryError where several winners would be shown."""

    @abstractmethod
    def candidates(self, schema: Schema) -> int:
        """k."""

    @abstractmethod
    def score_unit(self, weight: int) -> int:
        """What a score of 1 is in `scores`."""

    @abstractmethod
    def scores(self, total: Integers, weight: int, facts: Facts) -> Integers:
        """`[k]` of the candidates, from the exact sum `[d]`: the largest is best."""

    @abstractmethod
    def score_set(self, weight: int) -> Set:
        """Of what one record adds to a score; to −max of sums, of what it adds to each of them."""

    def answer_shown(self, shown: Integers, epsilon: float, facts: Facts) -> Table:
        """The answer of a choice: of the winner's place, all that is shown."""
        del epsilon
        return self.chosen(int(shown[0]), facts)

    @abstractmethod
    def chosen(self, place: int, facts: Facts) -> Table:
        """What candidate number `place` says: no interval, its score stays hidden."""


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

    def score_set(self, weight: int) -> Set:
        """0 to a."""
        return Set.interval(0, weight)

    def chosen(self, place: int, facts: Facts) -> Table:
        """See `Choosable.chosen`."""
        del facts
        hidden = np.array([np.nan])
        return {"winner": [self.of[place]], "value": hidden, "low": hidden, "high": hidden}


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
        low, high = math.floor(weight * (known.low / most)), math.ceil(weight * (known.high / most))
        scaled = Adds(low=low, high=high, of=lambda b: b.columns[self.column] / most * weight)
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


FINEST = 10**6
"""d at most: six digits of q."""


@dataclass(frozen=True, kw_only=True)
class Balance(ColumnQuery):
    """(1 − q)·(records below the border) − q·(records at or above it), q = `share`."""

    kind: ClassVar[str] = "balance"
    grouped: ClassVar[bool] = False

    border: float
    share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share < 1 or self.fraction.denominator > FINEST:
            raise QueryError(
                f"Expected a share between 0 and 1 of at most six digits, got {self.share!r}."
            )

    @property
    def fraction(self) -> Fraction:
        """q = n/d."""
        return exact(self.share)

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """See `Query.check`."""
        super().check(schema, neighbouring)
        known = numeric(schema, self.column)
        if not known.low < self.border <= known.high:
            raise QueryError(
                f"Expected a border within [{known.low:g}, {known.high:g}], the range of "
                f"{self.column!r}, got {self.border:g}."
            )

    def parts(self, schema: Schema, weight: int) -> tuple[Part, ...]:
        """One sum."""
        del schema
        low, high = -self.fraction.numerator * weight, self.steps(weight)
        signed = Adds(
            low=low,
            high=low + high,
            of=lambda b: np.where(b.columns[self.column] < self.border, low + high, low),
        )
        return (Part(cells=Cells(), adds=(signed,)),)

    def steps(self, weight: int) -> int:
        """Of a record, d."""
        return weight * self.fraction.denominator
