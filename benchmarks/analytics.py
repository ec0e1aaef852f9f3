"""Measure the error of private statistics on the Adult census, compared with three peers, in one
run.

    python benchmarks/analytics.py adult.csv.gz [--seeds 40] [--only WORDS]
        [--peer PYTHON] [--opendp PYTHON] [--tumult PYTHON] [--docs docs/query-errors.csv]

30,162 records, 30 parties, ε = 0.1, 0.5 and 1. Figures are means over seeds with the half-width of
a 95 % interval of the mean. The number of seeds is a multiple of the given one: see the last
column. The server adds the noise. A PYTHON is an environment with diffprivlib and
"scikit-learn<1.6", with opendp, or with tmlt.analytics and Java 17: see
`benchmarks/analytics_peers.py`. Parley's noise is seeded, hence repeatable. True values are
computed from the records (simulation-only). --docs writes the table as CSV.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
from analytics_peers import PEERS, errors_of

import parley
from parley.analytics.answer_intervals import AnswerSource, Intervals, NoisyCounts
from parley.analytics.quantile_search import QuantileResult, QuantileSearch
from parley.client.data.memory_columns import build_memory_table
from parley.client.data.query_party_block import RawPartyBlock, read_raw_party_block
from parley.client.data.schema import Schema
from parley.client.queries.base import Query, QueryFacts
from parley.client.queries.consistency import BatchConsistency
from parley.client.queries.count_queries import Histogram, MarginalsQuery
from parley.client.queries.filters.expressions import col
from parley.client.queries.moments import Mean
from parley.client.queries.quantiles import Quantiles
from parley.privacy.accounting.threat_model import NOISE_POINTS, Neighbouring
from parley.privacy.sampling.random_stream import NoiseStream
from parley.server.planning.query_planner import plan_batch
from parley.server.planning.session_terms import SessionTerms

EPSILONS = (0.1, 0.5, 1.0)
DECILES = tuple(k / 10 for k in range(1, 10))
STEP = (1_500_000 - 0) / 16383
CATEGORIES = [
    "type_employer", "education", "marital", "occupation", "relationship", "race", "sex", "income",
]  # fmt: skip
REPLACE, REMOVE = Neighbouring.REPLACE_ONE, Neighbouring.ADD_OR_REMOVE_ONE


def schema_of(frame: pl.DataFrame) -> Schema:
    """Return the schema of Adult's columns, with the ranges and categories of its description."""
    lines = [
        "[columns]",
        'age = { kind = "numeric", range = [17, 90] }',
        'fnlwgt = { kind = "numeric", range = [0, 1500000] }',
        'hr_per_week = { kind = "numeric", range = [1, 99] }',
    ]
    for name in CATEGORIES:
        listed = json.dumps(sorted(frame[name].unique().to_list()))
        if name == "income":
            lines.append(f'income = {{ kind = "label", classes = {listed} }}')
        else:
            first = json.dumps(sorted(frame[name].unique().to_list())[0])
            lines.append(
                f'{name} = {{ kind = "categorical", categories = {listed}, missing = {first} }}'
            )
    for name in frame.columns:
        if name not in {"age", "fnlwgt", "hr_per_week", *CATEGORIES}:
            lines.append(f'{name} = {{ kind = "ignore" }}')
    return Schema.from_toml("\n".join(lines))


def terms_of(block: RawPartyBlock, relation: Neighbouring, delta: float) -> SessionTerms:
    """Return the terms of thirty parties, with a trusted server's noise."""
    return SessionTerms(
        facts=QueryFacts(
            schema=block.schema,
            neighbouring=relation,
            records=block.records if relation is REPLACE else None,
        ),
        parties=30,
        min_records=1000,
        most_records=1006,
        min_survivors=20,
        corrupt=3,
        noise_point=NOISE_POINTS["server"],
        delta=delta,
        seeded=True,
    )


