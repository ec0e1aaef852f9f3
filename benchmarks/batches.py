"""Compare the errors of ten workloads as batches are planned, and with each answer's own cells.

`python benchmarks/batches.py` prints the expected errors at ε = 1, δ = 1e-6, by each noise
distribution and relation, relative to those without consistency. Without consistency, every query
has its own cells and share of the budget. Quantiles of up to 128 values use only their counts, and
those of more a 4-ary tree (32-ary for Laplace noise). A ratio is the geometric mean over a batch's
queries. It takes 5 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import numpy as np

from parley.client.data.schema import Schema
from parley.client.queries import consistency, quantiles
from parley.client.queries.base import Query, QueryFacts
from parley.client.queries.count_queries import Count, Histogram, MarginalsQuery
from parley.client.queries.filters.expressions import col
from parley.client.queries.moments import Mean, Variance
from parley.client.queries.quantiles import Quantiles
from parley.privacy.accounting.threat_model import NOISE_POINTS, Neighbouring
from parley.server.planning.query_planner import plan_batch
from parley.server.planning.session_terms import QUERY_LAWS, SessionTerms

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 6, "f": 9}
SCHEMA = Schema.from_toml(
    "[columns]\n"
    'age = { kind = "numeric", range = [0, 100], step = 1 }\n'
    'income = { kind = "numeric", range = [0, 1000], step = 1 }\n'
    + "".join(
        f'{name} = {{ kind = "categorical", categories = {[str(k) for k in range(size)]}, '
        'missing = "0" }\n'
        for name, size in SIZES.items()
    )
    + 'ill = { kind = "label", classes = [0, 1] }\n'
)
SIX, OLD = tuple(SIZES), col.age > 60
QUARTILES = (0.25, 0.5, 0.75)
WORKLOADS: dict[str, list[Query]] = {
    "histogram of 5 categories": [Histogram(column="d")],
    "counts by group, and their total, with `where`": [
        Count(where=OLD),
        Count(where=OLD, by=("e",)),
    ],
    "counts of a, of b, of both": [
        Histogram(column="a"),
        Histogram(column="d"),
        Histogram(column="a", by=("d",)),
    ],
    "six histograms": [Histogram(column=name) for name in SIX],
    "six columns, and all pairs": [MarginalsQuery(of=SIX, ways=1), MarginalsQuery(of=SIX)],
    "counts and means by group": [Count(by=("d",)), Mean(column="age", by=("d",))],
    "a table one by group": [
        Count(by=("a",)),
        *(Histogram(column=name, by=("a",)) for name in SIX[1:]),
        Variance(column="age", by=("a",)),
        Quantiles(column="age", quantiles=QUARTILES, by=("a",)),
    ],
    "quartiles of 101 values": [Quantiles(column="age", quantiles=QUARTILES)],
    "quartiles of 1001 values": [Quantiles(column="income", quantiles=QUARTILES)],
    "overlapping `where`s": [
        Histogram(column="d", where=OLD),
        Histogram(column="d", where=col.age > 40),
    ],
}


def terms_of(relation: Neighbouring) -> SessionTerms:
    """Return the terms of 30 parties with a thousand records each."""
    return SessionTerms(
        facts=QueryFacts(
            schema=SCHEMA,
            neighbouring=relation,
            records=30_000 if relation is Neighbouring.REPLACE_ONE else None,
        ),
        parties=30,
        min_records=1000,
        most_records=1000,
        min_survivors=20,
        corrupt=3,
        noise_point=NOISE_POINTS["server"],
        delta=1e-6,
        seeded=True,
    )


def errors(queries: Sequence[Query], terms: SessionTerms, law: str) -> np.ndarray:
    """Return the expected error of each query."""
    planned = plan_batch(queries, terms, epsilon=1.0, run_id="b", number=1, law=law)
    return np.array(planned.compute_errors(terms.facts))


def by_themselves(queries: Sequence[Query], terms: SessionTerms, law: str) -> np.ndarray:
    """Return the expected errors without consistency."""

    def fixed(cells: int, power: float) -> int:
        return cells if cells <= 128 else 32 if power == 1 else 4

    with (
        patch.object(consistency.BatchConsistency, "families", ()),
        patch.object(quantiles, "_choose_branching", fixed),
    ):
        return errors(queries, terms, law)


def ratio(queries: Sequence[Query], terms: SessionTerms, law: str) -> tuple[float, float]:
    """Return the geometric mean and the maximum of the errors' ratios."""
    found = errors(queries, terms, law) / by_themselves(queries, terms, law)
    return float(np.exp(np.log(found).mean())), float(found.max())


def main() -> None:
    """Print the table of ten workloads."""
    cases = [(law, relation) for relation in Neighbouring for law in QUERY_LAWS]
    print("| workload | " + " | ".join(f"{law}, {relation}" for law, relation in cases) + " |")
    print("|---" * (1 + len(cases)) + "|")
    for name, queries in WORKLOADS.items():
        cells = []
        for law, relation in cases:
            middle, worst = ratio(queries, terms_of(relation), law)
            cells.append(f"{middle:.2f}" + (f" ({worst:.2f})" if worst > middle + 0.005 else ""))
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
