"""Time a round of the fast engine, everything included, for different numbers of parties.

A round is the time between two committed log lines. It includes the gradients of all parties,
encoding, ring sum, noise, decoding, step, accounting, ledger transaction (with its fsync) and log
line. Every m runs in its own process, so that its peak memory is separate. The data's size is
printed next to it.

    python benchmarks/fast_engine.py [--parties 100 1000 10000] [--json]
    python benchmarks/fast_engine.py --figures   # to a million parties, rows in a mapped file
"""

import argparse
import itertools
import json
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


FIGURES = (
    (1000, 50, 120, 60, True),
    (10_000, 50, 120, 30, True),
    (10_000, 10, 31, 30, True),
    (100_000, 10, 31, 12, True),
    (1_000_000, 10, 31, 6, True),
)
"""m, n, d, rounds, and whether the rows are in a mapped file."""


class Clock:
    """An observer that records when each round was committed."""

    def __init__(self):
        self.times = []

    def started(self, *facts):
        """Record the start of the rounds."""
        self.times.append(time.perf_counter())

    def round_done(self, line):
        """Record that a round is committed and logged."""
        self.times.append(time.perf_counter())


def make(parties, records, features, folder):
    """Write the data in its own process, so that its memory does not count."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.uniform(-0.2, 0.2, (parties * records, features))
    y = np.where(x @ rng.standard_normal(features) > 0, 1, -1)
    np.savez(folder / "data.npz", x=x, y=y)


def job_of(parties, features, rounds, folder, mapped):
    """Return the job, with cached rows if they are to be mapped."""
    from parley.server.jobs.job_file import load_job

    (folder / "schema.toml").write_text(SCHEMA.format(features=features))
    return load_job(
        overrides=[
            f"parties.count={parties}",
            f"data.source={folder / 'data.npz'}",
            f"data.schema={folder / 'schema.toml'}",
            "data.test-fraction=0",
            "model.intercept=false",
            f"algorithm.rounds={rounds}",
            "secure-aggregation.masked-check=false",
            "privacy.delta=1e-9",
            f"run.evaluate-every={0 if mapped else 'auto'}",
            *([f"run.prepared={folder / 'prepared'}"] if mapped else []),
        ]
    )


def prepare(job):
    """Prepare the rows and cache them, in a separate process."""
    from parley.simulations.data.experiment_loading import load_experiment

    load_experiment(job)


def measure(job, parties, features):
    """Run once in this process and print its figures as JSON."""
    from parley.simulations.engine.fast_engine import simulate

    folder = Path(job.data.source).parent
    clock = Clock()
    done = simulate(job, out=folder / "run", observer=clock)
    laps = [after - before for before, after in itertools.pairwise(clock.times)]
    print(
        json.dumps(
            {
                "parties": parties,
                "dimension": features,
                "median_ms": statistics.median(laps) * 1e3,
                "least_ms": min(laps) * 1e3,
                "mean_ms": statistics.mean(laps) * 1e3,
                "data_mib": done.summary.data_mib,
                "peak_mib": done.summary.peak_mib,
            }
        )
    )


def main():
    """Run every size in its own process and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parties", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--records", type=int, default=50)
    parser.add_argument("--features", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--figures", action="store_true", help="sizes of docs/benchmarks-speed.md")
    parser.add_argument("--mapped", action="store_true", help="rows in a mapped file")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    shape = (arguments.records, arguments.features, arguments.rounds)
    if arguments.one:
        parties, folder = arguments.parties[0], Path(arguments.folder)
        if arguments.one == "data":
            make(parties, shape[0], shape[1], folder)
            return
        job = job_of(parties, shape[1], shape[2], folder, arguments.mapped)
        if arguments.one == "prepare":
            prepare(job)
        else:
            measure(job, parties, shape[1])
        return
    sizes = [(m, *shape, arguments.mapped) for m in arguments.parties]
    rows = []
    for parties, records, features, rounds, mapped in FIGURES if arguments.figures else sizes:
        with tempfile.TemporaryDirectory() as folder:
            for step in ("data", "prepare", "run") if mapped else ("data", "run"):
                done = subprocess.run(
                    [
                        # -P: benchmarks/secure_agg.py must not replace the package.
                        *(sys.executable, "-P", __file__, "--one", step, "--folder", folder),
                        *("--parties", str(parties), "--records", str(records)),
                        *("--features", str(features), "--rounds", str(rounds)),
                        *(["--mapped"] if mapped else []),
                    ],
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
        rows.append(json.loads(done.stdout))
        if not arguments.json:
            row = rows[-1]
            print(
                f"m={parties:7d} n={records} d={row['dimension']}:  "
                f"median {row['median_ms']:7.2f} ms  least {row['least_ms']:7.2f} ms  "
                f"mean {row['mean_ms']:7.2f} ms   data {row['data_mib']:6.0f} MiB  "
                f"peak {row['peak_mib']:6.0f} MiB"
                + ("  (rows in a mapped file)" if mapped else ""),
                flush=True,
            )
    if arguments.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
