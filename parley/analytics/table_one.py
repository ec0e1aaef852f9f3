"""Table one, a study's first table: n, mean ± sd, median [quartiles], n (%) by group, in one batch.

Its queries are those that anybody may ask: a count by group, a histogram of each column of
categories, variance (with its mean) and quartiles of each column of numbers. An error of a mean is
read in parts of its column's range, one of a percentage or a quantile's rank in parts of a group's
records; the budget is shared out so that all of these are expected to be the same. That follows
from public facts alone (columns, ranges, groups, relation), whatever the number of records is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from parley.analytics.answer import Answer
from parley.analytics.asking import Whole
from parley.analytics.parties import terms_of
from parley.analytics.query_file import AskedQuery, QueryFile, session_of
from parley.analytics.settings import settings_from
from parley.analytics.table_one_shown import TableOne
from parley.client.data.schema import Schema, load_schema
from parley.client.data.table_block import Texts, field_of, fields_of
from parley.client.queries.base import Facts, Query, QueryError, groups_of, texts_of
from parley.client.queries.batch import MOST_QUERIES
from parley.client.queries.counts import Count, Histogram
from parley.client.queries.moments import Variance, public_size
from parley.client.queries.quantiles import Quantiles
from parley.privacy.accounting.rounding import as_written, shown_up
from parley.privacy.calibration.calibration import CalibrationError
from parley.server.planning.queries import PlannedBatch, plan_batch
from parley.server.planning.query_terms import QUERY_LAWS, Terms

ALL = "all"
"""Columns, where every one of the schema is meant."""
MOST_GROUPS = 12
WORST = 0.1
"""Of a range, or of a group's records: an expected error beyond it is no table."""
_TURNS = 12
_QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True, kw_only=True)
class TableFile(QueryFile):
    """The one batch of a table one, as a file of queries would have it."""

    schema: Schema

    def plans(self, session: Whole) -> Iterator[str]:
        """The plan in words, with what every figure is expected to be off by."""
        error = self.check(session)
        yield from super().plans(session)
        if error is not None:
            yield (
                f"Table one: each figure is expected to be off by {100 * error:.2g} % of its "
                "column's range, or of its group's records if groups are of one size"
            )

    def answers(self, session: Whole) -> Iterator[tuple[str, Answer]]:
        """See `QueryFile.answers`; a table of noise is refused before it is paid for."""
        self.check(session)
        yield from super().answers(session)

    def check(self, session: Whole) -> float | None:
        """Expected error of each figure, in parts of a range or group; None where N is private.

        Raises:
            QueryError: a table of noise; nothing was charged.
        """
        facts, (batch,) = session.terms.facts, self.batches
        if facts.records is None:
            return None
        epsilon = float(batch[0].epsilon or 0.0)
        queries, shares = [each.query for each in batch], [each.share for each in batch]
        planned = session.plan(queries, epsilon=epsilon, law=batch[0].law, shares=shares)
        error = max(relative_errors(planned, facts))
        if error > WORST:
            groups = groups_of(facts.schema, batch[-1].query.by).count
            raise QueryError(
                f"Expected a larger epsilon for this table, got {as_written(epsilon)}: each figure "
                f"would be off by some {100 * error:,.0f} % of its column's range, or of its "
                f"group's {facts.records // groups:,} records (if groups are of one size). About "
                f"{shown_up(epsilon * error / WORST, 2)} would make that {100 * WORST:g} %; fewer "
                "columns or groups (--table-one, --by), or more records, help too. Nothing was "
                "charged."
            )
        return error

    def told(self, answers: Sequence[dict[str, Any]], folder: Path) -> str:
        """Writes the table's page and CSV into a folder; the table as text, with their places.

        Args:
            answers: each as `Answer.to_json` has it, or as a server wrote it.
        """
        table = TableOne.of(answers, self.schema)
        page, lines = table.write(folder)
        return f"{table}\n\npage: {page}\nCSV: {lines}\n"


