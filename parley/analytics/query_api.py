"""Define the queries of a session, of a subset of its records, and of a batch.

A batch (`SessionBatch`) releases several queries together.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn, Self

from parley.analytics.answer import Answer, format_title
from parley.client.data.schema import Schema
from parley.client.queries.base import Query, QueryError
from parley.client.queries.correlations import CorrelationsQuery
from parley.client.queries.count_queries import Count, Histogram, MarginalsQuery
from parley.client.queries.filters.expressions import Expression
from parley.client.queries.filters.parser import parse_where
from parley.client.queries.kmeans import KMeansGrid
from parley.client.queries.mode_query import Mode
from parley.client.queries.moments import Mean, Variance
from parley.client.queries.quantiles import Quantiles
from parley.client.queries.randomised_response import ResponseQuery
from parley.client.queries.regression.regression_query import RegressionQuery
from parley.client.queries.selection_queries import ChooseBest
from parley.client.queries.sum_queries import ColumnSum
from parley.client.queries.survival import Survival
from parley.privacy.accounting.rounding import format_exact, to_fraction
from parley.privacy.ledger.budget import DatasetBudget
from parley.safe_io.plurals import format_noun
from parley.server.planning.query_planner import PlannedBatch
from parley.server.planning.session_terms import SessionTerms


class QueryMethods(ABC):
    """Queries by name. Each takes its price: `epsilon`, or a `share` in a batch.

    `by="party"` asks for an answer per party, if every party's policy allows it.
    """

    _where: Expression | None = None
    _by: tuple[str, ...] = ()

    @abstractmethod
    def ask(self, query: Query, **price: Any) -> Answer:
        """Ask a query object."""

    def _select_subset(self, where: Expression | None, by: tuple[str, ...]) -> QueryMethods:
        """Return the same queries for some records and in groups."""
        return RecordSubset(self, where, by)

    def _ask_kind(self, kind: Callable[..., Query], price: dict[str, Any], **own: Any) -> Answer:
        return self.ask(kind(where=self._where, by=self._by, **own), **price)

    def where(self, condition: Expression | str) -> QueryMethods:
        """Select records: `col.age > 60`, or "age > 60 and sex == 'Female'"."""
        one = parse_condition(condition)
        return self._select_subset(one if self._where is None else self._where & one, self._by)

    def group_by(self, *columns: str) -> QueryMethods:
        """Group the answers by each combination of these columns' categories."""
        if not columns or not all(isinstance(name, str) for name in columns):
            raise QueryError(f"Expected column names to group by, got {columns!r}.")
        return self._select_subset(self._where, (*self._by, *columns))

    def count(self, **price: Any) -> Answer:
        """Count the records."""
        return self._ask_kind(Count, price)

    def sum(self, column: str, **price: Any) -> Answer:
        """Sum a numeric column."""
        return self._ask_kind(ColumnSum, price, column=column)

    def mean(self, column: str, **price: Any) -> Answer:
        """Compute the mean of a numeric column."""
        return self._ask_kind(Mean, price, column=column)

    def variance(self, column: str, **price: Any) -> Answer:
        """Compute the variance of a numeric column, with divisor n, not n − 1."""
        return self._ask_kind(Variance, price, column=column)

    def histogram(
        self, column: str, *, bins: int = 0, edges: Sequence[float] = (), **price: Any
    ) -> Answer:
        """Count the records per category, or per interval of a numeric column."""
        if type(bins) is not int or bins < 0:
            raise QueryError(f"Expected bins, a whole number ≥ 1, got {bins!r}.")
        ends = tuple(float(edge) for edge in edges)
        return self._ask_kind(Histogram, price, column=column, bins=bins, edges=ends)

    def marginals(self, columns: Sequence[str], *, ways: int = 2, **price: Any) -> Answer:
        """Count the records in the contingency table of each `ways` of the columns,
        consistently.
        """
        return self._ask_kind(MarginalsQuery, price, of=_check_names(columns), ways=ways)

    def quantiles(
        self, column: str, quantiles: Sequence[float], *, step: float = 0.0, **price: Any
    ) -> Answer:
        """Estimate the values below which these shares of the records are, on a grid of `step`."""
        own = {"quantiles": tuple(float(q) for q in quantiles), "step": float(step)}
        return self._ask_kind(Quantiles, price, column=column, **own)

    def median(self, column: str, *, step: float = 0.0, **price: Any) -> Answer:
        """Estimate the value below which half of the records are."""
        return self.quantiles(column, [0.5], step=step, **price)

    def survival(
        self,
        column: str,
        event: str,
        *,
        bins: int = 0,
        edges: Sequence[float] = (),
        end: float = 0.0,
        occurred: str = "",
        **price: Any,
    ) -> Answer:
        """Estimate the Kaplan–Meier curve of the time in `column`, and what follows from its
        counts.
        """
        ends = tuple(float(edge) for edge in edges)
        own = {"column": column, "event": event, "occurred": occurred}
        return self._ask_kind(Survival, price, **own, bins=bins, edges=ends, end=float(end))

    def regression(
        self,
        column: str,
        of: Sequence[str],
        family: str,
        *,
        edges: Sequence[float] = (),
        **price: Any,
    ) -> Answer:
        """Estimate odds, rate or hazard ratios of covariates, in a few steps: see
        `RegressionQuery`.

        Args:
            column: The outcome, or the time if the family is hazards.
            family: logistic, poisson, negative-binomial or hazards.
            price: epsilon; and event, occurred, bins, end, exposure, cap or dispersion.
        """
        names = ("event", "occurred", "bins", "end", "exposure", "cap", "dispersion")
        own = {name: price.pop(name) for name in names if name in price}
        ends = tuple(float(edge) for edge in edges)
        own |= {"column": column, "of": _check_names(of), "family": family, "edges": ends}
        return self._ask_kind(RegressionQuery, price, **own)

    def correlations(
        self, columns: Sequence[str], *, regressions: Sequence[str] = (), **price: Any
    ) -> Answer:
        """Estimate the correlation of every two columns, and regressions such as "cost ~ age +
        sex".
        """
        own = {"of": _check_names(columns), "regressions": _check_names(regressions)}
        return self._ask_kind(CorrelationsQuery, price, **own)

    def choose(self, column: str, **price: Any) -> Answer:
        """Choose the category with the most records."""
        return self._ask_kind(Mode, price, column=column)

    def response(self, column: str, **price: Any) -> Answer:
        """Count the records per category by randomised response: each record reports for itself.

        `epsilon` protects one record's report from all who see it: the server and all other
        parties. A repeated query draws new coins and is charged again.
        """
        return self._ask_kind(ResponseQuery, price, column=column)

    def choose_best(self, columns: Sequence[str], *, least: bool = False, **price: Any) -> Answer:
        """Choose the column, of scores in [0, 1], with the largest (or least) sum.

        With `law="permute-and-flip"` or "exponential", a simulation's trusted server chooses by the
        exact sums. Otherwise the winner is read off noisy sums, so no exact sum needs to be seen.
        """
        return self._ask_kind(ChooseBest, price, of=_check_names(columns), least=least)

    def kmeans(
        self, columns: Sequence[str], clusters: int, *, grid: int = 32, **price: Any
    ) -> Answer:
        """Estimate the centres of `clusters` clusters, from one histogram of at most three
        columns.
        """
        own = {"of": _check_names(columns), "clusters": clusters, "grid": grid}
        return self._ask_kind(KMeansGrid, price, **own)

    def min(self, column: str, **_: Any) -> NoReturn:
        """Refuse the query and name an alternative."""
        raise QueryError(
            f"min and max are not available: one record of {column!r} can move them over the whole "
            "range. Use quantiles at 0.01 and 0.99 instead."
        )

    max = min


