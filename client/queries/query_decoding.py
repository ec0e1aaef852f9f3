"""Strict decoding of a query from JSON values.

>>> decode_query({"query": "count", "by": ["sex"], "where": None})
Count(where=None, by=('sex',))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parley.client.contract.strict_decoding import DecodingError, decode_dataclass, format_received
from parley.client.queries.base import Query, QueryError
from parley.client.queries.filters.parser import decode_where
from parley.client.queries.registry import QUERIES
from parley.safe_io.error_translation import translate_errors


def decode_query(value: Any) -> Query:
    """Return the query that `Query.to_json` wrote, from a peer or a file.

    Raises:
        DecodingError: a key is missing or unknown, or a value does not fit.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("query"), str):
        got = format_received(value)
        raise DecodingError(f"Expected a query by its name, got {got} without one.")
    kind = QUERIES.get(value["query"])
    if kind is None:
        got = format_received(value["query"])
        raise DecodingError(f"Expected a query of {', '.join(QUERIES)}, got {got}.")
    if "where" not in value:
        raise DecodingError("Expected where, or null, in a query, got neither.")
    rest = dict(value)
    del rest["query"]
    conditions = rest.pop("where")
    where = None if conditions is None else decode_where(conditions)
    query: Query = decode_dataclass(kind, rest, where=where)
    return query


def check_decodable(query: Query) -> None:
    """Check that parties and a resumed session can read the query. Run this before any charge.

    Raises:
        QueryError: a value does not fit, for example a list that is too long.
    """
    remedy = "Use fewer values, or several queries."
    with translate_errors(DecodingError, lambda text: QueryError(f"{text} {remedy}")):
        decode_query(query.to_json())
