"""What can be asked, of a session, of a part of its records, or within a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn, Self

from parley.analytics.answer import Answer
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


class Asking(ABC):
    """Queries by name. Each takes what its price is: `epsilon` alone, or a `share` in a batch.

    And `by="party"` for each party's own answer, where every party's policy allows it.
    """

    _where: Expression | None = None
    _by: tuple[str, ...] = ()

    @abstractmethod
    def ask(self, query: Query, **price: Any) -> Answer:
        """Asks a query that was made by hand."""

    @abstractmethod
    def _part(self, where: Expression | None, by: tuple[str, ...]) -> Self:
        """The same, of some records and in groups."""

    def where(self, condition: Expression | str) -> Self:
        """Of these records: `col.age > 60`, or "age > 60 and sex == 'Female'"."""
        one = condition_of(condition)
        return self._part(one if self._where is None else self._where & one, self._by)

    def group_by(self, *columns: str) -> Self:
        """In every combination of these columns' categories."""
        if not columns or not all(isinstance(name, str) for name in columns):
            raise QueryError(f"Expected names of columns to group by, got {columns!r}.")
        return self._part(self._where, (*self._by, *columns))

    def count(self, **price: Any) -> Answer:
        """How many records."""
        return self.ask(Count(where=self._where, by=self._by), **price)

    def sum(self, column: str, **price: Any) -> Answer:
        """The sum of a column of numbers."""
        return self.ask(Total(column=column, where=self._where, by=self._by), **price)

    def mean(self, column: str, **price: Any) -> Answer:
        """The mean of a column of numbers."""
        return self.ask(Mean(column=column, where=self._where, by=self._by), **price)

    def variance(self, column: str, **price: Any) -> Answer:
        """The variance of a column of numbers: of n records, not n − 1."""
        return self.ask(Variance(column=column, where=self._where, by=self._by), **price)

    def histogram(
        self, column: str, *, bins: int = 0, edges: Sequence[float] = (), **price: Any
    ) -> Answer:
        """How many records have each category, or lie in each interval of a number."""
        if isinstance(bins, bool) or not isinstance(bins, int) or bins < 0:
            raise QueryError(f"Expected bins, a whole number ≥ 1, got {bins!r}.")
        query = Histogram(
            column=column,
            bins=bins,
            edges=tuple(float(edge) for edge in edges),
            where=self._where,
            by=self._by,
        )
        return self.ask(query, **price)

    def marginals(self, columns: Sequence[str], *, ways: int = 2, **price: Any) -> Answer:
        """Tables of counts of every `ways` of several columns, which agree with each other."""
        query = Marginals(of=_names(columns), ways=ways, where=self._where, by=self._by)
        return self.ask(query, **price)

    def quantiles(
        self, column: str, quantiles: Sequence[float], *, step: float = 0.0, **price: Any
    ) -> Answer:
        """Values below which these shares of the records lie, on a grid of `step`."""
        query = Quantiles(
            column=column,
            quantiles=tuple(float(q) for q in quantiles),
            step=float(step),
            where=self._where,
            by=self._by,
        )
        return self.ask(query, **price)

    def median(self, column: str, *, step: float = 0.0, **price: Any) -> Answer:
        """The value below which half of the records lie."""
        return self.quantiles(column, [0.5], step=step, **price)

    def choose(self, column: str, **price: Any) -> Answer:
        """The category that most records have."""
        return self.ask(Choose(column=column, where=self._where, by=self._by), **price)

    def response(self, column: str, **price: Any) -> Answer:
        """How many records have each category, by randomised response: each answers for itself.

        `epsilon` is that of one record's report, whoever sees it: the server, all other parties.
        Asked again they draw other coins, at another charge.
        """
        return self.ask(Response(column=column, where=self._where, by=self._by), **price)

    def choose_best(self, columns: Sequence[str], *, least: bool = False, **price: Any) -> Answer:
        """Which of these columns of scores in [0, 1] has the largest (or least) sum.

        With `law="permute-and-flip"` or "exponential" a trusted server of a simulation chooses by
        the exact sums; else the winner is read off noisy sums, which nobody need see bare.
        """
        return self.ask(
            ChooseBest(of=_names(columns), least=least, where=self._where, by=self._by), **price
        )

    def kmeans(
        self, columns: Sequence[str], clusters: int, *, grid: int = 32, **price: Any
    ) -> Answer:
        """Centres of so many clusters, from one histogram of at most three columns."""
        query = KMeansGrid(
            of=_names(columns), clusters=clusters, grid=grid, where=self._where, by=self._by
        )
        return self.ask(query, **price)

    def min(self, column: str, **_: Any) -> NoReturn:
        """Refused, with what to ask instead."""
        raise QueryError(
            f"min and max are not offered: one record of {column!r} moves them over the whole "
            "range. quantiles(.01, .99) are near them."
        )

    max = min


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


def _names(columns: Sequence[str]) -> tuple[str, ...]:
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
        raise QueryError(f"Expected a list of columns' names, got {columns!r:.80}.")
    return tuple(columns)
