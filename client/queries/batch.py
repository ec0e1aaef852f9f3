"""A batch: several queries in one vector, under one noise, charged as one release.

Query q is multiplied by an integer a_q before it joins the others, so that its share of the budget
is its own to choose: Δ₁ = Σ a_q·Δ₁q and Δ₂² = Σ (a_q·Δ₂q)², exactly, and its own noise has scale
b/a_q or σ/a_q. A batch of one query is the ordinary case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from parley.client.contract.decoding import DecodingError, as_came, value_from
from parley.client.data.schema import Schema
from parley.client.data.table_block import TableBlock
from parley.client.queries import query_from
from parley.client.queries.base import LARGEST_WEIGHT, Integers, Norms, Query, QueryError
from parley.client.queries.histogram import MOST_CELLS
from parley.privacy.accounting.guarantee import Neighbouring

MOST_QUERIES = 64
_LARGEST_PRIVATE = 2**31
"""Of an entry, where nothing says how many records a party has: fewer than 2³² add up to less
than 2⁶³, before the sum is cut to the plan's bound. If it wrapped around, all of it would move."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """At least one query, and at most `MOST_QUERIES`, each with its weight a_q."""

    queries: tuple[Query, ...]
    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.queries) <= MOST_QUERIES:
            raise QueryError(
                f"Expected 1 to {MOST_QUERIES} queries in a batch, got {len(self.queries)}."
            )
        if len(self.weights) != len(self.queries):
            raise QueryError(
                f"Expected a weight for each of {len(self.queries)} queries, got "
                f"{len(self.weights)}."
            )
        if not all(1 <= weight <= LARGEST_WEIGHT for weight in self.weights):
            raise QueryError(f"Expected weights from 1 to 2^40, got {self.weights}.")
        if self.reports is not None and (len(self.queries) > 1 or self.weights != (1,)):
            raise QueryError("Expected records' own reports alone, of weight 1, got a batch.")

    @property
    def reports(self) -> Query | None:
        """The query whose records answer for themselves: it is alone."""
        return next((query for query in self.queries if query.reports), None)

    @property
    def columns(self) -> frozenset[str]:
        """Every column that it reads."""
        return frozenset[str]().union(*(query.columns for query in self.queries))

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Raises QueryError or SchemaError where a query cannot be asked of such a table."""
        for query in self.queries:
            query.check(schema, neighbouring)
        check_cells(self.queries, schema)

    def slices(self, schema: Schema) -> tuple[slice, ...]:
        """Where each query's vector lies in the batch's."""
        ends = np.cumsum([0, *(query.cells(schema) for query in self.queries)]).tolist()
        return tuple(slice(begin, end) for begin, end in pairwise(ends))

    def cells(self, schema: Schema) -> int:
        """d."""
        return sum(query.cells(schema) for query in self.queries)

    def norms(self, schema: Schema, neighbouring: Neighbouring) -> Norms:
        """Of the whole vector: a record that moves may move every query."""
        each = [
            query.norms(schema, neighbouring, weight)
            for query, weight in zip(self.queries, self.weights, strict=True)
        ]
        largest = max(one.largest for one in each)
        if neighbouring is Neighbouring.ADD_OR_REMOVE_ONE and largest > _LARGEST_PRIVATE:
            raise QueryError(
                f"Expected entries of at most 2^31 where a party's size is private, got {largest}: "
                "more equal shares of the budget help."
            )
        return Norms(
            l1=sum(one.l1 for one in each),
            l2_squared=sum(one.l2_squared for one in each),
            largest=largest,
        )

    def vectors(self, block: TableBlock) -> Iterator[Integers]:
        """`[d]` for every party in turn."""
        parts = [
            query.vectors(block, weight)
            for query, weight in zip(self.queries, self.weights, strict=True)
        ]
        for pieces in zip(*parts, strict=True):
            yield pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def to_json(self) -> list[dict[str, Any]]:
        """Plain values that travel: every query with its weight."""
        return [
            {**query.to_json(), "weight": weight}
            for query, weight in zip(self.queries, self.weights, strict=True)
        ]


def check_cells(queries: Sequence[Query], schema: Schema) -> None:
    """Refuses more cells than any vector may have; nothing of that size is made to see it."""
    cells = sum(query.cells(schema) for query in queries)
    if cells > MOST_CELLS:
        raise QueryError(f"Expected at most {MOST_CELLS:,} cells in a sum, got {cells:,}.")


def batch_from(value: Any) -> Batch:
    """The inverse of `Batch.to_json`, for what a peer sent."""
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_QUERIES:
        raise DecodingError(
            f"Expected a list of 1 to {MOST_QUERIES} queries, got {as_came(value)}."
        )
    queries, weights = [], []
    for each in value:
        if not isinstance(each, Mapping) or "weight" not in each:
            raise DecodingError(
                f"Expected a query with its weight, got {as_came(each)} without one."
            )
        weights.append(value_from(int, each["weight"], "weight"))
        queries.append(query_from({key: part for key, part in each.items() if key != "weight"}))
    try:
        return Batch(queries=tuple(queries), weights=tuple(weights))
    except QueryError as error:
        raise DecodingError(str(error)) from error
