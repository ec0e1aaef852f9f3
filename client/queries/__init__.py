"""Queries: statistics that become integer vectors, one file and one row of `QUERIES` each.

>>> decode_query({"query": "count", "by": ["sex"], "where": None})
Count(where=None, by=('sex',))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parley.client.contract.strict_decoding import DecodingError, decode_dataclass, format_received
from parley.client.queries.base import Query
from parley.client.queries.correlations import CorrelationsQuery
from parley.client.queries.count_queries import Choose, Count, Histogram, MarginalsQuery
from parley.client.queries.filters import decode_where
from parley.client.queries.kmeans import KMeansGrid, KMeansStep
from parley.client.queries.moments import Mean, Variance
from parley.client.queries.quantiles import Quantiles
from parley.client.queries.randomised_response import ResponseQuery
from parley.client.queries.regression.regression_query import RegressionQuery
from parley.client.queries.sums import Balance, ChooseBest, ColumnSum
from parley.client.queries.survival import Survival

QUERIES: dict[str, type[Query]] = {
    each.kind: each
    for each in (
        *(Count, Histogram, ColumnSum, Mean, Variance, Quantiles),
        *(MarginalsQuery, Choose, ChooseBest, ResponseQuery, KMeansGrid, KMeansStep, Balance),
        *(Survival, RegressionQuery, CorrelationsQuery),
    )
}
"""Name → the query."""


def decode_query(value: Any) -> Query:
    """The query that `Query.to_json` wrote, from a peer or a file: every key, and no other."""
    if not isinstance(value, Mapping) or not isinstance(value.get("query"), str):
        raise DecodingError(
            f"Expected a query by its name, got {format_received(value)} without one."
        )
    kind = QUERIES.get(value["query"])
    if kind is None:
        raise DecodingError(
            f"Expected a query of {', '.join(QUERIES)}, got {format_received(value['query'])}."
        )
    if "where" not in value:
        raise DecodingError("Expected where, or null, in a query, got neither.")
    where = None if value["where"] is None else decode_where(value["where"])
    rest = dict(value)
    del rest["query"], rest["where"]
    return decode_dataclass(kind, rest, where=where)
