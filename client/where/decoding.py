"""A condition out of JSON that a peer sent: exactly the keys and types that `to_json` writes."""

from __future__ import annotations

from collections.abc import Mapping

from parley.client.contract.decoding import LONGEST_TEXT, DecodingError
from parley.client.where.expressions import (
    DEEPEST,
    MOST_NODES,
    SIGNS,
    Expression,
    Joined,
    Leaf,
    WhereError,
    among,
    constant_of,
    limited,
    negated,
)


def where_from(value: object) -> Expression:
    """The condition in plain JSON values, whose keys and types are exactly those of `to_json`."""
    try:
        return limited(_decoded(value, DEEPEST))
    except WhereError as error:
        raise DecodingError(f"where: {error}") from None


def _decoded(value: object, levels: int) -> Expression:
    if levels < 1:
        raise WhereError(f"Expected a condition of at most {DEEPEST} levels, got more.")
    if not isinstance(value, Mapping):
        raise WhereError(f"Expected a condition as an object, got {type(value).__name__}.")
    keys = set(value)
    if keys == {"not"}:
        return negated(_decoded(value["not"], levels - 1))
    if keys in ({"and"}, {"or"}):
        (word,) = keys
        parts = value[word]
        if not isinstance(parts, list) or not 2 <= len(parts) <= MOST_NODES:
            raise WhereError(f"Expected a list of 2 to {MOST_NODES} conditions under {word}.")
        return Joined(word, tuple(_decoded(part, levels - 1) for part in parts))
    column, sign = value.get("column"), value.get("is")
    if not isinstance(column, str) or len(column) > LONGEST_TEXT or not isinstance(sign, str):
        raise WhereError("Expected and, or, not, or a column and what it is.")
    if keys == {"column", "is"} and sign == "null":
        return Leaf(column, "null")
    if keys == {"column", "is", "values"} and sign == "in":
        values = value["values"]
        if not isinstance(values, list) or len(values) > MOST_NODES:
            raise WhereError(f"Expected a list of at most {MOST_NODES} constants under values.")
        return among(column, tuple(constant_of(v, place="in a condition") for v in values))
    if keys == {"column", "is", "value"} and sign in SIGNS:
        return Leaf(column, sign, (constant_of(value["value"], place="in a condition"),))
    raise WhereError("Expected and, or, not, or a column and what it is, got other keys.")