def table_one(columns: str, *, by: str | None, epsilon: float | None, session: Path) -> TableFile:
    """The batch of a table of these columns, for the [session] of a file.

    Args:
        columns: names with commas between them, or `all`.
        by: a column of categories; None: all records together.
        epsilon: what the table costs, whole.

    Raises:
        QueryError, SchemaError: it cannot be asked: what was expected, what came.
    """
    if epsilon is None:
        raise QueryError("Expected --epsilon with --table-one, what it may cost, got none.")
    own = session_of(session)
    if own.get("sampling") or own.get("simultaneous"):
        raise QueryError(
            "Expected a table one without sampling and simultaneous, got one: it describes these "
            "records, and the interval of each figure is of its noise alone."
        )
    schema = load_schema(own["schema"])
    settings = settings_from({k: v for k, v in own.items() if k not in ("data", "schema")})
    # What is shared out does not depend on who takes part: as if it were one record of one party.
    alone = settings.model_copy(update={"min_survivors": None, "corrupt": None})
    terms = terms_of(alone, schema=schema, sizes=[1], names=["one"], noise_point="server")
    queries = _queries(_columns(columns, by, schema), by, terms)
    law, shares = even_shares(queries, terms, epsilon=epsilon, law=settings.law)
    batch = tuple(
        AskedQuery(
            name=f"{query.kind} {place}",
            query=query,
            epsilon=None if place else epsilon,
            share=share,
            law="" if place else law,
        )
        for place, (query, share) in enumerate(zip(queries, shares, strict=True))
    )
    return TableFile(session=own, batches=(batch,), schema=schema)


def _columns(named: str, by: str | None, schema: Schema) -> list[str]:
    if by is not None and (count := len(texts_of(schema, by))) > MOST_GROUPS:
        raise QueryError(
            f"Expected --by a column of at most {MOST_GROUPS} categories, got {by!r} with {count}: "
            "a table has a column for each."
        )
    if named == ALL:
        return [name for name in fields_of(schema) if name != by]
    found = [name.strip() for name in named.split(",")]
    if len(set(found)) < len(found) or by in found:
        raise QueryError(
            f"Expected columns once each, and not the one of the groups, got {', '.join(found)}."
        )
    return found


def _queries(columns: Sequence[str], by: str | None, terms: Terms) -> list[Query]:
    """Of the groups first, then of the columns in their order."""
    groups, facts = () if by is None else (by,), terms.facts
    queries: list[Query] = []
    if not public_size(counted := Count(by=groups), facts.neighbouring):
        queries.append(counted)
    for name in columns:
        if isinstance(field_of(facts.schema, name), Texts):
            queries.append(Histogram(column=name, by=groups))
        else:
            queries.append(Variance(column=name, by=groups))
            queries.append(Quantiles(column=name, quantiles=_QUARTILES, by=groups))
    if not 1 <= len(queries) <= MOST_QUERIES:
        raise QueryError(
            f"Expected columns for 1 to {MOST_QUERIES} queries, one of categories and two of "
            f"numbers, got {len(queries)}: name fewer columns."
        )
    return queries


def even_shares(
    queries: Sequence[Query], terms: Terms, *, epsilon: float, law: str
) -> tuple[str, list[float]]:
    """The law with the least error that is the same for all, and each query's share under it.

    A query's error falls as its part of the norm grows, b/a_q and σ/a_q: a_q in proportion to its
    error makes all the same, at once where no answer says anything of another; else again and
    again, until what counts by group say of each other has gone round.
    """
    found = list[tuple[float, str, list[float]]]()
    refused = list[CalibrationError]()
    planned_as = partial(plan_batch, queries, terms, epsilon=epsilon, run_id="table-one", number=1)
    for name in QUERY_LAWS if law == "auto" else (law,):
        shares = [1 / len(queries)] * len(queries)
        for _ in range(_TURNS):
            try:
                planned = planned_as(law=name, shares=shares)
            except CalibrationError as error:
                refused.append(error)
                break
            errors = relative_errors(planned, terms.facts)
            found.append((max(errors), name, shares))
            turned = [
                share * error ** (1 / QUERY_LAWS[name].power)
                for share, error in zip(shares, errors, strict=True)
            ]
            shares = [each / math.fsum(turned) for each in turned]
    if not found:
        raise refused[0]
    return min(found)[1:]


def relative_errors(planned: PlannedBatch, facts: Facts) -> list[float]:
    """What each query is expected to be off by, in parts of what is read.

    Of a column's range for a mean, else of the records of a group, as if all were of one size.
    Where N is private, as if there were one record.
    """
    errors = zip(planned.batch.queries, planned.errors(facts), strict=True)
    return [max(error, 1e-300) * query.relative(facts) for query, error in errors]
