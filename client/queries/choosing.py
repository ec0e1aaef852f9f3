"""What a query needs that may be answered by choosing: the winner alone, by exact scores.

Whoever chooses sees the scores (`parley.privacy.mechanisms.selection`): a server that must be
trusted with the bare sum. The same query with noise on its vector needs no such trust.
"""

from __future__ import annotations

from abc import abstractmethod

from parley.client.data.schema import Schema
from parley.client.queries.base import Facts, Integers, Shown, Table
from parley.privacy.accounting.guarantee import Neighbouring


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
    def score_sensitivity(self, neighbouring: Neighbouring, weight: int) -> int:
        """Δ: the most that one neighbour moves any score."""

    def answer_shown(self, shown: Integers, epsilon: float, facts: Facts) -> Table:
        """The answer of a choice: of the winner's place, all that is shown."""
        del epsilon
        return self.chosen(int(shown[0]), facts)

    @abstractmethod
    def chosen(self, place: int, facts: Facts) -> Table:
        """What candidate number `place` says: no interval, its score stays hidden."""
