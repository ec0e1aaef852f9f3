"""How far private statistics of the Adult census are off, beside diffprivlib.

    python benchmarks/analytics.py adult.csv.gz [--seeds 40] [--counts-only]
        [--peer PYTHON] [--opendp PYTHON]

30,162 records, 30 parties, ε = .1, .5 and 1; means over seeds (25 times as many where cells are
few) with the half-width of a 95 % interval of the mean. Noise is the server's. PYTHON has an
environment with diffprivlib and "scikit-learn<1.6", where its figures are measured on the same
records: its ε is replace-one for means and quantiles, add-or-remove-one for histograms. The other
PYTHON has opendp 0.16.0: replace-one for the mean, else add-or-remove-one. Ours are
seeded, hence repeatable. Truths are of the records: simulation-only. At the end: seconds a query.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import polars as pl

from parley.analytics.search import Found, find_quantile
from parley.client.data.frames import frame_of
from parley.client.data.schema import Schema
from parley.client.data.table_block import TableBlock, read_table_block
from parley.client.queries.base import Facts, Query
from parley.client.queries.histogram import Histogram
from parley.client.queries.marginals import Marginals
from parley.client.queries.mean import Mean
from parley.client.queries.quantiles import Quantiles
from parley.client.where import col
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.accounting.noise_points import NOISE_POINTS
from parley.privacy.sampling.stream import NoiseStream
from parley.server.planning.queries import plan_batch
from parley.server.planning.query_terms import Terms

EPSILONS = (0.1, 0.5, 1.0)
DECILES = tuple(k / 10 for k in range(1, 10))
STEP = (1_500_000 - 0) / 16383
CATEGORIES = [
    "type_employer", "education", "marital", "occupation", "relationship", "race", "sex", "income",
]  # fmt: skip
REPLACE, REMOVE = Neighbouring.REPLACE_ONE, Neighbouring.ADD_OR_REMOVE_ONE

PEER = """
import json, sys, warnings
import numpy as np
warnings.filterwarnings("ignore")
from diffprivlib import tools
given = json.load(sys.stdin)
ages, weights = np.array(given["age"], float), np.array(given["fnlwgt"], float)
hours, codes = np.array(given["old_hours"], float), np.array(given["education"])
ordered, n = np.sort(weights), len(weights)
rank = lambda v, q: abs(np.searchsorted(ordered, v) - q * n)
out = {}
for eps in given["epsilons"]:
    found = {name: [] for name in ("median fnlwgt", "median age", "histogram", "mean age",
        "mean hours", "deciles")}
    for seed in range(5 * given["seeds"]):
        r = seed
        v = tools.median(weights, epsilon=eps, bounds=(0, 1500000), random_state=r)
        found["median fnlwgt"].append(rank(v, .5))
        v = tools.median(ages, epsilon=eps, bounds=(17, 90), random_state=r)
        found["median age"].append(abs(v - np.median(ages)))
        h, _ = tools.histogram(codes, epsilon=eps, bins=16, range=(-.5, 15.5), random_state=r)
        found["histogram"].append(np.sqrt(np.mean((h - np.bincount(codes, minlength=16))**2)))
        v = tools.mean(ages, epsilon=eps, bounds=(17, 90), random_state=r)
        found["mean age"].append((v - ages.mean())**2)
        v = tools.mean(hours, epsilon=eps, bounds=(1, 99), random_state=r)
        found["mean hours"].append((v - hours.mean())**2)
        vs = tools.quantile(weights, [k / 10 for k in range(1, 10)], epsilon=eps,
            bounds=(0, 1500000), random_state=r)
        found["deciles"].append(np.mean([rank(v, (k + 1) / 10) for k, v in enumerate(vs)]))
    out[str(eps)] = found
json.dump(out, sys.stdout)
"""

OPENDP = """
import json, sys
import numpy as np
import opendp.prelude as dp
dp.enable_features("contrib", "honest-but-curious")
given = json.load(sys.stdin)
weights, ages, codes = [float(x) for x in given["fnlwgt"]], given["age"], given["education"]
n, step, near = len(weights), given["step"], dp.symmetric_distance()
# A record counts at the nearest value of the grid, as with us.
snapped = [np.floor(x / step + .5) * step for x in weights]
ordered, truth = np.sort(snapped), np.bincount(codes, minlength=16)
grid = [k * step for k in range(16384)]
def rank(v):
    first, last = (np.searchsorted(ordered, v + off * step) for off in (-.5, .5))
    return max(0.0, first - n / 2, n / 2 - last)
