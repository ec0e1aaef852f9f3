"""Translate SQL on one table of records to queries: `parley query "SELECT …"` (extra
`parley[sql]`).

    SELECT sex, COUNT(*), AVG(age), QUANTILE(stay, 0.9) FROM ward WHERE age > 60 GROUP BY sex

It supports COUNT(*), SUM, AVG, VARIANCE, MEDIAN and QUANTILE of a column, and CORR of two, with a
condition (`parley.client.queries.filters`) and in groups. All of them are one batch: one secure
sum, one price. Everything else is refused by its name. As in SQL, an empty category is neither
equal nor unequal to any value. A column name that is not a plain word needs double quotes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from parley.analytics.answer import Answer
from parley.client.data.query_party_block import MISSING, CategoryField, get_field
from parley.client.data.schema import Schema
from parley.client.queries.base import Query, QueryError, get_answer_key, get_range
from parley.client.queries.correlations import CorrelationsQuery
from parley.client.queries.count_queries import Count
from parley.client.queries.filters.expressions import Expression, col
from parley.client.queries.moments import Mean, Variance
from parley.client.queries.quantiles import Quantiles
from parley.client.queries.sum_queries import ColumnSum

_MAX_LENGTH = 4096
_OFFERED = "COUNT(*), SUM, AVG, VARIANCE, MEDIAN or QUANTILE of a column, CORR of two"


@dataclass(frozen=True, kw_only=True)
class SelectStatement:
    """A parsed SELECT.

    Attributes:
        names: Column name in the result, for each query.
    """

    table: str
    names: tuple[str, ...]
    queries: tuple[Query, ...]


def parse_sql(text: str, schema: Schema) -> SelectStatement:
    """Return the queries of one SELECT.

    Raises:
        QueryError: the statement is not supported: what was expected and what was found.
        WhereError, SchemaError: a condition that does not fit the schema.
    """
    select = _parse_select(text)
    allowed = {"expressions", "from_", "from", "where", "group", "kind"}
    more = [key for key, value in select.args.items() if value and key not in allowed]
    if more:
        raise QueryError(
            "Expected only aggregates, one table, WHERE and GROUP BY in a statement, got "
            f"{', '.join(key.upper().strip('_') for key in more)}."
        )
    group = select.args.get("group")
    by = tuple(_parse_column(each) for each in group.expressions) if group else ()
    where = None
    if select.args.get("where"):
        where = _build_condition(select.args["where"].this, schema, negated=False)
        where.check(schema)
    names, queries = list[str](), list[Query]()
    for item in select.expressions:
        made = _build_query(item.unalias(), where, by)
        if made is not None:
            for column in getattr(made, "of", ()):
                get_range(schema, column)  # a column of categories would have a row per category
            names.append(item.alias or item.sql())
            queries.append(made)
    if not queries:
        raise QueryError(f"Expected {_OFFERED} after SELECT, got only columns.")
    if len(set(names)) < len(names):
        raise QueryError(
            f"Expected distinct names in the result, got {', '.join(names)}. Rename them with AS."
        )
    return SelectStatement(table=_parse_table(select), names=tuple(names), queries=tuple(queries))


def build_frame(statement: SelectStatement, answers: list[Answer]) -> pl.DataFrame:
    """Return one table as SQL would: groups, then each result with the ends of its interval."""
    columns = {n: np.asarray(answers[0].table[get_answer_key(n)]) for n in statement.queries[0].by}
    for name, answer in zip(statement.names, answers, strict=True):
        for part, suffix in (("value", ""), ("low", " low"), ("high", " high")):
            columns[name + suffix] = np.asarray(answer.table[part], dtype=np.float64)
    return pl.DataFrame(columns)


def _parse_select(text: str) -> Any:
    try:
        import sqlglot  # noqa: PLC0415 - start-up: an extra; `query` of a file needs no SQL (0.1 s)
    except ModuleNotFoundError as error:
        raise QueryError(
            "SQL needs the extra parley[sql], which is not installed. Install it with: pip install "
            '"parley[sql]"'
        ) from error
    if len(text) > _MAX_LENGTH:
        raise QueryError(f"Expected SQL of at most {_MAX_LENGTH} characters, got {len(text)}.")
    try:
        found = sqlglot.parse(text)
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else "no SQL"
        raise QueryError(
            "Expected one SELECT statement (put a column name that is an SQL keyword in double "
            f'quotes: "Alter"), got an error: {first[:200]}.'
        ) from None
    if len(found) != 1 or not isinstance(found[0], sqlglot.exp.Select):
        kind = "none" if not found or found[0] is None else found[0].key.upper()
        raise QueryError(f"Expected one SELECT statement, got {len(found)} ({kind}).")
    return found[0]


def _parse_table(select: Any) -> str:
    source = select.args.get("from_") or select.args.get("from")
    if source is None or source.this.key != "table" or source.this.args.get("joins"):
        raise QueryError("Expected FROM with one table's name, got a join, a subquery or no table.")
    return str(source.this.name)


def _parse_column(node: Any) -> str:
    if node.key != "column" or node.args.get("table"):
        raise QueryError(f"Expected a column's name, got {node.sql()[:80]}.")
    return str(node.name)


def _build_query(node: Any, where: Expression | None, by: tuple[str, ...]) -> Query | None:
    """Return the query of one item, or None for a column in GROUP BY."""
    if node.key == "column":
        name = _parse_column(node)
        if name not in by:
            raise QueryError(
                f"Expected only columns of GROUP BY outside {_OFFERED}, got {name}: records are "
                "never shown."
            )
        return None
    make = _AGGREGATES.get(node.key)
    if make is None:
        hint = _HINTS.get(node.key, "")
        raise QueryError(f"Expected {_OFFERED}, got {node.sql()[:80]}{hint}.")
    return make(node, {"where": where, "by": by})


def _build_count(node: Any, rest: dict[str, Any]) -> Query:
    if node.this.key != "star" or node.expressions:
        raise QueryError(f"Expected COUNT(*), got {node.sql()[:80]}. Put a condition into WHERE.")
    return Count(**rest)


def _build_quantile(node: Any, rest: dict[str, Any]) -> Query:
    share = node.args.get("quantile")
    if share is None or share.key != "literal" or share.is_string:
        raise QueryError(f"Expected QUANTILE(column, a number in [0, 1]), got {node.sql()[:80]}.")
    return Quantiles(column=_parse_column(node.this), quantiles=(float(share.name),), **rest)


_AGGREGATES: dict[str, Callable[[Any, dict[str, Any]], Query]] = {
    "count": _build_count,
    "sum": lambda node, rest: ColumnSum(column=_parse_column(node.this), **rest),
    "avg": lambda node, rest: Mean(column=_parse_column(node.this), **rest),
    "variance": lambda node, rest: Variance(column=_parse_column(node.this), **rest),
    "variancepop": lambda node, rest: Variance(column=_parse_column(node.this), **rest),
    "median": lambda node, rest: Quantiles(column=_parse_column(node.this), **rest),
    "quantile": _build_quantile,
    "corr": lambda node, rest: CorrelationsQuery(
        of=(_parse_column(node.this), _parse_column(node.expression)), **rest
    ),
}

_RANGE = (
    ": its sensitivity is the whole range. Use QUANTILE(column, 0.01) or QUANTILE(column, 0.99)"
)
_HINTS = {"min": _RANGE, "max": _RANGE}


_SIGNS: dict[str, Callable[[Any, Any], Expression]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}
_MIRRORED = {"eq": "eq", "neq": "neq", "lt": "gt", "lte": "gte", "gt": "lt", "gte": "lte"}
_OPPOSITE = {"eq": "neq", "neq": "eq", "lt": "gte", "gte": "lt", "gt": "lte", "lte": "gt"}


def _build_condition(node: Any, schema: Schema, *, negated: bool) -> Expression:
    """Return a condition with NOT moved to the comparisons, so that an empty value fails both."""
    kind = node.key
    if kind == "paren":
        return _build_condition(node.this, schema, negated=negated)
    if kind == "not":
        return _build_condition(node.this, schema, negated=not negated)
    if kind in {"and", "or"}:
        left = _build_condition(node.left, schema, negated=negated)
        right = _build_condition(node.right, schema, negated=negated)
        return left & right if (kind == "and") != negated else left | right
    leaf = _LEAVES.get(kind)
    if leaf is None:
        raise QueryError(
            "Expected comparisons of a column with a constant, IN, BETWEEN, IS NULL, AND, OR, NOT, "
            f"got {node.sql()[:80]}."
        )
    return leaf(node, schema, negated)


def _build_between(node: Any, schema: Schema, negated: bool) -> Expression:
    name = col[_parse_column(node.this)]
    low, high = (_parse_constant(node.args[end]) for end in ("low", "high"))
    return (name < low) | (name > high) if negated else (name >= low) & (name <= high)


def _build_null_check(node: Any, schema: Schema, negated: bool) -> Expression:
    if node.expression.key != "null":
        raise QueryError(f"Expected IS NULL among comparisons, got {node.sql()[:80]}.")
    empty = col[_parse_column(node.this)].is_null()
    return ~empty if negated else empty


def _build_in(node: Any, schema: Schema, negated: bool) -> Expression:
    if not node.expressions:
        raise QueryError(f"Expected comparisons with constants, got {node.sql()[:80]}.")
    name = _parse_column(node.this)
    found = col[name].is_in([_parse_constant(each) for each in node.expressions])
    return _exclude_missing(name, ~found, schema) if negated else found


def _build_comparison(node: Any, schema: Schema, negated: bool) -> Expression:
    left, right, kind = node.left, node.right, node.key
    if left.key != "column":
        left, right, kind = right, left, _MIRRORED[kind]
    kind = _OPPOSITE[kind] if negated else kind
    name = _parse_column(left)
    found = _SIGNS[kind](col[name], _parse_constant(right))
    return _exclude_missing(name, found, schema) if kind == "neq" else found


_LEAVES: dict[str, Callable[[Any, Schema, bool], Expression]] = {
    "between": _build_between,
    "is": _build_null_check,
    "in": _build_in,
    **dict.fromkeys(_SIGNS, _build_comparison),
}


def _exclude_missing(name: str, condition: Expression, schema: Schema) -> Expression:
    """Return the condition restricted to records with a non-empty value."""
    field = get_field(schema, name)
    if isinstance(field, CategoryField) and MISSING in field.texts:
        return condition & ~col[name].is_null()
    return condition


def _parse_constant(node: Any) -> str | int | float | bool:
    if node.key == "boolean":
        return bool(node.this)
    if node.key == "neg":
        value = _parse_constant(node.this)
        if not isinstance(value, str | bool):
            return -value
    if node.key == "literal":
        text = str(node.name)
        if node.is_string:
            return text
        return int(text) if text.isdecimal() else float(text)
    raise QueryError(f"Expected a constant next to a column, got {node.sql()[:80]}.")
