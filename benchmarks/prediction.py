"""Measure how fast a linear model predicts, and how fast `parley predict` starts, in half a minute.

    python benchmarks/prediction.py [--rows 1000000] [--repeats 5]

Rows are an in-memory frame (30 numbers each). The command reads a CSV file, which costs more than
the prediction. Figures are medians, with the minimum and the maximum.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

import parley


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "run"
        quick = ["run.seed=1", "parties.count=2", "algorithm.rounds=2"]
        parley.run(parley.load_job(overrides=quick), out=folder)
        model = parley.load_model(folder)
        rng = np.random.default_rng(0)
        frame = pl.DataFrame({name: rng.random(asked.rows) for name in model.feature_names_in_})
        _tell("predict, rows a second", asked, lambda: model.predict(frame), asked.rows)
        _tell("predict_proba, rows a second", asked, lambda: model.predict_proba(frame), asked.rows)
        file = Path(made) / "few.csv"
        frame.head(1).write_csv(file)

        def command() -> None:
            out = Path(made) / f"{time.monotonic_ns()}.csv"
            told = [sys.executable, "-m", "parley", "predict", folder, file, "--out", out]
            subprocess.run(told, check=True, stdout=subprocess.DEVNULL)

        _tell("parley predict of one row, seconds", asked, command)
        told = (
            f"import sys, parley; parley.load_model({str(folder)!r}); print('torch' in sys.modules)"
        )
        subprocess.run([sys.executable, "-c", f"{told}"], check=True)


def _tell(name: str, asked: argparse.Namespace, call: Callable[[], object], rows: int = 0) -> None:
    taken = []
    for _ in range(asked.repeats):
        before = time.perf_counter()
        call()
        taken.append(time.perf_counter() - before)
    figures = sorted(rows / each if rows else each for each in taken)
    middle = statistics.median(figures)
    print(f"{name}: {middle:,.3g} ({figures[0]:,.3g} to {figures[-1]:,.3g})")


if __name__ == "__main__":
    main()
