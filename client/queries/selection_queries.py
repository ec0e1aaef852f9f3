"""Selections: `choose-best`, and `SelectionQuery` for exact scores.

A selection shows only the winner, by exact scores. The server that selects sees the scores
(`parley.privacy.mechanisms.private_selection`), so it must be trusted with the bare sum. The same
query with noise on its vector needs no such trust.

`choose-best` is the best of several candidates by score, such as the model with the fewest errors.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from parley.client.data.schema import Schema
from parley.client.queries.base import (
    CellSums,
    ColumnsQuery,
    Integers,
    NonAdditiveQuery,
    QueryError,
    QueryFacts,
    Table,
    get_range,
)
from parley.client.queries.group_cells import CellGrid, Summand
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.noise_intervals import CellNoise
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
