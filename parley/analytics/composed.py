"""What takes several releases of a session: partitions, Lloyd's k-means, a quantile by counts."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence

from parley.analytics.answer import Answer
from parley.analytics.asking import Asking, condition_of
from parley.analytics.clusters import lloyd, start_of
from parley.analytics.logs import Log, synthetic_log
from parley.analytics.partition import Cell, budgets_of, price
from parley.analytics.search import Found, find_quantile
from parley.client.contract.canonical import canonical
from parley.client.data.schema import Schema
from parley.client.queries.base import Query, texts_of
from parley.client.where import Expression
from parley.privacy.ledger.budget import DatasetBudget
from parley.server.planning.query_terms import Terms
from parley.server.rounds.session import QuerySession


class Composed(Asking):
    """The releases of a session that are made of others."""

    _session: QuerySession
    _terms: Terms
    _partitions = 0

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """Of all parties."""

    @property
    @abstractmethod
    def remaining(self) -> float:
        """ε that is left of the budget."""

    @abstractmethod
    def release(
        self,
        queries: Sequence[Query],
        *,
        epsilon: float,
        law: str | None = None,
        shares: Sequence[float] | None = None,
        budget: DatasetBudget | None = None,
    ) -> list[Answer]:
        """Asks queries together, charged to `budget`."""

    @abstractmethod
    def _check_open(self) -> None: ...

    def partition(
        self,
        column: str,
        *,
        epsilon: float | None = None,
        cells: Mapping[str, float] | None = None,
        where: Expression | str | None = None,
    ) -> tuple[Cell, ...]:
        """The records by category, each part with its own budget: see `partition`.

        Args:
            column: of categories.
            epsilon: price of the whole; every cell has half of it under replace-one.
            cells: or an ε for each cell that is asked: its price is the sum of the two largest,
                under add-or-remove-one the largest.
            where: which records.

        Raises:
            QueryError, SchemaError: no such partition; nothing was charged.
            BudgetExceeded: it costs more than is left; nothing was charged.
        """
        self._check_open()
        relation, counting = self._terms.neighbouring, self._terms.counting
        texts = texts_of(self.schema, column)
        prices = budgets_of(texts, relation, epsilon=epsilon, cells=cells, counting=counting)
        condition = _condition(where)
        if condition is not None:
            condition.check(self.schema)
        self._partitions += 1
        # A session that goes on has paid for this partition, and for no other.
        facts = {"cells": prices, "where": None if condition is None else condition.to_json()}
        digest = hashlib.sha256(canonical({"column": column, **facts})).hexdigest()
        label = f"partition-{self._partitions}-{digest[:12]}"
        budgets = self._session.set_aside(label, price(prices, relation, counting), prices)
        return tuple(
            Cell.of(self, column, key, budget, condition) for key, budget in budgets.items()
        )

    def ask_of(self, budget: DatasetBudget, query: Query, *, epsilon: float) -> Answer:
        """Asks one query of a partition's cell."""
        (answer,) = self.release([query], epsilon=epsilon, law="laplace", budget=budget)
        return answer

    def left_of(self, budget: DatasetBudget) -> float:
        """ε that is left of a cell's budget."""
        self._check_open()
        return self._session.left_of(budget)

    def lloyd(
        self,
        columns: Sequence[str],
        *,
        clusters: int = 0,
        centres: Sequence[Sequence[float]] | None = None,
        rounds: int = 10,
        noise: str = "balanced",
        where: Expression | str | None = None,
        epsilon: float,
    ) -> tuple[Answer, ...]:
        """k-means by Lloyd's steps: a query a round, from public centres. See `Asking.kmeans`.

        Args:
            columns: of numbers.
            clusters: how many; or `centres`.
            centres: public places to start from, in the columns' units; default: spread evenly.
            rounds: T; each has ε/T.
            noise: balanced, or as-printed: under replace-one that is charged 2ε.
            where: which records.
            epsilon: of all rounds together.

        Raises:
            QueryError, SchemaError: it cannot be asked; nothing was charged.
        """
        self._check_open()
        start = start_of(self.schema, columns, clusters) if centres is None else centres
        return lloyd(
            self,
            columns,
            centres=start,
            rounds=rounds,
            epsilon=epsilon,
            noise=noise,
            neighbouring=self._terms.facts.neighbouring,
            where=_condition(where),
        )

    def search_log(
        self,
        columns: Sequence[str],
        *,
        clicks: int = 10,
        method: str = "counts",
        where: Expression | str | None = None,
        law: str = "auto",
        seed: int | None = None,
        epsilon: float,
    ) -> Log:
        """A log of users that never were, drawn from noisy counts: see `parley.analytics.logs`.

        ε covers what the session's unit is. Of a table with a row for every click that is a click,
        and a user with K rows in one party has Kε.

        Args:
            columns: of categories, the public list: what was asked, and what was clicked.
            clicks: of every synthetic user.
            method: counts; the method that is printed for search logs is refused: it has no ε.
            where: which rows.
            law: of the counts' noise.
            seed: of the draws, which are post-processing.
            epsilon: of the counts, whole.

        Raises:
            QueryError, SchemaError: it cannot be asked; nothing was charged.
        """
        self._check_open()
        return synthetic_log(
            self,
            columns,
            clicks=clicks,
            epsilon=epsilon,
            law=law,
            method=method,
            where=_condition(where),
            seed=seed,
        )

    def find_quantile(
        self,
        column: str,
        quantile: float = 0.5,
        *,
        step: float = 0.0,
        counts: int | None = None,
        where: Expression | str | None = None,
        epsilon: float,
    ) -> Found:
        """One quantile by a few counts, each its own release, placed by those before.

        Several times nearer than `quantiles`, which answers in one release, and for several at
        once. Of values that many records share it finds the neighbourhood, slowly.

        Args:
            column: of numbers.
            quantile: share of the records below it, between 0 and 1.
            step: as of `quantiles`.
            counts: how many, and up to 16 more of a skewed column; default one less than half the
                binary digits of the number of values.
            where: which records.
            epsilon: of all counts together.

        Raises:
            QueryError, SchemaError: it cannot be asked; nothing was charged.
        """
        self._check_open()
        return find_quantile(
            self,
            column,
            quantile,
            step=step,
            counts=counts,
            epsilon=epsilon,
            neighbouring=self._terms.facts.neighbouring,
            where=_condition(where),
        )


def _condition(where: Expression | str | None) -> Expression | None:
    return None if where is None else condition_of(where)
