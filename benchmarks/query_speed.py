"""Seconds and memory of a query: many parties and cells in one process, and real parties.

    python benchmarks/query_speed.py [--masked]

1000 parties of 1000 records and a histogram of 10⁵ cells, ideal sum (with --masked the masked
protocol too, about a minute); 30 parties and 296 cells; each the median of 7 after one to warm up.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import parley
from parley.client.data.schema import Schema

SCHEMA = Schema.from_toml(
    """
[columns]
x = { kind = "numeric", range = [0, 1] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)


def timed(parties: int, bins: int, *, repeats: int, masked: bool = False) -> str:
    rng = np.random.default_rng(1)
    records = parties * 1000
    data = {"x": rng.random(records), "sick": np.full(records, "yes")}
    with (
        tempfile.TemporaryDirectory() as folder,
        parley.Session(
            data,
            schema=SCHEMA,
            parties=parties,
            epsilon=1000.0,
            masked=masked,
            out=Path(folder) / "s",
        ) as session,
    ):
        taken = []
        for _ in range(repeats + (repeats > 1)):
            began = time.perf_counter()
            session.histogram("x", bins=bins, epsilon=0.5, law="laplace")
            taken.append(time.perf_counter() - began)
    taken = taken[1:] or taken
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    how = "masked" if masked else "ideal"
    return (
        f"{parties} parties × 1000 records, {bins} cells, {how}: median "
        f"{statistics.median(taken):.3f} s ({min(taken):.3f} to {max(taken):.3f}), process at most "
        f"{most:.2f} GiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--masked", action="store_true")
    given = parser.parse_args()
    print(timed(30, 296, repeats=7))
    print(timed(1000, 100_000, repeats=7))
    if given.masked:
        print(timed(1000, 100_000, repeats=1, masked=True))


if __name__ == "__main__":
    main()
