"""Queries: statistics that become integer vectors, one file and one row of `QUERIES` each.

>>> query_from({"query": "count", "by": ["sex"], "where": None})
Count(where=None, by=('sex',))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parley.client.contract.strict_decoding import DecodingError, as_came, facts_from
from parley.client.queries.base import Query
from parley.client.queries.correlations import Correlations
from parley.client.queries.count_queries import Choose, Count, Histogram, Marginals
from parley.client.queries.filters import where_from
from parley.client.queries.kmeans import KMeansGrid, KMeansStep
from parley.client.queries.moments import Mean, Variance
from parley.client.queries.quantiles import Quantiles
from parley.client.queries.randomised_response import Response
from parley.client.queries.regression.regression_query import Regression
from parley.client.queries.sums import Balance, ChooseBest, Total
from parley.client.queries.survival import Survival

QUERIES: dict[str, type[Query]] = {
    each.kind: each
    for each in (
        *(Count, Histogram, Total, Mean, Variance, Quantiles),
        *(Marginals, Choose, ChooseBest, Response, KMeansGrid, KMeansStep, Balance),
        *(Survival, Regression, Correlations),
    )
}
"""Name → the query."""


def query_from(value: Any) -> Query:
    """The query that `Query.to_json` wrote, from a peer or a file: every key, and no other."""
    if not isinstance(value, Mapping) or not isinstance(value.get("query"), str):
        raise DecodingError(f"Expected a query by its name, got {as_came(value)} without one.")
    kind = QUERIES.get(value["query"])
    if kind is None:
        raise DecodingError(
            f"Expected a query of {', '.join(QUERIES)}, got {as_came(value['query'])}."
        )
    if "where" not in value:
        raise DecodingError("Expected where, or null, in a query, got neither.")
    where = None if value["where"] is None else where_from(value["where"])
    rest = dict(value)
    del rest["query"], rest["where"]
    return facts_from(kind, rest, where=where)
