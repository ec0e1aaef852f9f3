"""Release a click log with an ε: noisy counts of a public list, and synthetic users drawn from
them.

A party's table has a row per click. The public list is the schema's: the categories of one column,
or of several columns together (a query with its link). The counts are one release, for any unit of
the session. The rest is post-processing. The published method for search logs has no ε: its output
counts are optimal for the records, and users are drawn by their shares (`examples/search_log.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from parley.analytics.answer import Answer
from parley.analytics.query_api import ReleaseSession, parse_optional_condition
from parley.client.queries.base import Query, QueryError, get_answer_key
from parley.client.queries.count_queries import Count, Histogram
from parley.client.queries.filters.expressions import Expression

_MAX_ROWS = 10**7


@dataclass(frozen=True, kw_only=True)
class ClickLog:
    """A log of synthetic users.

    Attributes:
        frame: `user`, the requested columns, and `clicks` ≥ 1, with a row per user and cell.
        counts: The answer that the users are drawn from, with intervals and cost.
        clicks: Clicks per user; the last user has the remainder.
    """

    frame: pl.DataFrame
    counts: Answer
    users: int
    clicks: int

    def __str__(self) -> str:
        unit = self.counts.ledger.budget.unit
        return (
            f"{self.counts}\n{self.users:,} synthetic users with {self.clicks} clicks each, drawn "
            f"from these counts at no further cost. ε protects one {unit}."
        )


class ClickLogQueries(ReleaseSession):
    """Query method of a session that returns synthetic click logs."""

    def search_log(
        self,
        columns: Sequence[str],
        *,
        clicks: int = 10,
        method: str = "counts",
        where: Expression | str | None = None,
        law: str = "auto",
        seed: int | None = None,
        epsilon: float,
    ) -> ClickLog:
        """Return a log of synthetic users, drawn from noisy counts: see
        `parley.analytics.click_log_release`.

        ε protects the session's unit. In a table with a row per click, unit record is one click. A
        user with K rows in one party then has Kε.

        Args:
            columns: Columns of categories that form the public list, such as the query and the
                clicked link.
            method: Only "counts". The published method for search logs is refused because it has no
                ε.
            seed: Seed of the draws, which are post-processing.

        Raises:
            QueryError, SchemaError: the request is not valid; no budget was charged.
        """
        if method != "counts":
            raise QueryError(
                f"Expected method counts, got {method!r:.40}. The published search-log method "
                "computes its bound from the records and has no ε."
            )
        if isinstance(columns, str) or not columns or not all(isinstance(c, str) for c in columns):
            raise QueryError(f"Expected a list of categorical columns, got {columns!r:.80}.")
        if type(clicks) is not int or clicks < 1:
            raise QueryError(f"Expected at least one click per user, got {clicks!r}.")
        condition = parse_optional_condition(where)
        query: Query = Count(by=tuple(columns), where=condition)
        if len(columns) == 1:
            query = Histogram(column=columns[0], where=condition)
        answer = self.ask(query, epsilon=epsilon, law=law)
        keys = {name: answer.table[get_answer_key(name)] for name in columns}
        weights = np.maximum(np.rint(np.asarray(answer.table["value"], dtype=np.float64)), 0)
        if weights.sum() > _MAX_ROWS:
            raise QueryError(
                f"Expected at most {_MAX_ROWS:,} clicks in a log, got {int(weights.sum()):,}. The "
                "released counts are in the session's answers."
            )
        users, frame = _draw_users(keys, weights, clicks, np.random.default_rng(seed))
        return ClickLog(frame=frame, counts=answer, users=users, clicks=clicks)


def _draw_users(
    keys: dict[str, Any], weights: NDArray[np.float64], clicks: int, rng: np.random.Generator
) -> tuple[int, pl.DataFrame]:
    """Draw each user's clicks with probabilities proportional to the noisy counts."""
    total = int(weights.sum())
    users = -(-total // clicks)
    places = rng.choice(len(weights), size=total, p=weights / total if total else None)
    owners = np.arange(total) // clicks
    pairs, counts = np.unique(np.stack([owners, places]), axis=1, return_counts=True)
    named = {name: np.asarray(part)[pairs[1]] for name, part in keys.items()}
    names = np.array([f"synthetic-{k + 1}" for k in range(users)], dtype=str)
    return users, pl.DataFrame({"user": names[pairs[0]], **named, "clicks": counts})