def asked(
    query: Query,
    block: RawPartyBlock,
    relation: Neighbouring,
    epsilon: float,
    seeds: int,
    delta: float,
    law: str = "auto",
) -> tuple[str, list[dict]]:
    """Return the noise distribution, and the answer's table for every seed."""
    terms = terms_of(block, relation, delta)
    planned = plan_batch([query], terms, epsilon=epsilon, run_id="benchmark", number=1, law=law)
    (tuned,), (weight,) = planned.batch.queries, planned.batch.weights
    (exact,) = tuned.compute_party_vectors(block, weight)
    noise, tables = planned.compute_noise(), []
    agreement = BatchConsistency(batch=planned.batch, facts=terms.facts, noise=noise)
    for seed in range(seeds):
        shown = planned.compute_release(
            exact, terms.facts, NoiseStream.from_seed(seed, "analytics")
        )
        if planned.replacement is None:
            (counts,) = agreement.make_consistent(np.array(shown))
            part = NoisyCounts(
                party="", noisy=np.array(shown), facts=terms.facts, consistent=counts
            )
            made = AnswerSource(
                query=tuned, parts=(part,), weight=weight, law=planned.law, scale=noise.scale
            )
            tables.append(made.build_table(Intervals())[0])
        else:
            tables.append(tuned.chosen(shown[0], terms.facts))
    return planned.law, tables


class Counted(QuantileSearch):
    """A session for `find_quantile` that uses the same planner, without a ledger."""

    remaining, terms, plan, release = 1e9, None, None, None

    def __init__(self, block: RawPartyBlock, relation: Neighbouring, seed: int) -> None:
        self.block, self.seed = block, seed
        self.terms = terms_of(block, relation, 0.0)

    def ask(self, query: Query, *, epsilon: float, law: str) -> SimpleNamespace:
        """Answer one count, with a stream that depends on the seed and the query."""
        terms = self.terms
        planned = plan_batch([query], terms, epsilon=epsilon, run_id="b", number=1, law=law)
        (tuned,), (weight,) = planned.batch.queries, planned.batch.weights
        (exact,) = tuned.compute_party_vectors(self.block, weight)
        stream = NoiseStream.from_seed(self.seed, "counts", repr(query), epsilon.hex())
        shown = np.array(planned.compute_release(exact, terms.facts, stream))
        table = tuned.answer(shown, weight, planned.compute_noise(), terms.facts)
        records, scale = terms.facts.records, planned.compute_scale() / weight
        return SimpleNamespace(table=table, law=planned.law, scale=scale, records=records)


def by_counts(
    block: RawPartyBlock, relation: Neighbouring, epsilon: float, seeds: int
) -> list[QuantileResult]:
    """Return the median of fnlwgt, found by about six counts."""
    whole = replace(block, offsets=block.offsets[[0, -1]])
    return [
        Counted(whole, relation, seed).find_quantile("fnlwgt", step=STEP, epsilon=epsilon)
        for seed in range(seeds)
    ]


def row_of(name: str, law: str, found: dict[float, list[float]]) -> str:
    """Print and return one row: the mean (or the root of the mean) over seeds at every ε."""
    cells = []
    for epsilon in EPSILONS:
        values = np.array(found[epsilon], dtype=float)
        mean, half = values.mean(), 1.96 * values.std(ddof=1) / math.sqrt(len(values))
        if "RMS" in name:
            mean, half = math.sqrt(mean), half / (2 * math.sqrt(mean)) if mean else 0.0
        cells.append(f"{mean:.4g} ± {half:.2g}")
    seeds = len(found[EPSILONS[0]])
    line = f"| {name} | {law} | {' | '.join(cells)} | {seeds:,} |"
    print(line, flush=True)
    return line


