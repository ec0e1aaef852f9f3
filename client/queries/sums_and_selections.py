"""Sums and selections: `sum`, `balance`, `choose-best`, and `SelectionQuery` for exact scores.

A selection shows only the winner, by exact scores. The server that selects sees the scores
(`parley.privacy.mechanisms.private_selection`), so it must be trusted with the bare sum. The same
query with noise on its vector needs no such trust.

`choose-best` is the best of several candidates by score, such as the model with the fewest errors.

`sum` is the sum of a column, of all selected records or in every group.

`balance` shows on which side of a border a quantile is: one signed sum of all selected records.
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
    CellSums,
    ColumnQuery,
    ColumnsQuery,
    Integers,
    NonAdditiveQuery,
    Numbers,
    QueryError,
    QueryFacts,
    Table,
    build_group_cells,
    get_range,
)
from parley.client.queries.group_cells import CellGrid, Summand
from parley.privacy.accounting.rounding import to_fraction
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.noise_intervals import CellNoise
from parley.privacy.estimation.sampling_error import estimate_sum_deviation
from parley.privacy.sensitivity.bounded_sets import Set


class SelectionQuery(NonAdditiveQuery):
    """The part of a query that scores candidates and builds the answer from the winner."""

    def check_choice(self, schema: Schema) -> None:
        """Raise QueryError if several winners would be shown. Here there is one."""

    @abstractmethod
    def count_candidates(self, schema: Schema) -> int:
        """Return k."""

    @abstractmethod
    def get_score_unit(self, weight: int) -> int:
        """Return what a score of 1 is in `compute_scores`."""

    @abstractmethod
    def compute_scores(self, total: Integers, weight: int, facts: QueryFacts) -> Integers:
        """Return `[k]` the candidates' scores from the exact sum `[d]`. The largest is best."""

    @abstractmethod
    def build_score_set(self, weight: int) -> Set:
        """Return the set of what one record adds to a score.

        For a score that is −max of sums, it is the set of what a record adds to each sum.
        """

    def answer_from_output(self, shown: Integers, epsilon: float, facts: QueryFacts) -> Table:
        """Return the answer of a selection. Only the winner's index is shown."""
        return self.build_winner_table(int(shown[0]), facts)

    @abstractmethod
    def build_winner_table(self, winner: int, facts: QueryFacts) -> Table:
        """Return the table of candidate `winner`. It has no interval: the score stays hidden."""


_MAX_CANDIDATES = 1024


@dataclass(frozen=True, kw_only=True)
class ChooseBest(ColumnsQuery, SelectionQuery):
    """The column of scores with the largest sum or, with `least`, the smallest (of errors)."""

    kind: ClassVar[str] = "choose-best"
    integral: ClassVar[bool] = False

    least: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= len(set(self.of)) == len(self.of) <= _MAX_CANDIDATES:
            expected = f"Expected 2 to {_MAX_CANDIDATES} distinct candidates, columns of scores"
            raise QueryError(f"{expected}, got {', '.join(self.of[:8]) or 'none'}.")

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Run the checks of `Query.check`."""
        super().check(schema, neighbouring)
        for name in self.of:
            known = get_range(schema, name)
            if not 0 <= known.low < known.high <= 1:
                got = f"{name!r} in [{known.low:g}, {known.high:g}]"
                raise QueryError(f"Expected scores in [0, 1], got {got}.")

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Return k sums."""

        def score(name: str) -> Summand:
            return Summand(low=0, high=weight, compute=lambda block: weight * block.columns[name])

        return (CellSums(cells=CellGrid(), summands=tuple(map(score, self.of))),)

    def answer(self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts) -> Table:
        """Return the winner with its noisy sum, and its lead over the second."""
        sums = noisy / weight
        order = np.argsort(sums if self.least else -sums, kind="stable")
        value, second = sums[order[:1]], sums[order[1:2]]
        # The winner is one of all candidates, so its interval must hold for all of them at once.
        half = noise.compute_half_width(cells=len(self.of)) / weight
        return {
            "winner": [self.of[order[0]]],
            "lead": np.abs(value - second),
            "value": value,
            "low": value - half,
            "high": value + half,
        }

    def count_candidates(self, schema: Schema) -> int:
        """Return k."""
        return self.count_cells(schema)

    def get_score_unit(self, weight: int) -> int:
        """Return a."""
        return weight

    def compute_scores(self, total: Integers, weight: int, facts: QueryFacts) -> Integers:
        """Return the sums, negated if the smallest is best."""
        return -total if self.least else total

    def build_score_set(self, weight: int) -> Set:
        """Return the interval from 0 to a."""
        return Set.interval(0, weight)

    def build_winner_table(self, winner: int, facts: QueryFacts) -> Table:
        """Return the table as in `SelectionQuery.build_winner_table`."""
        hidden = np.array([np.nan])
        return {"winner": [self.of[winner]], "value": hidden, "low": hidden, "high": hidden}


