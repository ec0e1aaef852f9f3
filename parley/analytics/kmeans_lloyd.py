"""Run Lloyd's k-means, as published or with balanced noise: T queries, each from the answer
before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from parley.analytics.answer import Answer
from parley.analytics.query_api import (
    ReleaseSession,
    check_epsilon,
    check_left,
    parse_optional_condition,
)
from parley.client.data.schema import Schema
from parley.client.queries.base import QueryError, get_answer_key, get_range
from parley.client.queries.filters.expressions import Expression
from parley.client.queries.kmeans import MAX_COORDINATES, KMeansStep
from parley.client.queries.moments import UNIT_BALANCE
from parley.privacy.accounting.rounding import to_fraction
from parley.privacy.accounting.threat_model import Neighbouring

NOISES: Mapping[str, Callable[[int], float]] = {
    "balanced": lambda columns: 1.0,
    "as-printed": lambda columns: 1 / columns,
}
"""Weight w of the sums relative to the counts, by the number of columns."""


class LloydQueries(ReleaseSession):
    """Query method of a session that runs k-means in rounds."""

    def lloyd(
        self,
        columns: Sequence[str],
        *,
        clusters: int = 0,
        centres: Sequence[Sequence[float]] | None = None,
        rounds: int = 10,
        noise: str = "balanced",
        where: Expression | str | None = None,
        epsilon: float,
    ) -> tuple[Answer, ...]:
        """Run k-means by Lloyd's steps, one query per round, from public centres. See
        `Asking.kmeans`.

        Args:
            clusters: Number of clusters, if `centres` is not given.
            centres: Public starting points in the columns' units; default: spread evenly.
            rounds: T; each round has ε/T.
            noise: "balanced" or "as-printed"; under replace-one, the latter is charged 2ε.
            epsilon: Price of all rounds together, by the published formula.

        Returns:
            One answer per round; the last has the centres.

        Raises:
            QueryError, SchemaError: the request is not valid; no budget was charged.
        """
        left = self.remaining
        start = _spread_centres(self.schema, columns, clusters) if centres is None else centres
        if type(rounds) is not int or rounds < 1:
            raise QueryError(f"Expected at least one round, got {rounds!r}.")
        if noise not in NOISES:
            raise QueryError(f"Expected noise {' or '.join(NOISES)}, got {noise!r}.")
        check_epsilon(epsilon)
        replaced = self.terms.facts.neighbouring is Neighbouring.REPLACE_ONE
        whole = to_fraction(epsilon) * (2 if noise == "as-printed" and replaced else 1)
        check_left(whole, left, f"{rounds} rounds")
        each = float(whole / rounds)
        while to_fraction(each) * rounds > whole:
            each = math.nextafter(each, 0)
        points = _scale_centres(self.schema, columns, start)
        condition = parse_optional_condition(where)
        balance = max(1, round(UNIT_BALANCE * NOISES[noise](len(columns))))
        answers = list[Answer]()
        for _ in range(rounds):
            flat = tuple(points.ravel().tolist())
            query = KMeansStep(of=tuple(columns), centres=flat, balance=balance, where=condition)
            answers.append(self.ask(query, epsilon=each, law="laplace"))
            found = [np.asarray(answers[-1].table[get_answer_key(name)]) for name in columns]
            points = _scale_centres(self.schema, columns, np.stack(found, axis=1))
        return tuple(answers)


def _spread_centres(schema: Schema, columns: Sequence[str], clusters: int) -> NDArray[np.float64]:
    """Return `[k, D]` public centres spread over the range by Halton's points (1960)."""
    from scipy.stats import qmc  # noqa: PLC0415 - start-up: `query` without k-means (scipy.stats takes 0.5 s)

    if type(clusters) is not int or clusters < 1:
        raise QueryError(f"Expected at least one cluster, got {clusters!r}.")
    if (count := clusters * len(columns)) > MAX_COORDINATES:
        raise QueryError(f"Expected at most {MAX_COORDINATES} coordinates of centres, got {count}.")
    low, high = _get_ranges(schema, columns)
    spread: NDArray[np.float64] = qmc.Halton(len(columns), scramble=False).random(clusters + 1)[1:]
    start: NDArray[np.float64] = low + spread * (high - low)
    return start


def _scale_centres(
    schema: Schema, columns: Sequence[str], centres: Sequence[Sequence[float]] | NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return centres as `[k, D]` in [−1, 1]."""
    given = np.asarray(centres, dtype=np.float64)
    if given.ndim != 2 or given.shape[1] != len(columns) or not np.isfinite(given).all():
        raise QueryError(
            f"Expected centres of {len(columns)} finite coordinates each, got shape {given.shape}."
        )
    low, high = _get_ranges(schema, columns)
    points: NDArray[np.float64] = np.clip((2 * given - low - high) / (high - low), -1, 1)
    return points


def _get_ranges(schema: Schema, columns: Sequence[str]) -> tuple[NDArray[np.float64], ...]:
    ranges = [get_range(schema, name) for name in columns]
    return np.array([each.low for each in ranges]), np.array([each.high for each in ranges])