floats = dp.vector_domain(dp.atom_domain(T=float, nan=False)), near
sized = dp.vector_domain(dp.atom_domain(T=float, nan=False, bounds=(17.0, 90.0)), size=n), near
whole = dp.vector_domain(dp.atom_domain(T=int)), near
counts = dp.t.then_count_by_categories(categories=list(range(16)), null_category=False)
out = {}
for eps in given["epsilons"]:
    found = lambda make, moved: dp.binary_search_chain(make, moved, eps)
    median = found(lambda s: floats >> dp.m.then_private_quantile(dp.max_divergence(),
        candidates=grid, alpha=.5, scale=s), 1)
    mean = found(lambda s: sized >> dp.t.then_mean() >> dp.m.then_laplace(s), 2)
    table = found(lambda s: whole >> counts >> dp.m.then_laplace(s), 1)
    turns = range(5 * given["seeds"])
    out[str(eps)] = {
        "median fnlwgt, add-or-remove-one": [rank(median(snapped)) for _ in turns],
        "education histogram, RMS a cell": [
            float(np.sqrt(np.mean((np.array(table(codes)) - truth) ** 2))) for _ in turns],
        "mean age, RMSE": [(mean(ages) - float(np.mean(ages))) ** 2 for _ in turns],
    }
json.dump(out, sys.stdout)
"""


def schema_of(frame: pl.DataFrame) -> Schema:
    """Adult's columns: ranges that its description gives, the categories that it lists."""
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