@dataclass(frozen=True, kw_only=True)
class ColumnSum(ColumnQuery):
    """The sum of a column of numbers."""

    kind: ClassVar[str] = "sum"
    integral: ClassVar[bool] = False

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Run the checks of `Query.check`."""
        super().check(schema, neighbouring)
        if not self.get_answer_unit(schema) > 0:
            raise QueryError(f"Expected a range of {self.column!r} other than 0, got only 0.")

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Return G sums."""
        known, most = get_range(schema, self.column), self.get_answer_unit(schema)
        low, high = math.floor(weight * (known.low / most)), math.ceil(weight * (known.high / most))
        scaled = Summand(
            low=low, high=high, compute=lambda b: b.columns[self.column] / most * weight
        )
        return (CellSums(cells=build_group_cells(schema, self.by), summands=(scaled,)),)

    def get_answer_unit(self, schema: Schema) -> float:
        """Return X, the largest magnitude of the range."""
        known = get_range(schema, self.column)
        return max(abs(known.low), abs(known.high))

    def supports_sampling(self, facts: QueryFacts) -> bool:
        """Return whether N is public, or the range has one sign."""
        known = get_range(facts.schema, self.column)
        return facts.records is not None or known.low >= 0 or known.high <= 0

    def compute_sampling_errors(self, values: Numbers, facts: QueryFacts) -> Numbers:
        """Return the sampling errors of the sums. Records that are not selected add 0.

        If N is private it is treated as Poisson: Var = E Σx² ≤ X·E Σ|x|.
        """
        if facts.records is None:
            return np.asarray(np.sqrt(self.get_answer_unit(facts.schema) * np.abs(values)))
        known = get_range(facts.schema, self.column)
        low, high = known.low, known.high
        if self.selects or self.by:
            low, high = min(low, 0.0), max(high, 0.0)
        return estimate_sum_deviation(values, low, high, facts.records)


MAX_DENOMINATOR = 10**6
"""Maximum d: six digits of q."""


@dataclass(frozen=True, kw_only=True)
class Balance(ColumnQuery):
    """(1 − q)·(records below the border) − q·(records at or above it), q = `share`."""

    kind: ClassVar[str] = "balance"
    allows_groups: ClassVar[bool] = False

    border: float
    share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share < 1 or self.fraction.denominator > MAX_DENOMINATOR:
            expected = "Expected a share between 0 and 1 of at most six digits"
            raise QueryError(f"{expected}, got {self.share!r}.")

    @property
    def fraction(self) -> Fraction:
        """q = n/d."""
        return to_fraction(self.share)

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Run the checks of `Query.check`."""
        super().check(schema, neighbouring)
        known = get_range(schema, self.column)
        if not known.low < self.border <= known.high:
            raise QueryError(
                f"Expected a border within [{known.low:g}, {known.high:g}], the range of "
                f"{self.column!r}, got {self.border:g}."
            )

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Return one sum."""
        low, high = -self.fraction.numerator * weight, self.get_steps_per_unit(weight)
        signed = Summand(
            low=low,
            high=low + high,
            compute=lambda b: np.where(b.columns[self.column] < self.border, low + high, low),
        )
        return (CellSums(cells=CellGrid(), summands=(signed,)),)

    def get_steps_per_unit(self, weight: int) -> int:
        """Return the integers of one record, d times the weight."""
        return weight * self.fraction.denominator