class RecordSubset(QueryMethods):
    """Queries on some records of a session or batch, or in groups."""

    def __init__(self, parent: QueryMethods, where: Expression | None, by: tuple[str, ...]) -> None:
        self._parent, self._where, self._by = parent, where, by

    def ask(self, query: Query, **price: Any) -> Any:
        """See `Session.ask`."""
        return self._parent.ask(query, **price)

    def _select_subset(self, where: Expression | None, by: tuple[str, ...]) -> QueryMethods:
        return RecordSubset(self._parent, where, by)


class ReleaseSession(QueryMethods):
    """The interface of a session for queries with several releases and for batches."""

    @property
    @abstractmethod
    def terms(self) -> SessionTerms:
        """Public terms, fixed for all queries."""

    @property
    def schema(self) -> Schema:
        """Schema of all parties."""
        return self.terms.facts.schema

    @property
    @abstractmethod
    def remaining(self) -> float:
        """ε that is left of the budget."""

    @abstractmethod
    def plan(self, queries: Sequence[Query], *, epsilon: float, **how: Any) -> PlannedBatch:
        """Plan a batch's release, without asking a party or charging the budget."""

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
        """Release queries together, in one sum for one price."""


def is_by_party(by: str | None) -> bool:
    """Return whether `by` asks for an answer per party.

    Raises:
        QueryError: `by` is something else.
    """
    if by not in (None, "party"):
        raise QueryError(
            f'Expected by="party" or nothing, got {by!r:.80}. To group by columns, use '
            "group_by(column)."
        )
    return by is not None


