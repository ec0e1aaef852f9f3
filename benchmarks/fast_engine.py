"""Seconds a round of the fast engine, everything included, over numbers of parties.

A round is from one committed log line to the next: gradients of all parties, encoding, ring sum,
noise, decoding, step, accounting, ledger transaction (with its fsync), log line. Every m runs in a
process of its own, so that its peak memory is its own; the data's size is printed beside it.

    python benchmarks/fast_engine.py [--parties 100 1000 10000] [--json]
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCHEMA = """
scaling = "record"
[columns]
x = {{ kind = "array", shape = [{features}], range = [-1, 1] }}
y = {{ kind = "label", positive = [1], negative = [-1] }}
"""


class Clock:
    """An observer that notes when each round was committed."""

    def __init__(self):
        self.times = []

    def started(self, *facts):
        """The rounds begin."""
        self.times.append(time.perf_counter())

    def round_done(self, line):
        """A round is committed and logged."""
        self.times.append(time.perf_counter())


def make(parties, records, features, folder):
    """Writes the data, in its own process: what it takes is not the engine's."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.uniform(-0.2, 0.2, (parties * records, features))
    y = np.where(x @ rng.standard_normal(features) > 0, 1, -1)
    np.savez(folder / "data.npz", x=x, y=y)


def measure(parties, features, rounds, folder):
    """One run in this process; prints its figures as JSON."""
    from parley.server.jobs.file import load_job
    from parley.simulations.engine.fast import simulate

    (folder / "schema.toml").write_text(SCHEMA.format(features=features))
    job = load_job(
        overrides=[
            f"parties.count={parties}",
            f"data.source={folder / 'data.npz'}",
            f"data.schema={folder / 'schema.toml'}",
            "data.test-fraction=0",
            "model.intercept=false",
            f"algorithm.rounds={rounds}",
            "secure-aggregation.masked-check=false",
        ]
    )
    clock = Clock()
    simulate(job, out=folder / "run", observer=clock)
    laps = [after - before for before, after in zip(clock.times, clock.times[1:], strict=False)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps(
            {
                "parties": parties,
                "dimension": features,
                "median_ms": statistics.median(laps) * 1e3,
                "least_ms": min(laps) * 1e3,
                "mean_ms": statistics.mean(laps) * 1e3,
                "peak_mib": peak,
            }
        )
    )


def main():
    """Runs every size in its own process and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parties", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--records", type=int, default=50)
    parser.add_argument("--features", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        parties, folder = arguments.parties[0], Path(arguments.folder)
        if arguments.one == "data":
            make(parties, arguments.records, arguments.features, folder)
        else:
            measure(parties, arguments.features, arguments.rounds, folder)
        return
    rows = []
    for parties in arguments.parties:
        with tempfile.TemporaryDirectory() as folder:
            for step in ("data", "run"):
                done = subprocess.run(
                    [
                        # -P: benchmarks/secure_agg.py must not stand in for the package.
                        *(sys.executable, "-P", __file__, "--one", step, "--folder", folder),
                        *("--parties", str(parties), "--records", str(arguments.records)),
                        *("--features", str(arguments.features)),
                        *("--rounds", str(arguments.rounds)),
                    ],
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
        rows.append(json.loads(done.stdout))
        if not arguments.json:
            row = rows[-1]
            data = parties * arguments.records * arguments.features / 2**17
            print(
                f"m={parties:6d} n={arguments.records} d={row['dimension']}:  "
                f"median {row['median_ms']:7.2f} ms  least {row['least_ms']:7.2f} ms  "
                f"mean {row['mean_ms']:7.2f} ms   data {data:6.0f} MiB  "
                f"peak {row['peak_mib']:6.0f} MiB",
                flush=True,
            )
    if arguments.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
