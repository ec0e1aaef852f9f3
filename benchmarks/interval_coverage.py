"""Measure how often noise intervals contain the exact value, from 100 to 10 million records.

    python benchmarks/interval_coverage.py [--draws 10000] [--most 10000000] [--docs FILE]

Five parties hold a column in [0, 10]. Three quarters of its records are 9.0 and the rest uniform,
in three groups of 60, 30 and 10 %. Each release is planned as in a session. The parties' sums are
computed once; the noise is drawn again each time, by the release's own sampler. Held is how often
the records' exact value is in the 95 % interval, among the values that are released. It is given as
the minimum and the maximum of all rows with as many draws. A tenth of a percent of draws is 10 of
10,000.

`regression` (logistic, its last step) and `correlations` have a fifth of the draws. For them, held
refers to the figure that the same sums give without noise and without rounding.
"""

from __future__ import annotations

import argparse
import csv
import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from parley.analytics.backends import build_terms
from parley.analytics.session_settings import Settings
from parley.client.data.query_party_block import RawPartyBlock
from parley.client.data.schema import Schema
from parley.client.queries.base import AnsweredQuery, Query, QueryFacts
from parley.client.queries.correlations import CorrelationsQuery, _list_entries
from parley.client.queries.moments import Mean, Variance
from parley.client.queries.regression.design_matrix import Design
from parley.client.queries.regression.regression_query import RegressionQuery
from parley.client.queries.sum_queries import ColumnSum
from parley.privacy.estimation.moment_regression import NoisySecondMoments
from parley.privacy.estimation.noise_intervals import CellNoise
from parley.privacy.sampling.random_stream import NoiseStream
from parley.server.planning.query_planner import plan_batch

PIECE = 10**6
TOGETHER = 100
"""Number of draws that are answered at once."""
COLUMNS = """
[columns]
x = { kind = "numeric", range = [0, 10] }
z = { kind = "numeric", range = [-3, 7] }
g = { kind = "categorical", categories = ["a", "b", "c"], missing = "a" }
y = { kind = "label", positive = "yes", negative = "no" }
"""
SCHEMA = Schema.from_toml(COLUMNS)
PARTIES = 5
RECORDS = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
EPSILONS = (0.1, 1.0, 10.0, 100.0, 1000.0)
MOST_GAUSSIAN = 10.0
"""Largest ε for Gaussian noise. Above it, the sampler's own δ exceeds the release's, so none is
planned.
"""

Truth = Callable[[Query, RawPartyBlock], np.ndarray]


def block_of(records: int) -> RawPartyBlock:
    """Return the same records for the same number of them."""
    rng = np.random.default_rng(records)
    x = np.where(rng.random(records) < 0.75, 9.0, 10 * rng.random(records))
    z = np.clip(0.3 * x + rng.integers(-4, 4, records), -3, 7)
    group = np.searchsorted([0.6, 0.9], rng.random(records)).astype(np.intp)
    happens = rng.random(records) < 1 / (1 + np.exp(2 - 0.3 * x))
    columns = {"x": x, "z": z.astype(float), "g": group, "y": happens.astype(np.intp)}
    offsets = np.linspace(0, records, PARTIES + 1).astype(np.intp)
    return RawPartyBlock(schema=SCHEMA, columns=columns, offsets=offsets)


def moment(query: Query, block: RawPartyBlock) -> np.ndarray:
    """Return the exact sum, mean or variance of every group, to the last digits of a double."""
    x = block.columns["x"]
    groups = [block.columns["g"] == k for k in range(3)] if query.by else [slice(None)]
    found = []
    for group in groups:
        own = x[group]
        if isinstance(query, ColumnSum):
            found.append(math.fsum(own))
            continue
        mean = math.fsum(own) / len(own)
        if isinstance(query, Mean):
            found.append(mean)
        else:
            found.append(math.fsum((own - mean) ** 2) / len(own))
    return np.array(found)


def summed(block: RawPartyBlock, rows_of: Callable[[RawPartyBlock], np.ndarray]) -> np.ndarray:
    """Return `[d]` sums of rows to the last digits of a double, a million records at a time."""
    found = []
    for begin in range(0, block.records, PIECE):
        columns = {name: part[begin : begin + PIECE] for name, part in block.columns.items()}
        size = len(columns["x"])
        part = RawPartyBlock(schema=SCHEMA, columns=columns, offsets=np.array([0, size]))
        found.append([math.fsum(column) for column in rows_of(part).T])
    return np.array([math.fsum(column) for column in zip(*found, strict=True)])