def parse_condition(condition: Expression | str) -> Expression:
    """Return a condition, parsed if it is text.

    Raises:
        QueryError, WhereError: it is neither a condition nor valid text.
    """
    one = parse_where(condition) if isinstance(condition, str) else condition
    if not isinstance(one, Expression):
        raise QueryError(
            "Expected a condition, such as col.age > 60 or 'age > 60', got "
            f"{type(condition).__name__}."
        )
    return one


def check_epsilon(epsilon: Any) -> None:
    """Raise QueryError unless the price is a finite number above 0."""
    number = isinstance(epsilon, int | float) and not isinstance(epsilon, bool)
    if not number or not 0 < epsilon < math.inf:
        raise QueryError(f"Expected epsilon, a number > 0, got {epsilon!r}.")


def check_left(price: Fraction, left: float, releases: str) -> None:
    """Raise QueryError if several releases together cost more than is left of the budget."""
    if price > to_fraction(left):
        raise QueryError(
            f"Expected at most {format_exact(left)}, which is left of the budget, got ε = "
            f"{format_exact(float(price))} for {releases}."
        )


def parse_optional_condition(condition: Expression | str | None) -> Expression | None:
    """Return a condition, parsed if it is text, or None."""
    return None if condition is None else parse_condition(condition)


def _check_names(columns: Sequence[str]) -> tuple[str, ...]:
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
        raise QueryError(f"Expected a list of column names, got {columns!r:.80}.")
    return tuple(columns)


@dataclass(kw_only=True)
class _PendingAnswer:
    """The answer to a query of a batch, which is available at the end of the batch."""

    query: Query
    share: float
    by_party: bool
    answer: Answer | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.answer is None:
            raise QueryError(
                f"{format_title(self.query)} has no answer yet: a batch releases its queries "
                "together at the end of `with`."
            )
        return getattr(self.answer, name)

    def __str__(self) -> str:
        waiting = f"{format_title(self.query)}: not asked yet"
        return waiting if self.answer is None else str(self.answer)