def write_table(path: Path, lines: list[str]) -> None:
    """Write the lines of a Markdown table as CSV."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([rows[0], *rows[2:]])


def main() -> None:
    """Print the table; with --docs write it as CSV, too."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--seeds", type=int, default=40)
    for name, (_, option, _) in PEERS.items():
        parser.add_argument(f"--{option}", metavar="PYTHON", help=f"an environment with {name}")
    parser.add_argument("--only", help="rows whose name has this")
    parser.add_argument("--docs", type=Path, metavar="CSV")
    options = parser.parse_args()
    frame = pl.read_csv(options.data)
    schema = schema_of(frame)
    block = read_raw_party_block([build_memory_table(frame, schema=schema, name="adult")], schema)
    ages, weights = frame["age"].to_numpy().astype(float), np.sort(frame["fnlwgt"].to_numpy())
    hours = frame["hr_per_week"].to_numpy().astype(float)
    old = hours[ages > 60]
    count = len(ages)

    snapped = np.floor(weights / STEP + 0.5) * STEP  # each record's value on the grid

    def rank(value: float, share: float) -> float:
        """Return the number of records between a value and its target rank; 0 if ties cover the
        rank.
        """
        near = value * (1 - 1e-12), value * (1 + 1e-12)
        first, last = np.searchsorted(snapped, near[0]), np.searchsorted(snapped, near[1])
        return float(max(0.0, first - share * count, share * count - last))

    tables = {names: frame.group_by(names).len() for names in itertools.combinations(CATEGORIES, 2)}

    def distance(table: dict) -> float:
        """Return the mean total variation over the two-way marginals."""
        asked_for = pl.DataFrame({k: list(v) for k, v in table.items()}, strict=False)
        gaps = []
        for names, truth in tables.items():
            own = asked_for.filter(pl.col("table") == ", ".join(names)).select(*names, "value")
            both = own.join(truth, on=names, how="left").fill_null(0)
            gaps.append(float((both["value"] - both["len"]).abs().sum()) / 2 / count)
        return float(np.mean(gaps))

    def squares(truth: float) -> Callable[[dict], float]:
        return lambda table: float((table["value"][0] - truth) ** 2)

    education = np.array(sorted(frame["education"].unique().to_list()))
    truth = np.array([int((frame["education"] == text).sum()) for text in education])
    middle = Quantiles(column="fnlwgt", step=STEP)
    rows: list[tuple[str, Query, Neighbouring, float, int, Callable[[dict], float]]] = [
        *(
            (f"median fnlwgt, rank error, {relation}, {law}", middle, relation, 0.0, times,
             lambda t: rank(t["value"][0], 0.5))
            for relation in (REPLACE, REMOVE)
            for law, times in (("tree", 3), ("permute-and-flip", 25))
        ),
        ("median age, value error", Quantiles(column="age", step=1.0), REPLACE, 0.0, 25,
         lambda t: abs(t["value"][0] - np.median(ages))),
        ("education histogram, RMS a cell, add-or-remove-one", Histogram(column="education"),
         REMOVE, 0.0, 25,
         lambda t: float(np.mean((np.asarray(t["value"])[: len(truth)] - truth) ** 2))),
        ("mean age, RMSE", Mean(column="age"), REPLACE, 0.0, 500, squares(ages.mean())),
        ("mean hours where age > 60, RMSE", Mean(column="hr_per_week", where=col.age > 60), REPLACE,
         0.0, 500, squares(old.mean())),
        ("nine deciles of fnlwgt, rank error, δ = 1e-6",
         Quantiles(column="fnlwgt", step=STEP, quantiles=DECILES), REPLACE, 1e-6, 3,
         lambda t: float(np.mean([rank(v, q) for v, q in zip(t["value"], DECILES, strict=True)]))),
        ("28 two-way marginals, mean TVD, δ = "
        "1e-6", MarginalsQuery(of=tuple(CATEGORIES)), REPLACE, 1e-6,
         1, distance),
    ]  # fmt: skip
    lines = ["| figure | noise | ε = 0.1 | ε = 0.5 | ε = 1 | seeds |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    print("\n".join(lines))
    wanted = options.only or ""
    for relation in (REPLACE, REMOVE):
        name, seeds = f"median fnlwgt, rank error, {relation}, by counts", 10 * options.seeds
        if wanted in name:
            values = {
                epsilon: [
                    rank(each.value, 0.5) for each in by_counts(block, relation, epsilon, seeds)
                ]
                for epsilon in EPSILONS
            }
            lines.append(row_of(name, "laplace", values))
    for name, query, relation, delta, times, error in rows:
        if wanted not in name:
            continue
        found, law = {}, ""
        for epsilon in EPSILONS:
            law, answers = asked(
                query, block, relation, epsilon, delta=delta, seeds=options.seeds * times,
                law="permute-and-flip" if name.endswith("flip") else "auto",
            )  # fmt: skip
            found[epsilon] = [error(table) for table in answers]
        lines.append(row_of(name, law, found))
    given = {
        "age": ages.tolist(),
        "fnlwgt": frame["fnlwgt"].to_list(),
        "hours": hours.tolist(),
        "education": np.searchsorted(education, frame["education"].to_numpy()).tolist(),
        "epsilons": EPSILONS,
        "step": STEP,
    }
    versions = [f"Parley {parley.__version__}, Python {platform.python_version()}"]
    for peer, (_, option, _) in PEERS.items():
        if python := getattr(options, option):
            version, figures = errors_of(peer, python, given, options.seeds)
            versions.append(f"{peer} {version}")
            lines += [row_of(f"{peer}: {name}", "", found) for name, found in figures.items()]
    if options.docs:
        when = f"Measured on {time.strftime('%Y-%m-%d')} in one run, {os.cpu_count()} cores:"
        write_table(options.docs, lines)
        print(f"{when} {', '.join(versions)}.")


if __name__ == "__main__":
    main()
