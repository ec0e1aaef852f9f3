"""Measure how far a study's figures are from the pooled rows' figures, by ε of the whole study.

    PYTHONPATH=examples python benchmarks/study_errors.py flchain.csv [--draws 20]

`examples/study.toml` runs in one process, with noise in shares of five parties and its prices
multiplied by one factor. Figures are means over draws, with their standard error. They are the
error of a percentage of table one, in points, in each group; the largest error of each group's
curve; and the factor by which each hazard ratio is off (e to the mean of |log|, of the ratios with
a value). Told is the share of ratios that have a value. Inside is the share of figures whose
interval contains the pooled value. For ratios this is the sample's value, by Cox with exact times,
although their intervals are for the population.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import study
from study_pooled import pooled

from parley.analytics.query_file import QueryFile, load_queries

FACTORS = (0.25, 0.5, 1.0, 2.0)


def priced(factor: float) -> QueryFile:
    """Return the study with other prices."""
    file = load_queries(study.STUDY)
    batches = tuple(
        tuple(each if each.epsilon is None else replace(each, epsilon=factor * each.epsilon)
              for each in batch)
        for batch in file.batches
    )  # fmt: skip
    return replace(file, session={**file.session, "epsilon": 100.0}, batches=batches)


def errors(rows, answers):
    """Return figure → its errors, and for every figure whether its interval holds."""
    found, inside, curves = defaultdict(list), defaultdict(list), defaultdict(float)
    for each in pooled(rows, answers):
        error = abs(each.value - each.true)
        kind = each.what.split()[-1] if each.what.endswith("%") else each.what.split()[0]
        if kind == "%" and not math.isnan(error):
            found[f"% {each.group}"].append(error)
        elif kind == "alive" and not math.isnan(error):
            curves[f"curve {each.group}"] = max(curves[f"curve {each.group}"], error)
        elif kind == "hazard":
            found[f"told {each.group}"].append(not math.isnan(error))
            if not math.isnan(error):
                found[f"ratio {each.group}"].append(abs(math.log(each.value / each.true)))
        if not math.isnan(error):
            inside[f"inside {kind}"].append(each.low <= each.true <= each.high)
    return {name: np.mean(values) for name, values in (found | inside | {
        name: [value] for name, value in curves.items()}).items()}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--draws", type=int, default=20)
    options = parser.parse_args()
    rows = study.people(options.file)
    for factor in FACTORS:
        drawn, whole = defaultdict(list), ""
        for _ in range(options.draws):
            with tempfile.TemporaryDirectory() as home:
                text, answers = study.simulated(rows, Path(home) / "s", file=priced(factor))
            whole = text.splitlines()[0].split(" for all")[0]
            for name, value in errors(rows, answers).items():
                drawn[name].append(value)
        print(f"{whole} ({options.draws} draws)")
        for name, values in drawn.items():
            error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0.0
            print(f"  {name:24} {np.mean(values):.4f} ± {error:.4f}  of {len(values)}", flush=True)


if __name__ == "__main__":
    main()
