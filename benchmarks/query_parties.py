"""Measure seconds per query of real parties: own processes, TLS, noise in shares, ledgers on disk.

    python -P benchmarks/query_parties.py [--parties 3] [--queries 12]

It creates a deployment on this machine. Each query (a histogram of 100 cells, then a median by
counts) is a separate release with new keys, as docs/statistics.md describes. The first one includes
imports and start-up, and is reported separately. The target is 0.5 s after joining.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

import parley
from parley.deploy.child_processes import Supervisor, build_environment, find_free_ports
from parley.deploy.provisioning import make_deployment

SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
DATA = (
    '\n[data.ward]\npath = "records.csv"\nschema = "schema.toml"\nepsilon = 100.0\ndelta = 1e-6\n'
)


def furnished(home: Path, names: list[str], port: int) -> Path:
    """Create a deployment's folder, with records and a policy for every party."""
    folder = home / "made"
    make_deployment(folder, hosts=["127.0.0.1"], parties=names, port=port)
    for index, name in enumerate(names):
        own, rng = folder / "parties" / name, np.random.default_rng(index)
        rows = {"age": rng.integers(0, 101, 1000), "sick": rng.choice(["yes", "no"], 1000)}
        pl.DataFrame(rows).write_csv(own / "records.csv")
        (own / "schema.toml").write_text(SCHEMA)
        with (own / "party.toml").open("a") as file:
            file.write(DATA)
    return folder


def measured(home: Path, parties: int, queries: int) -> None:
    """Start the parties, open a session, ask the queries, and print the times."""
    names = [f"party-{index}" for index in range(parties)]
    (port,) = find_free_ports(1)
    folder = furnished(home, names, port)
    given = {"schema": str(folder / "parties" / names[0] / "schema.toml"), "epsilon": 100.0}
    given |= {"deployment": str(folder / "server"), "dataset": "ward", "delta": 1e-6}
    with Supervisor() as supervisor:
        for name in names:  # each waits for the port, which the session opens
            command, log = ["parley", "party", str(folder / "parties" / name)], home / f"{name}.log"
            supervisor.start(name, command, environment=build_environment(), log=log)
        with parley.Session(out=home / "s", **given) as s:
            taken = []
            for _ in range(queries + 1):
                begun = time.perf_counter()
                s.histogram("age", bins=100, epsilon=0.5)
                taken.append(time.perf_counter() - begun)
            first, *rest = taken
            begun = time.perf_counter()
            found = s.find_quantile("age", 0.5, step=1.0, epsilon=1.0)
            by_counts = time.perf_counter() - begun
    print(
        f"{parties} parties, 100 cells: median {statistics.median(rest):.3f} s "
        f"({min(rest):.3f} to {max(rest):.3f}) of {queries}, the first {first:.3f} s; a median "
        f"by {len(found.answers)} counts {by_counts:.3f} s"
    )


def main() -> None:
    """Measure one deployment and print one line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parties", type=int, default=3)
    parser.add_argument("--queries", type=int, default=12)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        measured(Path(home), given.parties, given.queries)


if __name__ == "__main__":
    main()
