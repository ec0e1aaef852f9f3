"""Compare the defaults' rule with the best of a grid of 45 settings per table.

    python benchmarks/grid.py measure --data FOLDER --splits 3 --lines grid.jsonl
    python benchmarks/grid.py print --lines grid.jsonl

The grid has no feature map, linear splines of 4, or of 8; the rule's clip norm times ½, 1, 2; and
the path length that its budget buys with that clip norm, times ¼, ½, 1, 2, 4. Rounds, rate and λ
follow as in the rule. It uses tables of over 2,000 records. Folder, tables, splits and measures are
those of `benchmarks/tables.py`. Each cell is a line, split by split, so that a stopped run can be
continued.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

from scipy.stats import t as student
from tables import judged, split_of, vars_of
from tables_data import SOURCES, NoTable, table_of
from tables_systems import Case, parley

from parley.server.jobs.auto_gradient_steps import (
    GradientStepChoices,
    choose_gradient_steps,
    choose_steps_for_path,
)

FEATURES = {
    "none": ("model.features=none",),
    "hats of 4": ("model.features=hats", "model.feature-settings.intervals=4"),
    "hats of 8": ("model.features=hats", "model.feature-settings.intervals=8"),
}
GRID = list(product(FEATURES, (0.5, 1.0, 2.0), (0.25, 0.5, 1.0, 2.0, 4.0)))
RULE = ("rule", 1.0, 1.0)
LEAST = 2_000


def scaled(clip: float, way: float) -> Callable[..., GradientStepChoices]:
    """Return the rule with other constants."""

    def ruled(*, curvature: float, **rest: Any) -> GradientStepChoices:
        found = choose_gradient_steps(curvature=curvature, **rest)
        steps = choose_steps_for_path(
            way / clip * 0.1 / found.lambda_, curvature=curvature, clip_norm=clip * found.clip_norm
        )
        level = found.level_rounds and -(-steps.rounds // 10)
        return replace(
            steps, average=found.average, rounds=steps.rounds + level, level_rounds=level
        )

    return ruled


def measure(asked: argparse.Namespace) -> None:
    done = {tuple(each[:6]) for each in read(asked.lines)}
    with tempfile.TemporaryDirectory() as folder, asked.lines.open("a") as lines:
        for split, name in product(range(1, asked.splits + 1), asked.tables):
            try:
                table = table_of(name, asked.data, asked.work)
            except NoTable as error:
                print(f"skipped {name}: {error}", flush=True)
                continue
            if table.records <= LEAST:
                continue
            base = split_of(table, split, Path(folder))
            for epsilon, cell in product(asked.epsilons, [RULE, *GRID]):
                if (name, epsilon, split, *cell) in done:
                    continue
                case = Case(**{**vars_of(base), "epsilon": epsilon, "parties": 10})
                features, clip, way = cell
                with patch(
                    "parley.server.jobs.auto_settings.choose_gradient_steps", scaled(clip, way)
                ):
                    score = judged(case, parley(case, FEATURES.get(features, ())))
                value = score.get("auc", score.get("r2"))
                lines.write(json.dumps([name, epsilon, split, *cell, value]) + "\n")
                lines.flush()


def read(lines: Path) -> list[list]:
    return [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []


def told(asked: argparse.Namespace) -> None:
    found: dict[tuple[str, float], dict[tuple, dict[int, float]]] = {}
    for name, epsilon, split, features, clip, way, value in read(asked.lines):
        cells = found.setdefault((name, epsilon), {})
        cells.setdefault((features, clip, way), {})[split] = value
    print("| table | ε | splits | rule | best of 45 | which | behind by, chosen on other splits |")
    print("|---|---|---|---|---|---|---|")
    for (name, epsilon), cells in found.items():
        whole = set.intersection(*(set(each) for each in cells.values()))
        if len(cells) < 1 + len(GRID) or len(whole) < 2:
            continue
        best, apart = best_of(cells, whole), []
        for split in whole:
            elsewhere = best_of(cells, whole - {split})
            apart.append(cells[elsewhere][split] - cells[RULE][split])
        half = student.ppf(0.975, len(apart) - 1) / len(apart) ** 0.5 * statistics.stdev(apart)
        features, clip, way = best
        print(
            f"| {name} | {epsilon:g} | {len(whole)} | {mean_of(cells[RULE], whole):.4f} "
            f"| {mean_of(cells[best], whole):.4f} | {features}, clip × {clip:g}, way × {way:g} "
            f"| {statistics.mean(apart):.4f} ± {half:.4f} |"
        )


def mean_of(values: dict[int, float], splits: set[int]) -> float:
    return statistics.mean(values[each] for each in splits)


def best_of(cells: dict[tuple, dict[int, float]], splits: set[int]) -> tuple:
    """Return the setting with the best mean over splits. On the same splits its mean is biased
    upward.
    """
    return max(GRID, key=lambda each: mean_of(cells[each], splits))


def main() -> None:
    """Measure, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("do", choices=("measure", "print"))
    parser.add_argument("--lines", type=Path, default=Path("grid.jsonl"))
    parser.add_argument("--data", type=Path, default=Path())
    parser.add_argument("--work", type=Path, default=Path("tables"))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--tables", nargs="+", default=list(SOURCES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 2.0])
    asked = parser.parse_args()
    measure(asked) if asked.do == "measure" else told(asked)


if __name__ == "__main__":
    main()
