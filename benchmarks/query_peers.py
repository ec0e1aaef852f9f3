"""Compare seconds per query of Parley, OpenDP and Tumult on the same records, in turns.

    python benchmarks/query_peers.py adult.csv.gz [--opendp PYTHON] [--tumult PYTHON] [--turns 5]

One PYTHON is an environment with opendp[polars] and numpy (0.16.0 was measured), the other has
tmlt.analytics (0.21.0), which needs Java 11 or 17. All query in-memory records at ε = 0.5: a
histogram of education, the mean age, and the median of fnlwgt (over 1024 candidates; Tumult chooses
its own). Parley has 30 parties, one secure sum, and a ledger on disk that is charged first. The
others have one table and no ledger. OpenDP has a compositor per query. Its median is measured once
more as a bare measurement of a list, which does not compose. Every query runs once before it is
timed. The output has medians and ratios; other load affects ratios less than seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import polars as pl
from analytics import schema_of

import parley

OPENDP = """
import json, sys, time, warnings
warnings.filterwarnings("ignore")
import polars as pl
import opendp.prelude as dp
dp.enable_features("contrib", "honest-but-curious")
table = pl.read_csv(sys.argv[1])
weights, steps = table["fnlwgt"].cast(float).to_list(), [1500000 * k / 1023 for k in range(1024)]
size = dp.polars.Margin(max_length=len(table))

def asked(*margins, delta=0.0):
    return dp.Context.compositor(data=table.lazy(), margins=list(margins), split_evenly_over=1,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=.5, delta=delta)).query()

def histogram():
    known = dp.polars.Margin(by=["education"], invariant="keys")
    asked(size, known, delta=1e-7).group_by("education").agg(dp.len()).release().collect()

def mean():
    known = dp.polars.Margin(max_length=len(table), invariant="lengths")
    ages = pl.col.age.cast(int).fill_null(0).dp.mean((17, 90))
    asked(known).select(ages).release().collect()

def median():
    known = dp.polars.Margin(max_length=len(table), invariant="lengths")
    values = pl.col.fnlwgt.cast(float).fill_nan(0.0).fill_null(0.0).dp.median(steps)
    asked(known).select(values).release().collect()

def bare():
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
    (space >> dp.m.then_private_quantile(
        dp.max_divergence(), candidates=steps, alpha=.5, scale=1.0))(weights)

taken = {}
for name, ask in {
    "histogram": histogram, "mean": mean, "median": median, "median, no compositor": bare
}.items():
    ask()
    begun = time.perf_counter()
    ask()
    taken[name] = time.perf_counter() - begun
json.dump(taken, sys.stdout)
"""

TUMULT = """
import json, sys, time, warnings
warnings.filterwarnings("ignore")
import pandas as pd
from pyspark.sql import SparkSession
from tmlt.analytics import (
    AddOneRow, KeySet, PureDPBudget, QueryBuilder, Session)
spark = (SparkSession.builder.config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "2").getOrCreate())
table = pd.read_csv(sys.argv[1])[["education", "age", "fnlwgt"]].dropna()
table = table.astype({"age": float, "fnlwgt": float})
session = Session.from_dataframe(privacy_budget=PureDPBudget(float("inf")), source_id="adult",
    dataframe=spark.createDataFrame(table), protected_change=AddOneRow())
keys = KeySet.from_dict({"education": sorted(table.education.unique())})
asks = {
    "histogram": QueryBuilder("adult").groupby(keys).count(),
    "mean": QueryBuilder("adult").average("age", 17, 90),
    "median": QueryBuilder("adult").median("fnlwgt", 0, 1500000),
}
taken = {}
for name, query in asks.items():
    for _ in range(2):
        begun = time.perf_counter()
        session.evaluate(query, privacy_budget=PureDPBudget(.5)).toPandas()
        taken[name] = time.perf_counter() - begun
json.dump(taken, sys.stdout)
"""
PEERS = {"OpenDP": OPENDP, "Tumult": TUMULT}


def theirs(name: str, python: str, data: str) -> dict[str, float]:
    """Return the seconds of each query of a peer, for its second run."""
    own = {**os.environ, "PYSPARK_PYTHON": python}
    command = [python, "-c", PEERS[name], str(Path(data).resolve())]
    with tempfile.TemporaryDirectory() as folder:  # Spark leaves tables in its working folder
        told = subprocess.run(
            command, capture_output=True, text=True, check=True, env=own, cwd=folder
        ).stdout
    return json.loads(told)


def ours(frame: pl.DataFrame) -> dict[str, float]:
    """Return the seconds of each query, for its second run."""
    taken = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        parley.Session(
            frame, schema=schema_of(frame), parties=30, epsilon=1000.0, out=Path(folder) / "s"
        ) as session,
    ):
        asks = {
            "histogram": lambda: session.histogram("education", epsilon=0.5),
            "mean": lambda: session.mean("age", epsilon=0.5),
            "median": lambda: session.median(
                "fnlwgt", step=1_500_000 / 1023, epsilon=0.5, law="permute-and-flip"
            ),
        }
        for name, ask in asks.items():
            ask()
            begun = time.perf_counter()
            ask()
            taken[name] = time.perf_counter() - begun
    return taken


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    for name in PEERS:
        parser.add_argument(f"--{name.lower()}", metavar="PYTHON")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    frame = pl.read_csv(options.data)
    peers = {name: getattr(options, name.lower()) for name in PEERS}
    peers = {name: python for name, python in peers.items() if python}
    turns = []
    for _ in range(options.turns):
        turns.append({"Parley": ours(frame)})
        turns[-1] |= {each: theirs(each, python, options.data) for each, python in peers.items()}
    where = f"{os.cpu_count()} cores, {platform.machine()}"
    print(f"{time.strftime('%Y-%m-%d')}, {where}, {options.turns} turns")
    print(f"| query | Parley | {' | '.join(f'{each} | ratio (least to most)' for each in peers)} |")
    print("|---|---|" + "---|---|" * len(peers))
    for name in dict.fromkeys(name for taken in turns[0].values() for name in taken):
        a = [turn["Parley"][name.partition(",")[0]] for turn in turns]
        cells = [f"{statistics.median(a):.4f} s"]
        for each in peers:
            if name not in turns[0][each]:
                cells += ["", ""]
                continue
            b = [turn[each][name] for turn in turns]
            ratios = [y / x for x, y in zip(a, b, strict=True)]
            cells += [
                f"{statistics.median(b):.4f} s",
                f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})",
            ]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
