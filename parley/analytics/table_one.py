"""Build table one, a study's first table, in one batch: n, mean ± sd, median [quartiles], n (%) by
group.

Its queries are ordinary ones: a count by group, a histogram per column of categories, variance
(with its mean) and quartiles per numeric column. The error of a mean is measured relative to its
column's range. The error of a percentage or of a quantile's rank is relative to a group's number of
records. The budget is shared so that all these errors are expected to be equal. The shares follow
only from public facts (columns, ranges, groups, relation), for any number of records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from parley.analytics.backends import build_terms
from parley.analytics.session_settings import Settings
from parley.client.contract.strict_decoding import decode_dataclass
from parley.client.data.query_party_block import CategoryField, get_field, list_fields
from parley.client.data.schema import Schema
from parley.client.queries.base import (
    ColumnQuery,
    Query,
    QueryError,
    QueryFacts,
    build_group_cells,
    get_categories,
)
from parley.client.queries.count_queries import Count, Histogram
from parley.client.queries.filters.expressions import Expression
from parley.client.queries.moments import Variance, is_size_public
from parley.client.queries.quantiles import Quantiles
from parley.client.queries.query_batch import MAX_QUERIES
from parley.privacy.accounting.rounding import format_exact, format_rounded_up
from parley.privacy.calibration.noise_calibration import CalibrationError
from parley.server.planning.query_planner import PlannedBatch, plan_batch
from parley.server.planning.session_terms import QUERY_LAWS, SessionTerms

KIND = "table-one"
"""Name of the query in a file."""
MAX_GROUPS = 12
MAX_ERROR = 0.1
"""Maximum expected error, relative to a range or to a group's records. Above it, no table is
released.
"""
_MAX_ITERATIONS = 12
_QUARTILES = (0.25, 0.5, 0.75)


_KEYS: dict[str, Any] = {"name": "table one", "columns": [], "by": [], "epsilon": None}
"""Keys of its [[query]] in addition to `where`, with their defaults."""


@dataclass(frozen=True, kw_only=True)
class TableOneQuery:
    """A `[[query]]` for a table one.

    Attributes:
        columns: Columns of the table; empty for all of the schema.
        by: Column of its groups, or none.
        epsilon: Price of the whole table.
    """

    name: str
    columns: tuple[str, ...]
    by: tuple[str, ...]
    epsilon: float | None
    where: Expression | None

    @classmethod
    def from_keys(cls, keys: Mapping[str, Any], where: Expression | None) -> TableOneQuery:
        """Return the query from those keys that differ from their defaults.

        Raises:
            DecodingError: a key or type is not valid.
            QueryError: there is no price, or there are several columns of groups.
        """
        asked = decode_dataclass(cls, {**_KEYS, **keys}, where=where)
        if asked.epsilon is None:
            raise QueryError("Expected epsilon, the price of the table one, got none.")
        if len(asked.by) > 1:
            raise QueryError(
                f"Expected at most one column in by, got {', '.join(asked.by)}. A table one has a "
                "column for each of its categories."
            )
        return asked

    def build_batch(
        self, schema: Schema, settings: Settings
    ) -> tuple[str, Sequence[tuple[Query, float]]]:
        """Return the noise distribution, and the queries with their shares, for a session's
        settings.

        Raises:
            QueryError, SchemaError, CalibrationError: the table cannot be asked.
        """
        # The shares do not depend on the parties, so compute them for one record of one party.
        alone = settings.model_copy(update={"min_survivors": None, "corrupt": None})
        terms = build_terms(alone, schema=schema, sizes=[1], names=["one"], noise_point="server")
        columns = _choose_columns(self.columns, self.by, schema)
        queries = _build_queries(columns, self.by, self.where, terms.facts)
        epsilon = float(self.epsilon or 0.0)
        law, shares = balance_shares(queries, terms, epsilon=epsilon, law=settings.law)
        return law, list(zip(queries, shares, strict=True))


def format_expected_errors(planned: PlannedBatch, facts: QueryFacts, *, epsilon: float) -> str:
    """Return the expected error of each figure in words; empty if N is private.

    Raises:
        QueryError: the table would be mostly noise.
    """
    if facts.records is None:
        return ""
    error = max(compute_relative_errors(planned, facts))
    if error > MAX_ERROR:
        groups = build_group_cells(facts.schema, planned.batch.queries[-1].by).count
        raise QueryError(
            f"Expected a larger epsilon for this table, got {format_exact(epsilon)}. The expected "
            f"error of a figure is about {100 * error:,.0f} % of its column's range, or of its "
            f"group's {facts.records // groups:,} records (if groups have one size). With about "
            f"{format_rounded_up(epsilon * error / MAX_ERROR, 2)} it is {100 * MAX_ERROR:g} %. "
            "Fewer columns or groups, or more records, also help. The budget was not charged."
        )
    return (
        f"Table one: the expected error of each figure is {100 * error:.2g} % of its column's "
        "range, or of its group's records if groups have one size"
    )


def check_is_table(queries: Sequence[Query], facts: QueryFacts) -> None:
    """Check that queries are those of a table one.

    Raises:
        QueryError: they are others, or in another order.
    """
    columns = dict.fromkeys(each.column for each in queries if isinstance(each, ColumnQuery))
    first = queries[0]
    if list(queries) != _build_queries(list(columns), first.by, first.where, facts):
        raise QueryError("Expected the queries of a table one in their order, got others.")


def _choose_columns(names: Sequence[str], by: Sequence[str], schema: Schema) -> Sequence[str]:
    if by and (count := len(get_categories(schema, by[0]))) > MAX_GROUPS:
        raise QueryError(
            f"Expected groups of at most {MAX_GROUPS} categories, got {by[0]!r} with {count}. The "
            "table has a column for each."
        )
    if not names:
        return [name for name in list_fields(schema) if name not in by]
    if len(set(names)) < len(names) or set(by) & set(names):
        raise QueryError(
            f"Expected each column once, without the column of the groups, got {', '.join(names)}."
        )
    return names


def _build_queries(
    columns: Sequence[str], by: tuple[str, ...], where: Expression | None, facts: QueryFacts
) -> list[Query]:
    """Return the queries for the groups, then for the columns in their order."""
    of: Mapping[str, Any] = {"by": by, "where": where}
    queries: list[Query] = []
    if not is_size_public(counted := Count(**of), facts.neighbouring):
        queries.append(counted)
    for name in columns:
        if isinstance(get_field(facts.schema, name), CategoryField):
            queries.append(Histogram(column=name, **of))
        else:
            queries.append(Variance(column=name, **of))
            queries.append(Quantiles(column=name, quantiles=_QUARTILES, **of))
    if not 1 <= len(queries) <= MAX_QUERIES:
        raise QueryError(
            f"Expected columns for 1 to {MAX_QUERIES} queries (one per categorical column, two per "
            f"numeric column), got {len(queries)}. Name fewer columns."
        )
    return queries


def balance_shares(
    queries: Sequence[Query], terms: SessionTerms, *, epsilon: float, law: str
) -> tuple[str, list[float]]:
    """Return the noise distribution with the smallest equalised error, and each query's share.

    A query's error falls as its part of the norm grows: b/a_q and σ/a_q. With a_q proportional to
    its error, all errors are equal. One step is enough if no answer informs another. Otherwise
    iterate, until the information that counts by group give each other has spread.
    """
    found = list[tuple[float, str, list[float]]]()
    refused = list[CalibrationError]()
    planned_as = partial(plan_batch, queries, terms, epsilon=epsilon, run_id="table-one", number=1)
    for name in QUERY_LAWS if law == "auto" else (law,):
        shares = [1 / len(queries)] * len(queries)
        for _ in range(_MAX_ITERATIONS):
            try:
                planned = planned_as(law=name, shares=shares)
            except CalibrationError as error:
                refused.append(error)
                break
            errors = compute_relative_errors(planned, terms.facts)
            found.append((max(errors), name, shares))
            turned = [
                share * error ** (1 / QUERY_LAWS[name].power)
                for share, error in zip(shares, errors, strict=True)
            ]
            shares = [each / math.fsum(turned) for each in turned]
    if not found:
        raise refused[0]
    return min(found)[1:]


def compute_relative_errors(planned: PlannedBatch, facts: QueryFacts) -> list[float]:
    """Return each query's expected error, relative to the scale on which it is read.

    For a mean the scale is its column's range. Otherwise it is a group's number of records, as if
    all groups had one size. If N is private, it is as if there were one record.
    """
    errors = zip(planned.batch.queries, planned.compute_errors(facts), strict=True)
    return [max(error, 1e-300) * query.get_error_scale(facts) for query, error in errors]
