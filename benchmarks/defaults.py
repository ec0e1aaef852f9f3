"""Measure the defaults, compared with ten rounds and with columns without a feature map.

    python benchmarks/defaults.py adult.csv.gz [--splits 10]
    python benchmarks/defaults.py --networks [--splits 5]
    python benchmarks/defaults.py --kdd99 kddcup.data_10_percent.gz   (all its 494,021 records)

Ten parties, δ = 1e-5, and another fifth of the records held out in every split. Figures are means
over splits with Student's 95 % interval, of the ranking (AUC) and of the likelier label (accuracy).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from scipy.stats import t as student

import parley

WAYS = {
    "10 rounds": ("algorithm.rounds=10", "model.features=none"),
    "auto, columns as they are": ("model.features=none",),
    "defaults": (),
}

NETWORKS = {
    kind: ("model.kind=mlp", f"algorithm.kind={kind}", "run.noise-shares=deal")
    for kind in ("distributed-dp-sgd", "fedavg")
}


def figures(source: tuple[str, ...], way: tuple[str, ...], epsilon: float, splits: int) -> str:
    """Return both measures of one setting, as a table's cells."""
    found: dict[str, list[float]] = {"auc": [], "accuracy": []}
    for seed in range(1, splits + 1):
        budget = (f"privacy.epsilon={epsilon}", "privacy.delta=1e-5", "parties.count=10")
        drawn = ("data.test-fraction=0.2", f"data.seed={seed}", f"run.seed={seed}")
        with tempfile.TemporaryDirectory() as folder:
            job = parley.load_job(overrides=[*source, *budget, *drawn, *way])
            summary = parley.run(job, out=Path(folder) / "run").summary.to_json()
        found["auc"].append(summary["judgement"]["auc"])
        found["accuracy"].append(summary["accuracy"])
    half = student.ppf(0.975, splits - 1) / splits**0.5
    return " | ".join(
        f"{statistics.mean(each):.4f} ± {half * statistics.stdev(each):.4f}"
        for each in found.values()
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("adult", nargs="?", help="the file of the Adult data set")
    parser.add_argument("--kdd99", help="the file of KDD Cup 1999, for the defaults alone")
    parser.add_argument("--networks", action="store_true", help="of mlp, on digits, too")
    parser.add_argument("--splits", type=int, default=10)
    asked = parser.parse_args()
    cancer = ("breast cancer", ("data.source=breast-cancer",))
    if asked.networks:
        tables, ways = (("digits", ("data.source=digits",)), cancer), NETWORKS
    elif asked.kdd99:
        kdd99 = (f"data.source={asked.kdd99}", "data.schema=examples/kddcup99.schema.toml")
        tables, ways = (("KDD99", kdd99),), {"defaults": ()}
    else:
        adult = (f"data.source={asked.adult}", "data.schema=examples/adult.schema.toml")
        tables, ways = (("Adult", adult), cancer), WAYS
    print("| table | ε | way | AUC | accuracy |\n|---|---|---|---|---|")
    for name, source in tables:
        for epsilon in (0.5, 2, 8):
            for way, keys in ways.items():
                got = figures(source, keys, epsilon, asked.splits)
                print(f"| {name} | {epsilon} | {way} | {got} |", flush=True)


if __name__ == "__main__":
    main()