class SessionBatch(QueryMethods):
    """Queries that are released together at the end of a `with` block. After an error none is."""

    def __init__(self, session: ReleaseSession, *, epsilon: float, law: str | None) -> None:
        self._session, self._epsilon, self._law = session, epsilon, law
        self._asked: list[_PendingAnswer] = []
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._over = True
        if kind is None:
            answers = self._session.release(self._queries, **self._price)
            for each, answer in zip(self._asked, answers, strict=True):
                each.answer = answer

    @property
    def pending(self) -> int:
        """Number of queries that are not asked unless the `with` block ends."""
        return 0 if self._over else len(self._asked)

    @property
    def _queries(self) -> list[Query]:
        return [each.query for each in self._asked]

    @property
    def _price(self) -> dict[str, Any]:
        """Price of the batch, its noise distribution and its shares."""
        found = {each.by_party for each in self._asked}
        if len(found) > 1:
            raise QueryError(
                "Expected all queries of a batch by party, or none, got some: they share one sum."
            )
        return {
            "epsilon": self._epsilon,
            "law": self._law,
            "shares": [each.share for each in self._asked] or None,
            "by_party": found == {True},
        }

    def ask(self, query: Query, *, share: float = 1.0, by: str | None = None, **price: Any) -> Any:
        """Add a query; `share` is its part of the budget, relative to the others' shares."""
        if self._over:
            raise QueryError("Expected an open batch, got one that has ended.")
        if price:
            raise QueryError(
                f"Expected only a share with a query of a batch, got {', '.join(price)}. The batch "
                "has the price."
            )
        if isinstance(share, bool) or not isinstance(share, int | float) or not share > 0:
            raise QueryError(f"Expected a share > 0, got {share!r}.")
        later = _PendingAnswer(query=query, share=float(share), by_party=is_by_party(by))
        self._asked.append(later)
        return later

    def build_plan(self) -> PlannedBatch:
        """Plan the release of the queries so far."""
        return self._session.plan(self._queries, **self._price)

    def plan(self) -> str:
        """Return the expected error of each query as text, without spending anything."""
        terms, epsilon = self._session.terms, self._epsilon
        return format_plan(self.build_plan(), self._queries, terms=terms, epsilon=epsilon)


def _format_own_error(error: float, nearer: float) -> str:
    return f" ({error / nearer:.4g} from only its own cells)" if 0 < nearer < 1 else ""


def format_plan(
    planned: PlannedBatch, queries: Sequence[Query], *, terms: SessionTerms, epsilon: float
) -> str:
    """Describe a planned release in words."""
    plan = planned.plan
    scale = planned.compute_scale()
    nearer = planned.compute_error_ratios(terms.facts)
    errors = planned.compute_errors(terms.facts)
    # The tuned queries request no count that is public.
    cells = [query.count_cells(terms.facts.schema) for query in planned.batch.queries]
    each = zip(queries, cells, errors, nearer, planned.batch.weights, strict=True)
    lines = [
        f"{format_title(query)}: {count:,} {format_noun(count, 'cell')}, expected error "
        f"{error:.4g}{_format_own_error(error, factor)}, noise scale "
        f"{scale * factor / query.get_steps_per_unit(weight):.6g}"
        for query, count, error, factor, weight in each
    ]
    if min(nearer) < 1:
        all_records = any(query.where is None for query in planned.batch.queries)
        public = terms.facts.records is not None and all_records
        known = " and with the public number of records" if public else ""
        lines.append(
            f"counts of the same records are adjusted to agree with each other{known}; this lowers "
            "their errors, and the budget is divided accordingly"
        )
    if planned.replacement is not None and planned.replacement.trusted:
        lines.append(f"only in a simulation: with real parties {planned.replacement.refusal}")
    lines.append(
        f"together: one secure sum of {plan.dimension:,} integers in a ring of "
        f"{plan.encoding.ring_bits} bits; {planned.law}; costs ε = {format_exact(epsilon)} at δ = "
        f"{format_exact(terms.delta)} ({plan.primary.unit}, {plan.primary.neighbouring}); nothing "
        "was charged"
    )
    if planned.assumptions:
        lines.append(f"assuming: {'; '.join(planned.assumptions)}")
    if shares := queries[0].step_shares:
        parts = ", ".join(f"{share} %" for share in shares)
        lines.append(f"in {len(shares)} steps, each with such a sum and {parts} of the budget")
    return "\n".join(lines)
