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

    >>> compute_price({"a": .3, "b": .2, "c": .1}, Neighbouring.ADD_OR_REMOVE_ONE)
    0.3
    >>> compute_price({"a": .3, "b": .2, "c": .1}, Neighbouring.REPLACE_ONE)
    0.5
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from parley.analytics.answer import Answer
from parley.analytics.query_api import QueryMethods, ReleaseSession, parse_optional_condition
from parley.client.contract.canonical_encoding import encode_canonical
from parley.client.queries.base import Query, QueryError, get_categories
from parley.client.queries.filters import Expression, col
from parley.client.queries.query_batch import Counting
from parley.privacy.accounting.rounding import round_up, to_fraction
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.ledger.budget import DatasetBudget
from parley.server.rounds.query_session import QuerySession


def compute_price(
    cells: Mapping[str, float], neighbouring: Neighbouring, counting: Counting | None = None
) -> float:
    """What a partition costs whose cells have these ε."""
    largest = sorted((to_fraction(each) for each in cells.values()), reverse=True)
    return round_up(
        sum(largest[: _count_cells_per_unit(len(cells), neighbouring, counting)], Fraction(0))
    )


def _count_cells_per_unit(cells: int, neighbouring: Neighbouring, counting: Counting | None) -> int:
    """In how many cells one of the unit may be, or have been."""
    most = 1 if counting is None else cells if counting.clip else counting.most
    return min(cells, most * (2 if neighbouring is Neighbouring.REPLACE_ONE else 1))


def allocate_budgets(
    categories: tuple[str, ...],
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
    prices = dict.fromkeys(categories, epsilon) if cells is None else dict(cells)
    for text, each in prices.items():
        if text not in categories:
            raise QueryError(f"Expected cells of {', '.join(categories[:12])}, got {text!r:.80}.")
        if isinstance(each, bool) or not isinstance(each, int | float) or not 0 < each < math.inf:
            raise QueryError(f"Expected epsilon, a number > 0, got {each!r}.")
    if not prices:
        raise QueryError("Expected at least one cell, got none.")
    found = {text: float(each or 0) for text, each in prices.items()}
    if cells is None:
        crossed = _count_cells_per_unit(len(found), neighbouring, counting)
        found = {text: each / crossed for text, each in found.items()}
    return found


class PartitionCell(QueryMethods):
    """One cell of a partition: asked like a session, paid from its own budget."""

    def __init__(
        self,
        session: PartitionQueries,
        key: str,
        budget: DatasetBudget,
        where: Expression | None,
        by: tuple[str, ...] = (),
    ) -> None:
        self._session, self.key, self._budget = session, key, budget
        self._where, self._by = where, by

    @property
    def remaining(self) -> float:
        """ε that is left of the cell's."""
        return self._session.compute_remaining(self._budget)

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
        (answer,) = self._session.release(
            [query], epsilon=epsilon, law="laplace", budget=self._budget
        )
        return answer

    def _select_subset(self, where: Expression | None, by: tuple[str, ...]) -> PartitionCell:
        return PartitionCell(self._session, self.key, self._budget, where, by)

    def __repr__(self) -> str:
        return f"Cell({self.key!r})"


class PartitionQueries(ReleaseSession):
    """Parts of the records with budgets to spend."""

    _session: QuerySession
    _partitions = 0

    @abstractmethod
    def _check_open(self) -> None: ...

    def compute_remaining(self, budget: DatasetBudget) -> float:
        """ε that is left of the data's budget, or of a cell's."""
        self._check_open()
        return self._session.compute_remaining(budget)

    def partition(
        self,
        column: str,
        *,
        epsilon: float | None = None,
        cells: Mapping[str, float] | None = None,
        where: Expression | str | None = None,
    ) -> tuple[PartitionCell, ...]:
        """The records by category, each part with its own budget: see the module `partition`.

        Args:
            epsilon: price of the whole; every cell has half of it under replace-one.
            cells: or an ε for each cell that is asked: its price is the sum of the two largest,
                under add-or-remove-one the largest.

        Raises:
            QueryError, SchemaError: no such partition; nothing was charged.
            BudgetExceeded: it costs more than is left; nothing was charged.
        """
        self._check_open()
        relation, counting = self.terms.neighbouring, self.terms.counting
        texts = get_categories(self.schema, column)
        prices = allocate_budgets(texts, relation, epsilon=epsilon, cells=cells, counting=counting)
        condition = parse_optional_condition(where)
        if condition is not None:
            condition.check(self.schema)
        self._partitions += 1
        # A session that goes on has paid for this partition, and for no other.
        facts = {"cells": prices, "where": None if condition is None else condition.to_json()}
        digest = hashlib.sha256(encode_canonical({"column": column, **facts})).hexdigest()
        label = f"partition-{self._partitions}-{digest[:12]}"
        budgets = self._session.charge_partition(
            label, compute_price(prices, relation, counting), prices
        )
        found = []
        for key, budget in budgets.items():
            own = col[column] == key
            found.append(
                PartitionCell(self, key, budget, own if condition is None else own & condition)
            )
        return tuple(found)
