"""What can be asked, of a session, of a part of its records, or within a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from parley.analytics.answer import Answer
from parley.client.data.schema import Schema
from parley.client.queries.base import Query, QueryError
from parley.client.queries.choose import Choose
from parley.client.queries.choose_best import ChooseBest
from parley.client.queries.count import Count
from parley.client.queries.histogram import Histogram
from parley.client.queries.kmeans_grid import KMeansGrid
from parley.client.queries.marginals import Marginals
from parley.client.queries.mean import Mean
from parley.client.queries.quantiles import Quantiles
from parley.client.queries.response import Response
from parley.client.queries.total import Total
from parley.client.queries.variance import Variance
from parley.client.where import Expression, parse_where
from parley.privacy.ledger.budget import DatasetBudget
from parley.server.planning.queries import PlannedBatch
from parley.server.planning.query_terms import Terms


class Asking(ABC):
    """Queries by name. Each takes what its price is: `epsilon` alone, or a `share` in a batch.

    And `by="party"` for each party's own answer, where every party's policy allows it.
    """

    _where: Expression | None = None
    _by: tuple[str, ...] = ()

    @abstractmethod
    def ask(self, query: Query, **price: Any) -> Answer:
        """Asks a query that was made by hand."""

    def _part(self, where: Expression | None, by: tuple[str, ...]) -> Asking:
        """The same, of some records and in groups."""
        return Part(self, where, by)

    def _named(self, kind: Callable[..., Query], price: dict[str, Any], **own: Any) -> Answer:
        return self.ask(kind(where=self._where, by=self._by, **own), **price)

    def where(self, condition: Expression | str) -> Asking:
        """Of these records: `col.age > 60`, or "age > 60 and sex == 'Female'"."""
        one = condition_of(condition)
        return self._part(one if self._where is None else self._where & one, self._by)

    def group_by(self, *columns: str) -> Asking:
        """In every combination of these columns' categories."""
        if not columns or not all(isinstance(name, str) for name in columns):
            raise QueryError(f"Expected names of columns to group by, got {columns!r}.")
        return self._part(self._where, (*self._by, *columns))

    def count(self, **price: Any) -> Answer:
        """How many records."""
        return self._named(Count, price)

    def sum(self, column: str, **price: Any) -> Answer:
        """The sum of a column of numbers."""
        return self._named(Total, price, column=column)

    def mean(self, column: str, **price: Any) -> Answer:
        """The mean of a column of numbers."""
        return self._named(Mean, price, column=column)

    def variance(self, column: str, **price: Any) -> Answer:
        """The variance of a column of numbers: of n records, not n − 1."""
        return self._named(Variance, price, column=column)

    def histogram(
        self, column: str, *, bins: int = 0, edges: Sequence[float] = (), **price: Any
    ) -> Answer:
        """How many records have each category, or lie in each interval of a number."""
        if isinstance(bins, bool) or not isinstance(bins, int) or bins < 0:
            raise QueryError(f"Expected bins, a whole number ≥ 1, got {bins!r}.")
        ends = tuple(float(edge) for edge in edges)
        return self._named(Histogram, price, column=column, bins=bins, edges=ends)

    def marginals(self, columns: Sequence[str], *, ways: int = 2, **price: Any) -> Answer:
        """Tables of counts of every `ways` of several columns, which agree with each other."""
        return self._named(Marginals, price, of=_names(columns), ways=ways)

    def quantiles(
        self, column: str, quantiles: Sequence[float], *, step: float = 0.0, **price: Any
    ) -> Answer:
        """Values below which these shares of the records lie, on a grid of `step`."""
        shares = tuple(float(q) for q in quantiles)
        return self._named(Quantiles, price, column=column, quantiles=shares, step=float(step))

    def median(self, column: str, *, step: float = 0.0, **price: Any) -> Answer:
        """The value below which half of the records lie."""
        return self.quantiles(column, [0.5], step=step, **price)

    def choose(self, column: str, **price: Any) -> Answer:
        """The category that most records have."""
        return self._named(Choose, price, column=column)

    def response(self, column: str, **price: Any) -> Answer:
        """How many records have each category, by randomised response: each answers for itself.

        `epsilon` is that of one record's report, whoever sees it: the server, all other parties.
        Asked again they draw other coins, at another charge.
        """
        return self._named(Response, price, column=column)

    def choose_best(self, columns: Sequence[str], *, least: bool = False, **price: Any) -> Answer:
        """Which of these columns of scores in [0, 1] has the largest (or least) sum.

        With `law="permute-and-flip"` or "exponential" a trusted server of a simulation chooses by
        the exact sums; else the winner is read off noisy sums, which nobody need see bare.
        """
        return self._named(ChooseBest, price, of=_names(columns), least=least)

    def kmeans(
        self, columns: Sequence[str], clusters: int, *, grid: int = 32, **price: Any
    ) -> Answer:
        """Centres of so many clusters, from one histogram of at most three columns."""
        return self._named(KMeansGrid, price, of=_names(columns), clusters=clusters, grid=grid)

    def min(self, column: str, **_: Any) -> NoReturn:
        """Refused, with what to ask instead."""
        raise QueryError(
            f"min and max are not offered: one record of {column!r} moves them over the whole "
            "range. quantiles(.01, .99) are near them."
        )

    max = min


