"""A batch: queries that are released together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from parley.analytics.answer import Answer, title
from parley.analytics.asking import Asking, Whole, by_party
from parley.client.queries.base import Query, QueryError
from parley.privacy.accounting.rounding import as_written
from parley.server.planning.queries import PlannedBatch
from parley.server.planning.query_terms import Terms


@dataclass(kw_only=True)
class _Later:
    """A query of a batch that is still open."""

    query: Query
    share: float
    by_party: bool
    answer: Answer | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.answer is None:
            raise QueryError(
                f"Expected the batch to be over before {title(self.query)} is answered: its "
                "queries are released together at the end of `with`."
            )
        return getattr(self.answer, name)

    def __str__(self) -> str:
        return f"{title(self.query)}: not asked yet" if self.answer is None else str(self.answer)


class Batch(Asking):
    """Queries that are released together where `with` ends; nothing if that is by an error."""

    def __init__(self, session: Whole, *, epsilon: float, law: str | None) -> None:
        self._session, self._epsilon, self._law = session, epsilon, law
        self._asked: list[_Later] = []
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
    def waiting(self) -> int:
        """Queries that will not be asked unless it is left."""
        return 0 if self._over else len(self._asked)

    @property
    def _queries(self) -> list[Query]:
        return [each.query for each in self._asked]

    @property
    def _price(self) -> dict[str, Any]:
        """What all of it costs, and how the noise is drawn and shared out."""
        found = {each.by_party for each in self._asked}
        if len(found) > 1:
            raise QueryError(
                "Expected all queries of a batch by party, or none, got some: they share a sum."
            )
        return {
            "epsilon": self._epsilon,
            "law": self._law,
            "shares": [each.share for each in self._asked] or None,
            "by_party": found == {True},
        }

    def ask(self, query: Query, *, share: float = 1.0, by: str | None = None, **price: Any) -> Any:
        """Adds a query; `share` is its part of the budget, beside the others'."""
        if self._over:
            raise QueryError("Expected an open batch, this one is over.")
        if price:
            raise QueryError(
                f"Expected a share with a query of a batch, got {', '.join(price)}: the batch has "
                "the price."
            )
        if isinstance(share, bool) or not isinstance(share, int | float) or not share > 0:
            raise QueryError(f"Expected a share > 0, got {share!r}.")
        later = _Later(query=query, share=float(share), by_party=by_party(by))
        self._asked.append(later)
        return later

    def planned(self) -> PlannedBatch:
        """What would be released by what was asked so far."""
        return self._session.plan(self._queries, **self._price)

    def plan(self) -> str:
        """The expected error of each query, before anything is spent."""
        return plan_text(
            self.planned(), self._queries, terms=self._session.terms, epsilon=self._epsilon
        )


def plan_text(
    planned: PlannedBatch, queries: Sequence[Query], *, terms: Terms, epsilon: float
) -> str:
    """A planned release in words."""
    plan, scale = planned.plan, planned.scale()
    errors = planned.errors(terms.facts)
    lines = [
        f"{title(query)}: {query.cells(terms.facts.schema):,} cells, expected error "
        f"{error:.4g}, noise scale {scale / weight:.6g}"
        for query, error, weight in zip(queries, errors, planned.batch.weights, strict=True)
    ]
    if planned.instead is not None and planned.instead.trusted:
        lines.append(f"of a simulation alone: with real parties {planned.instead.refusal}")
    lines.append(
        f"together: one secure sum of {plan.dimension:,} integers in a ring of "
        f"{plan.encoding.ring_bits} bits; {planned.law}; costs ε = {as_written(epsilon)} at δ = "
        f"{as_written(terms.delta)} ({plan.primary.unit}, {plan.primary.neighbouring}); nothing "
        "was charged"
    )
    return "\n".join(lines)