def terms_of(block: TableBlock, relation: Neighbouring, delta: float) -> Terms:
    """Thirty parties, a trusted server's noise."""
    return Terms(
        facts=Facts(
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
    block: TableBlock,
    relation: Neighbouring,
    epsilon: float,
    seeds: int,
    delta: float,
    law: str = "auto",
) -> tuple[str, list[dict]]:
    """The law, and the answer's table of every seed."""
    terms = terms_of(block, relation, delta)
    planned = plan_batch([query], terms, epsilon=epsilon, run_id="benchmark", number=1, law=law)
    (tuned,), (weight,) = planned.batch.queries, planned.batch.weights
    (exact,) = tuned.vectors(block, weight, {})
    noise, tables = planned.noise(), []
    for seed in range(seeds):
        shown = planned.released(exact, terms.facts, NoiseStream.from_seed(seed, "analytics"))
        if planned.instead is None:
            tables.append(tuned.answer(np.array(shown), weight, noise, terms.facts))
        else:
            tables.append(tuned.chosen(shown[0], terms.facts))
    return planned.law, tables


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What `find_quantile` asks, answered by the same planner without a ledger."""

    block: TableBlock
    relation: Neighbouring
    seed: int
    remaining: float = 1e9

    @property
    def schema(self) -> Schema:
        """Of the records."""
        return self.block.schema

    def ask(self, query: Query, *, epsilon: float, law: str) -> SimpleNamespace:
        """One count, from a stream that is the seed's and the question's."""
        terms = terms_of(self.block, self.relation, 0.0)
        planned = plan_batch([query], terms, epsilon=epsilon, run_id="b", number=1, law=law)
        (tuned,), (weight,) = planned.batch.queries, planned.batch.weights
        (exact,) = tuned.vectors(self.block, weight, {})
        stream = NoiseStream.from_seed(self.seed, "counts", repr(query), epsilon.hex())
        shown = np.array(planned.released(exact, terms.facts, stream))
        table = tuned.answer(shown, weight, planned.noise(), terms.facts)
        records, scale = terms.facts.records, planned.scale() / weight
        return SimpleNamespace(table=table, law=planned.law, scale=scale, records=records)


def by_counts(block: TableBlock, relation: Neighbouring, epsilon: float, seeds: int) -> list[Found]:
    """The median of fnlwgt, found by some six counts."""
    whole = replace(block, offsets=block.offsets[[0, -1]])
    return [
        find_quantile(
            Counted(block=whole, relation=relation, seed=seed), "fnlwgt", 0.5, step=STEP,
            counts=None, epsilon=epsilon, neighbouring=relation, where=None,
        )
        for seed in range(seeds)
    ]  # fmt: skip


def show(name: str, law: str, found: dict[float, list[float]], *, root: bool = False) -> None:
    """One row: the mean (or root of the mean) over seeds at every ε."""
    cells = []
    for epsilon in EPSILONS:
        values = np.array(found[epsilon], dtype=float)
        mean, half = values.mean(), 1.96 * values.std(ddof=1) / math.sqrt(len(values))
        if root:
            mean, half = math.sqrt(mean), half / (2 * math.sqrt(mean)) if mean else 0.0
        cells.append(f"{mean:.4g} ± {half:.2g}")
    print(f"| {name} | {law} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--peer")
    parser.add_argument("--opendp")
    parser.add_argument("--counts-only", action="store_true")
    options = parser.parse_args()
    frame = pl.read_csv(options.data)
    schema = schema_of(frame)
    block = read_table_block([frame_of(frame, schema=schema, name="adult")], schema)
    ages, weights = frame["age"].to_numpy().astype(float), np.sort(frame["fnlwgt"].to_numpy())
    hours = frame["hr_per_week"].to_numpy().astype(float)
    old = hours[ages > 60]
    count = len(ages)

    snapped = np.floor(weights / STEP + 0.5) * STEP  # the value of the grid that a record counts at

    def rank(value: float, share: float) -> float:
        """Records between a value and its place: none where ties hold the place."""
        near = value * (1 - 1e-12), value * (1 + 1e-12)
        first, last = np.searchsorted(snapped, near[0]), np.searchsorted(snapped, near[1])
        return float(max(0.0, first - share * count, share * count - last))

    tables = {names: frame.group_by(names).len() for names in itertools.combinations(CATEGORIES, 2)}

    def distance(table: dict) -> float:
        """Mean total variation over the two-way marginals."""
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
    rows: list[tuple[str, Query, Neighbouring, float, Callable[[dict], float], bool]] = [
        *(
            (f"median fnlwgt, rank error, {relation}, {law}", middle, relation, 0.0,
             lambda t: rank(t["value"][0], 0.5), False)
            for relation in (REPLACE, REMOVE) for law in ("auto", "permute-and-flip")
        ),
        ("median age, value error", Quantiles(column="age", step=1.0), REPLACE, 0.0,
         lambda t: abs(t["value"][0] - np.median(ages)), False),
        ("education histogram, RMS a cell, add-or-remove-one", Histogram(column="education"),
         REMOVE, 0.0,
         lambda t: float(np.mean((np.asarray(t["value"])[: len(truth)] - truth) ** 2)), True),
        ("mean age, RMSE", Mean(column="age"), REPLACE, 0.0, squares(ages.mean()), True),
        ("mean hours where age > 60, RMSE", Mean(column="hr_per_week", where=col.age > 60), REPLACE,
         0.0, squares(old.mean()), True),
        ("nine deciles of fnlwgt, rank error, δ = 1e-6",
         Quantiles(column="fnlwgt", step=STEP, quantiles=DECILES), REPLACE, 1e-6,
         lambda t: float(np.mean([rank(v, q) for v, q in zip(t["value"], DECILES, strict=True)])),
         False),
        ("28 two-way marginals, mean TVD, δ = 1e-6", Marginals(of=tuple(CATEGORIES)), REPLACE, 1e-6,
         distance, False),
    ]  # fmt: skip
    print("| figure | noise | ε = .1 | ε = .5 | ε = 1 |\n|---|---|---|---|---|")
    for relation in (REPLACE, REMOVE):
        values = {
            epsilon: [rank(one.value, 0.5) for one in by_counts(block, relation, epsilon, seeds)]
            for seeds in (5 * options.seeds,)
            for epsilon in EPSILONS
        }
        show(f"median fnlwgt, rank error, {relation}, by counts", "laplace", values)
    for name, query, relation, delta, error, root in () if options.counts_only else rows:
        found, law = {}, ""
        for epsilon in EPSILONS:
            law, answers = asked(
                query, block, relation, epsilon, delta=delta,
                law="permute-and-flip" if name.endswith("flip") else "auto",
                seeds=options.seeds * (25 if query.cells(schema) < 100 else 1),
            )  # fmt: skip
            found[epsilon] = [error(table) for table in answers]
        show(name, law, found, root=root)
    given = {
        "age": ages.tolist(),
        "fnlwgt": frame["fnlwgt"].to_list(),
        "old_hours": old.tolist(),
        "education": np.searchsorted(education, frame["education"].to_numpy()).tolist(),
        "epsilons": EPSILONS,
        "seeds": options.seeds,
        "step": STEP,
    }
    for label, python, script in (
        ("diffprivlib", options.peer, PEER),
        ("OpenDP", options.opendp, OPENDP),
    ):
        if not python:
            continue
        told = subprocess.run(
            [python, "-c", script],
            input=json.dumps(given, allow_nan=False),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        peer = {float(epsilon): found for epsilon, found in json.loads(told).items()}
        for name in peer[EPSILONS[0]]:
            one = {epsilon: peer[epsilon][name] for epsilon in EPSILONS}
            show(f"{label}: {name}", "", one, root=name.startswith("mean"))
    for query in (Histogram(column="education"), Marginals(of=tuple(CATEGORIES)),
                  Quantiles(column="fnlwgt", step=STEP, quantiles=DECILES)):  # fmt: skip
        begun = time.perf_counter()
        asked(query, block, REPLACE, 0.5, seeds=1, delta=1e-6)
        print(f"{query.kind}: {time.perf_counter() - begun:.3f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