def products(design: Design, block: RawPartyBlock, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return `[N, d]` products of two coordinates of each record's row."""
    rows = np.insert(design.build_rows(block), 0, 1.0, axis=1)
    return np.stack([rows[:, i] * rows[:, j] for i, j in pairs], axis=1)


def correlation(query: Any, block: RawPartyBlock) -> np.ndarray:
    """Return the correlations of the exact second moments."""
    design = Design.from_schema(SCHEMA, query.of)
    pairs, factors = zip(*_list_entries(design), strict=True)
    moments = NoisySecondMoments(
        values=summed(block, lambda part: products(design, part, pairs)),
        pairs=pairs,
        tied=tuple(factor == 55 for factor in factors),
        deviations=np.full(len(pairs), 1e-9),
    )
    columns = np.array([each.column for each in design.covariates])
    first, second = np.triu_indices(len(columns), 1)
    apart = columns[first] != columns[second]
    found: np.ndarray = moments.estimate_correlations().value[first[apart], second[apart]]
    return found


def last_step(query: Query, block: RawPartyBlock) -> Query:
    """Return the last of a query's steps, where its exact sums point."""
    steps = list[AnsweredQuery]()
    while query.step_shares or query.interim_text:
        noisy = sum(query.compute_party_vectors(block, 2**20))
        noise = CellNoise(law="laplace", scale=1.0)
        steps.append(AnsweredQuery(query=query, noisy=noisy, weight=2**20, noise=noise))
        query = query.build_next_step(steps, SCHEMA)
    return query


def coefficient(query: Any, block: RawPartyBlock) -> np.ndarray:
    """Return where the exact sums' own step leads, in the columns' units."""
    total = summed(block, query.compute_rows)
    step = (
        query.build_layout(SCHEMA).decode_sums(total, 1e-9, 1.0).sums.compute_step(sampling=False)
    )
    found: np.ndarray = query.get_start_point(SCHEMA).coefficients + step.change
    return found / Design.from_schema(SCHEMA, query.of).half_widths


CASES: tuple[tuple[str, Query, Truth, int], ...] = (
    ("sum", ColumnSum(column="x"), moment, 1),
    ("sum in groups", ColumnSum(column="x", by=("g",)), moment, 1),
    ("mean", Mean(column="x"), moment, 1),
    ("mean in groups", Mean(column="x", by=("g",)), moment, 1),
    ("variance", Variance(column="x"), moment, 1),
    ("variance in groups", Variance(column="x", by=("g",)), moment, 1),
    ("correlations", CorrelationsQuery(of=("x", "z", "g")), correlation, 5),
    (
        "regression",
        RegressionQuery(column="y", of=("x", "z"), family="logistic", occurred="yes"),
        coefficient,
        5,
    ),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Row:
    """How often the intervals of one query's rows held; `told` is the share of draws with a
    value.
    """

    kind: str
    law: str
    records: int
    epsilon: float
    held: tuple[float, ...]
    told: float


def measured(
    name: str, query: Query, truth: np.ndarray, block: RawPartyBlock,
    *, law: str, epsilon: float, draws: int,
) -> Row:  # fmt: skip
    """Return how often the intervals of `draws` releases hold the truth."""
    settings = Settings(epsilon=epsilon, delta=1e-6)
    sizes = np.diff(block.offsets).tolist()
    names = [f"party {place}" for place in range(PARTIES)]
    terms = build_terms(settings, schema=SCHEMA, sizes=sizes, names=names, noise_point="server")
    planned = plan_batch([query], terms, epsilon=epsilon, run_id="coverage", number=1, law=law)
    (own,), (weight,) = planned.batch.queries, planned.batch.weights
    total = sum(planned.counting.compute_party_vectors(planned.batch, block, range(PARTIES)))
    stream = NoiseStream.from_seed(1, name, law, block.records, str(epsilon))
    noise = planned.plan.primary.mechanism.draw_many(draws, stream)
    reach = CellNoise(
        law=law, scale=planned.compute_scale(), rounding=own.bound_rounding_error(PARTIES)
    )
    facts = QueryFacts(schema=SCHEMA, neighbouring=terms.facts.neighbouring, records=block.records)
    held, told = np.zeros(len(truth)), np.zeros(len(truth))
    for low, high in answers(own, total + noise, weight, reach, facts):
        known = np.isfinite(low)
        told += known.sum(axis=0)
        held += (known & (low <= truth) & (truth <= high)).sum(axis=0)
    often = told >= draws / 2
    return Row(
        kind=name, law=law, records=block.records, epsilon=epsilon,
        held=tuple((held[often] / told[often]).tolist()), told=float(told.mean() / draws),
    )  # fmt: skip


def answers(
    query: Query, noisy: np.ndarray, weight: int, reach: CellNoise, facts: QueryFacts
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield `[draws, rows]` both ends of the intervals of some draws; draws of moments become
    groups.
    """
    if not isinstance(query, (ColumnSum, Mean, Variance)):
        for each in noisy:
            table = query.answer(each, weight, reach, facts)
            yield np.asarray(table["low"])[None], np.asarray(table["high"])[None]
        return
    names = ", ".join(f'"{place}"' for place in range(TOGETHER))
    draw = f'draw = {{ kind = "categorical", categories = [{names}], missing = "0" }}'
    schema = Schema.from_toml(f"{COLUMNS}\n{draw}\n")
    groups = 3 if query.by else 1
    each = replace(query, by=(*query.by, "draw"))
    for begin in range(0, len(noisy), TOGETHER):
        cells = noisy[begin : begin + TOGETHER].reshape(TOGETHER, -1, groups)
        table = each.answer(
            np.moveaxis(cells, 0, 2).ravel(), weight, reach, replace(facts, schema=schema)
        )
        ends = (np.asarray(table[end]).reshape(groups, TOGETHER).T for end in ("low", "high"))
        yield next(ends), next(ends)


def rows(draws: int, most: int, kinds: list[str]) -> Iterator[Row]:
    """Yield a row for every kind, law, number of records and ε."""
    for records in (each for each in RECORDS if each <= most):
        block = block_of(records)
        for name, query, truth_of, fewer in CASES:
            if kinds and name not in kinds:
                continue
            query = last_step(query, block)  # noqa: PLW2901 - itself, of most kinds
            truth = truth_of(query, block)
            for law in ("laplace", "gaussian"):
                for epsilon in EPSILONS:
                    if law == "gaussian" and epsilon > MOST_GAUSSIAN:
                        continue
                    with np.errstate(all="ignore"):
                        yield measured(
                            name, query, truth, block,
                            law=law, epsilon=epsilon, draws=draws // fewer,
                        )  # fmt: skip


def table_of(found: list[Row], draws: int) -> list[list[str]]:
    """Return a table with the minimum and the maximum for each kind and distribution, and their
    cases.
    """
    lines = [["query", "noise", "draws", "held, least", "at", "held, most", "at", "rows"]]
    for name, _, _, fewer in CASES:
        for law in ("laplace", "gaussian"):
            own = [each for each in found if (each.kind, each.law) == (name, law) and each.held]
            if not own:
                continue
            least = min(own, key=lambda each: min(each.held))
            most = max(own, key=lambda each: max(each.held))
            count = sum(len(each.held) for each in own)
            lines.append(
                [
                    *(name, law, f"{draws // fewer:,}", f"{100 * min(least.held):.1f} %"),
                    *(_place(least), f"{100 * max(most.held):.1f} %", _place(most), str(count)),
                ]
            )
    return lines


def _place(row: Row) -> str:
    return f"N = {row.records:,}, ε = {row.epsilon:g}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--most", type=int, default=RECORDS[-1], help="records at most")
    parser.add_argument("--kind", action="append", default=[], help="only this one")
    parser.add_argument("--docs", type=Path, help="write the table into this CSV file")
    asked = parser.parse_args()
    found, began = list[Row](), time.monotonic()
    for row in rows(asked.draws, asked.most, asked.kind):
        found.append(row)
        held = " ".join(f"{100 * share:.2f}" for share in row.held)
        print(
            f"{time.monotonic() - began:6.0f} s  {row.kind}, {row.law}, N = {row.records:,}, "
            f"ε = {row.epsilon:g}: {held}  told {100 * row.told:.0f} %",
            flush=True,
        )
    table = table_of(found, asked.draws)
    print("\n".join(" | ".join(line) for line in table))
    print(
        f"Measured on {datetime.now(UTC):%Y-%m-%d} on {platform.machine()}, "
        f"Python {platform.python_version()}, numpy {version('numpy')}."
    )
    if asked.docs:
        with asked.docs.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(table)
