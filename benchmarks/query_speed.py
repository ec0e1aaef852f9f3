"""Measure seconds and memory of a query, with many parties and cells in one process.

    python benchmarks/query_speed.py [--masked]

First 1000 parties of 1000 records and a histogram of 10⁵ cells, with the ideal sum (with --masked
the masked protocol too, about a minute); then 30 parties and 296 cells. Each is the median of 7
after one warm-up. Then a query of each kind to 30 parties of 1000 records, minimum and median of
20: in total, and without the ledger's transactions and the answer's line, which is synced to the
disk.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import parley
from parley.client.data.schema import Schema
from parley.privacy.ledger.database import Database

SCHEMA = Schema.from_toml(
    """
[columns]
x = { kind = "numeric", range = [0, 1] }
age = { kind = "numeric", range = [0, 100] }
days = { kind = "numeric", range = [0, 60], outside = "refuse", step = 1 }
ward = { kind = "categorical", categories = ["a", "b", "c", "d"], missing = "a" }
sex = { kind = "categorical", categories = ["F", "M"], missing = "F" }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)


KINDS: dict[str, Callable[[parley.Session], Any]] = {
    "count, where": lambda s: s.where("age > 60").count(epsilon=0.5),
    "histogram, 20 bins": lambda s: s.histogram("age", bins=20, epsilon=0.5),
    "sum": lambda s: s.sum("x", epsilon=0.5),
    "mean by ward": lambda s: s.group_by("ward").mean("x", epsilon=0.5),
    "variance by ward": lambda s: s.group_by("ward").variance("x", epsilon=0.5),
    "three quantiles of 1,000 values": lambda s: s.quantiles("age", [0.25, 0.5, 0.75], epsilon=0.5),
    "marginals of three": lambda s: s.marginals(["ward", "sex", "sick"], epsilon=0.5),
    "choose": lambda s: s.choose("ward", epsilon=0.5),
    "randomised response": lambda s: s.response("ward", epsilon=0.5),
    "k-means, 32 × 32": lambda s: s.kmeans(["age", "x"], 3, epsilon=0.5),
    "survival, 20 intervals by sex": lambda s: s.group_by("sex").survival(
        "days", "sick", occurred="yes", bins=20, epsilon=0.5
    ),
    "regression on three, four steps": lambda s: s.regression(
        "sick", ["age", "x", "ward"], "logistic", occurred="yes", epsilon=0.5
    ),
    "correlations of four": lambda s: s.correlations(
        ["age", "days", "x", "ward"], regressions=["x ~ ."], epsilon=0.5
    ),
}
"""A query of each kind."""


def rows_of(records: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "x": rng.random(records),
        "age": rng.uniform(0, 100, records),
        "days": rng.integers(0, 61, records),
        "ward": rng.choice(list("abcd"), records),
        "sex": rng.choice(["F", "M"], records),
        "sick": rng.choice(["yes", "no"], records),
    }


@contextlib.contextmanager
def writing(taken: list[float]) -> Iterator[None]:
    """Add up the seconds of the ledger's transactions and synced files."""
    transaction, sync = Database.open_writer, os.fsync

    @contextlib.contextmanager
    def counted(place: Database) -> Iterator[Any]:
        began = time.perf_counter()
        with transaction(place) as writer:
            yield writer
        taken[0] += time.perf_counter() - began

    def synced(file: int) -> None:
        began = time.perf_counter()
        sync(file)
        taken[0] += time.perf_counter() - began

    Database.open_writer, os.fsync = counted, synced
    try:
        yield
    finally:
        Database.open_writer, os.fsync = transaction, sync


def by_kind(parties: int = 30, repeats: int = 20) -> None:
    ways = {"epsilon": 10_000.0, "delta": 1e-6, "parties": parties}
    with (
        tempfile.TemporaryDirectory() as folder,
        parley.Session(
            rows_of(parties * 1000), schema=SCHEMA, out=Path(folder) / "s", **ways
        ) as session,
    ):
        print("| query | least, ms | median | least beyond the ledger's write | median | CPU |")
        print("|---|---|---|---|---|---|")
        for name, ask in KINDS.items():
            whole, beyond, cpu = [], [], []
            for _ in range(repeats + 1):
                written, began, used = [0.0], time.perf_counter(), time.process_time()
                with writing(written):
                    str(ask(session))
                whole.append(1000 * (time.perf_counter() - began))
                beyond.append(whole[-1] - 1000 * written[0])
                cpu.append(1000 * (time.process_time() - used))
            figures = [f(each[1:]) for each in (whole, beyond) for f in (min, statistics.median)]
            print(f"| {name} | " + " | ".join(f"{x:.1f}" for x in (*figures, min(cpu))) + " |")


def timed(parties: int, bins: int, *, repeats: int, masked: bool = False) -> str:
    data = rows_of(parties * 1000)
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
    by_kind()
    print(timed(30, 296, repeats=7))
    print(timed(1000, 100_000, repeats=7))
    if given.masked:
        print(timed(1000, 100_000, repeats=1, masked=True))


if __name__ == "__main__":
    main()
