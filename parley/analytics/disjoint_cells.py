"""Partition the records into disjoint cells, each with a budget to spend adaptively.

    for ward in s.partition("ward", epsilon=0.3):
        if ward.count(epsilon=0.05).value > 100:
            ward.median("stay", epsilon=0.1)

A record is in one cell, so the costs of different cells do not add up in full. The whole price is
reserved before any cell is asked. A cell's answers are charged to a separate data set in the
ledger. A cell's spending may depend on answers, because its ε is pure and adds up for any queries
(Rogers, Roth, Ullman & Vadhan 2016).

**Under add-or-remove-one the price is the largest ε of a cell. Under replace-one a record may leave
one cell for another, so the price is the sum of the two largest.** A person may be in as many cells
as it has records, and in twice as many when replaced. A party may be in all of them. The price is
the sum of that many of the largest. A query of a cell is a query with `where`. Its Δ covers a
record that leaves, arrives or stays.

    >>> compute_price({"a": 0.3, "b": 0.2, "c": 0.1}, Neighbouring.ADD_OR_REMOVE_ONE)
    0.3
    >>> compute_price({"a": 0.3, "b": 0.2, "c": 0.1}, Neighbouring.REPLACE_ONE)
    0.5
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from parley.analytics.answer import Answer
from parley.analytics.query_api import (
    QueryMethods,
    ReleaseSession,
    check_epsilon,
    parse_optional_condition,
)
from parley.client.contract.canonical_encoding import encode_canonical
from parley.client.queries.base import Query, QueryError, get_categories
from parley.client.queries.filters.expressions import Expression, col
from parley.client.queries.query_batch import Counting
from parley.privacy.accounting.rounding import round_up, to_fraction
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.ledger.budget import DatasetBudget
from parley.server.rounds.query_session import QuerySession


def compute_price(
    cells: Mapping[str, float], neighbouring: Neighbouring, counting: Counting | None = None
) -> float:
    """Return the price of a partition whose cells have these ε."""
    largest = sorted((to_fraction(each) for each in cells.values()), reverse=True)
    crossed = _count_cells_per_unit(len(cells), neighbouring, counting)
    return round_up(sum(largest[:crossed], Fraction(0)))


def _count_cells_per_unit(cells: int, neighbouring: Neighbouring, counting: Counting | None) -> int:
    """Return the maximum number of cells that one unit may be, or have been, in."""
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
    """Return each cell's ε: the same for all, from a price `epsilon`, or the given ones.

    Raises:
        QueryError: neither or both are given, or an ε or a cell is not valid.
    """
    if (epsilon is None) == (cells is None):
        got = "neither" if epsilon is None else "both"
        raise QueryError(
            f"Expected either epsilon for the whole, or cells with an ε each, got {got}."
        )
    prices = dict.fromkeys(categories, epsilon) if cells is None else dict(cells)
    for text, each in prices.items():
        if text not in categories:
            raise QueryError(f"Expected cells of {', '.join(categories[:12])}, got {text!r:.80}.")
        check_epsilon(each)
    if not prices:
        raise QueryError("Expected at least one cell, got none.")
    crossed = 1 if cells else _count_cells_per_unit(len(prices), neighbouring, counting)
    return {text: float(each or 0) / crossed for text, each in prices.items()}


class PartitionCell(QueryMethods):
    """One cell of a partition. It is asked like a session and has its own budget."""

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
        """ε that is left of the cell's budget."""
        return self._session.compute_remaining(self._budget)

    def ask(self, query: Query, *, epsilon: float | None = None, **other: Any) -> Answer:
        """Ask one query of this cell's records, with Laplace noise, which has a pure ε.

        Raises:
            QueryError, SchemaError: the query is not valid; no budget was charged.
            BudgetExceeded: it costs more than the cell has left; no budget was charged.
        """
        if other or epsilon is None:
            raise QueryError(
                "Expected only epsilon with a query of a cell (its noise is Laplace), got "
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
    """Query method of a session that partitions the records into cells with budgets."""

    _session: QuerySession
    _partitions = 0

    @abstractmethod
    def _check_open(self) -> None: ...

    def compute_remaining(self, budget: DatasetBudget) -> float:
        """Return ε that is left of the data's budget, or of a cell's."""
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
        """Return the records' cells by category, each with its own budget: see this module's
        docstring.

        Args:
            epsilon: Price of the whole; under replace-one, each cell has half of it.
            cells: Alternatively, an ε per cell to ask. The price is the sum of the two largest, or
                the largest under add-or-remove-one.

        Raises:
            QueryError, SchemaError: the partition is not valid; no budget was charged.
            BudgetExceeded: it costs more than is left; no budget was charged.
        """
        self._check_open()
        relation, counting = self.terms.neighbouring, self.terms.counting
        texts = get_categories(self.schema, column)
        prices = allocate_budgets(texts, relation, epsilon=epsilon, cells=cells, counting=counting)
        condition = parse_optional_condition(where)
        if condition is not None:
            condition.check(self.schema)
        self._partitions += 1
        # The label names the partition, so that a resumed session pays for it only once.
        facts = {"cells": prices, "where": None if condition is None else condition.to_json()}
        digest = hashlib.sha256(encode_canonical({"column": column, **facts})).hexdigest()
        label = f"partition-{self._partitions}-{digest[:12]}"
        price = compute_price(prices, relation, counting)
        budgets = self._session.charge_partition(label, price, prices)
        found = []
        for key, budget in budgets.items():
            own = col[column] == key
            whole = own if condition is None else own & condition
            found.append(PartitionCell(self, key, budget, whole))
        return tuple(found)
