"""Disjoint parts of the records, each with a budget to spend as the answers suggest.

    for ward in s.partition("ward", epsilon=.3):
        if ward.count(epsilon=.05).value > 100:
            ward.median("stay", epsilon=.1)

A record is in one cell, so that what is asked of different cells does not add up in full. The price
is reserved whole, before any cell is asked, and a cell's answers are charged to a data set of the
ledger that is the cell's. Spending there may depend on answers: its ε is pure, and adds up whatever
was asked (Rogers, Roth, Ullman & Vadhan 2016).

**The price is the largest ε of a cell under add-or-remove-one. Under replace-one a record may leave
one cell for another: the sum of the two largest.** A person may be in as many cells as it has
records, twice as many when replaced, and a party in all of them: so many of the largest. A query of
a cell is one with `where`, whose Δ covers a record that leaves, comes or stays.

    >>> price({"a": .3, "b": .2, "c": .1}, Neighbouring.ADD_OR_REMOVE_ONE)
    0.3
    >>> price({"a": .3, "b": .2, "c": .1}, Neighbouring.REPLACE_ONE)
    0.5
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from parley.analytics.answer import Answer
from parley.analytics.asking import Asking
from parley.client.queries.base import Query, QueryError
from parley.client.queries.counting import Counting
from parley.client.where import Expression, col
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.accounting.rounding import exact, round_up
from parley.privacy.ledger.budget import DatasetBudget


def price(
    cells: Mapping[str, float], neighbouring: Neighbouring, counting: Counting | None = None
) -> float:
    """What a partition costs whose cells have these ε."""
    largest = sorted((exact(each) for each in cells.values()), reverse=True)
    return round_up(sum(largest[: _crossed(len(cells), neighbouring, counting)], Fraction(0)))


def _crossed(cells: int, neighbouring: Neighbouring, counting: Counting | None) -> int:
    """In how many cells one of the unit may be, or have been."""
    most = 1 if counting is None else cells if counting.clip else counting.most
    return min(cells, most * (2 if neighbouring is Neighbouring.REPLACE_ONE else 1))


def budgets_of(
    texts: tuple[str, ...],
    neighbouring: Neighbouring,
    *,
    epsilon: float | None,
    cells: Mapping[str, float] | None,
    counting: Counting | None = None,
) -> dict[str, float]:
    """Each cell's ε: the same for all, of a price `epsilon`; or those that are given.

    Raises:
        QueryError: neither or both, an ε that is none, or a cell that is none.
    """
    if (epsilon is None) == (cells is None):
        got = "neither" if epsilon is None else "both"
        raise QueryError(
            f"Expected either epsilon, of the whole, or cells with an ε each, got {got}."
        )
    prices = dict.fromkeys(texts, epsilon) if cells is None else dict(cells)
    for text, each in prices.items():
        if text not in texts:
            raise QueryError(f"Expected cells of {', '.join(texts[:12])}, got {text!r:.80}.")
        if isinstance(each, bool) or not isinstance(each, int | float) or not 0 < each < math.inf:
            raise QueryError(f"Expected epsilon, a number > 0, got {each!r}.")
    if not prices:
        raise QueryError("Expected at least one cell, got none.")
    found = {text: float(each or 0) for text, each in prices.items()}
    if cells is None:
        crossed = _crossed(len(found), neighbouring, counting)
        found = {text: each / crossed for text, each in found.items()}
    return found


class Cell(Asking):
    """One cell of a partition: asked like a session, paid from its own budget.

    Attributes:
        key: the category.
    """

    def __init__(
        self, session: Any, key: str, budget: DatasetBudget, where: Expression, by: tuple[str, ...]
    ) -> None:
        self._session, self.key, self._budget = session, key, budget
        self._where, self._by = where, by

    @classmethod
    def of(
        cls, session: Any, column: str, key: str, budget: DatasetBudget, where: Expression | None
    ) -> Cell:
        """The cell of a category."""
        own = col[column] == key
        return cls(session, key, budget, own if where is None else own & where, ())

    @property
    def remaining(self) -> float:
        """ε that is left of the cell's."""
        return float(self._session.left_of(self._budget))

    def ask(self, query: Query, *, epsilon: float | None = None, **other: Any) -> Answer:
        """Asks one query of this cell's records, with Laplace noise: pure ε.

        Raises:
            QueryError, SchemaError: it cannot be asked; nothing was charged.
            BudgetExceeded: it costs more than the cell has left; nothing was charged.
        """
        if other or epsilon is None:
            raise QueryError(
                "Expected epsilon alone with a query of a cell (its noise is Laplace's), got "
                f"{', '.join(other) or 'none'}."
            )
        answer: Answer = self._session.ask_of(self._budget, query, epsilon=epsilon)
        return answer

    def _part(self, where: Expression | None, by: tuple[str, ...]) -> Any:
        if where is None:
            raise QueryError("Expected the cell's own condition, got none.")
        return Cell(self._session, self.key, self._budget, where, by)

    def __repr__(self) -> str:
        return f"Cell({self.key!r})"