class Part(Asking):
    """Some records of a session or batch, or in groups."""

    def __init__(self, whole: Asking, where: Expression | None, by: tuple[str, ...]) -> None:
        self._whole, self._where, self._by = whole, where, by

    def ask(self, query: Query, **price: Any) -> Any:
        """See `Session.ask`."""
        return self._whole.ask(query, **price)

    def _part(self, where: Expression | None, by: tuple[str, ...]) -> Asking:
        return Part(self._whole, where, by)


class Whole(Asking):
    """A session, as what takes several releases, or a batch of queries, sees it."""

    @property
    @abstractmethod
    def terms(self) -> Terms:
        """What is public, and settled for all queries."""

    @property
    def schema(self) -> Schema:
        """Of all parties."""
        return self.terms.facts.schema

    @property
    @abstractmethod
    def remaining(self) -> float:
        """ε that is left of the budget."""

    @abstractmethod
    def plan(self, queries: Sequence[Query], *, epsilon: float, **how: Any) -> PlannedBatch:
        """What a batch would release; nothing is asked, nothing is charged."""

    @abstractmethod
    def release(
        self,
        queries: Sequence[Query],
        *,
        epsilon: float,
        law: str | None = None,
        shares: Sequence[float] | None = None,
        budget: DatasetBudget | None = None,
        by_party: bool = False,
    ) -> list[Answer]:
        """Asks queries together, in one sum for one price."""


def by_party(by: str | None) -> bool:
    """Whether each party's own answer is asked for.

    Raises:
        QueryError: by something else.
    """
    if by not in (None, "party"):
        raise QueryError(
            f'Expected by="party", or none, got {by!r:.80}: group_by(column) groups by columns.'
        )
    return by is not None


def condition_of(given: Expression | str) -> Expression:
    """A condition as it is given, or from its text.

    Raises:
        QueryError, WhereError: neither.
    """
    one = parse_where(given) if isinstance(given, str) else given
    if not isinstance(one, Expression):
        raise QueryError(
            f"Expected a condition, such as col.age > 60 or 'age > 60', got {type(given).__name__}."
        )
    return one


def maybe_condition(given: Expression | str | None) -> Expression | None:
    """The same of a condition that there need not be."""
    return None if given is None else condition_of(given)


def _names(columns: Sequence[str]) -> tuple[str, ...]:
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
        raise QueryError(f"Expected a list of columns' names, got {columns!r:.80}.")
    return tuple(columns)
