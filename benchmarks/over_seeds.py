"""Accuracy and excess loss of one job in two checkouts of Parley, over the same seeds.

    git worktree add ../before COMMIT
    python -P benchmarks/over_seeds.py ../before . --seeds 10 examples/adult-bins.toml KEY=VALUE …

A seed draws the noise. Printed are both means with Student's 95 % interval, and the mean of the
differences seed by seed with its own, which is narrower where the same seed draws the same noise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.stats


def run(file: str, overrides: list[str], seeds: int) -> None:
    """A line of JSON for each seed."""
    from parley.server.jobs.file import load_job
    from parley.simulations.engine.fast import simulate

    with tempfile.TemporaryDirectory() as folder:
        kept = f"run.prepared={folder}/prepared"
        for seed in range(1, seeds + 1):
            own = [*overrides, kept, f"run.seed={seed}", "run.evaluate-every=0"]
            summary = simulate(load_job(file, overrides=own), out=Path(folder) / f"{seed}").summary
            print(json.dumps([summary.accuracy, summary.excess_loss]), flush=True)


def interval(values: np.ndarray) -> str:
    """Mean ± half of Student's interval."""
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.6f} ± {half:.6f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("job")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run(options.job, options.overrides, options.seeds)
        return
    found = []
    for checkout in (options.before, options.after):
        told = subprocess.run(
            [sys.executable, "-P", __file__, ".", ".", options.job, *options.overrides, "--one",
             f"--seeds={options.seeds}"],
            env={**os.environ, "PYTHONPATH": str(checkout.resolve())},
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        lines = [line for line in told.splitlines() if line.startswith("[")]
        found.append(np.array([json.loads(line) for line in lines], dtype=float))
    before, after = found
    for at, name in enumerate(("accuracy", "excess loss")):
        print(f"{name:12} before {interval(before[:, at])}, after {interval(after[:, at])}, ")
        print(f"{'':12} after less before {interval(after[:, at] - before[:, at])}")


if __name__ == "__main__":
    main()
