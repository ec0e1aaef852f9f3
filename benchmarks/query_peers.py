"""Seconds a query: a session of Parley beside OpenDP, on the same records, taken in turns.

    python benchmarks/query_peers.py adult.csv.gz --opendp PYTHON [--turns 5]

PYTHON has an environment with opendp[polars] (0.16.0 was measured). Both are asked of records in
memory, at ε = .5: a histogram of education and the mean age (OpenDP: of a polars frame), the median
of fnlwgt over 1024 candidates (OpenDP: of a list). Ours has 30 parties, one secure sum, and a
ledger on disk that is charged first; OpenDP has one table, a compositor a query, and no ledger.
Told are medians and ratios, which other work on the machine moves less than the seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl
from analytics import schema_of

import parley

PEER = """
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
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
    (space >> dp.m.then_private_quantile(
        dp.max_divergence(), candidates=steps, alpha=.5, scale=1.0))(weights)

taken = {}
for ask in (histogram, mean, median):
    ask()
    begun = time.perf_counter()
    ask()
    taken[ask.__name__] = time.perf_counter() - begun
json.dump(taken, sys.stdout)
"""


def ours(frame: pl.DataFrame) -> dict[str, float]:
    """Seconds of each query, the second time it is asked."""
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
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--opendp", required=True)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    frame = pl.read_csv(options.data)
    turns = []
    for _ in range(options.turns):
        own = ours(frame)
        told = subprocess.run(
            [options.opendp, "-c", PEER, options.data], capture_output=True, text=True, check=True
        ).stdout
        turns.append((own, json.loads(told)))
    print("| query | Parley | OpenDP | ratio (least to most) |\n|---|---|---|---|")
    for name in turns[0][0]:
        a, b = ([turn[k][name] for turn in turns] for k in (0, 1))
        ratios = [y / x for x, y in zip(a, b, strict=True)]
        print(
            f"| {name} | {statistics.median(a):.4f} s | {statistics.median(b):.4f} s | "
            f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f}) |",
            file=sys.stdout,
        )


if __name__ == "__main__":
    main()
