"""Summarise a sweep: a row per run, and for each cell the mean over its repetitions.

    half-width = t_{0.975, n−1}·s/√n

is the half-width of the 95 % interval of a mean of n repetitions (Student's t; none for n = 1).
Repetitions differ in their noise. The split differs too if `data.seed` is swept.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import t

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.threat_model import Adversary
from parley.safe_io.csv_writing import escape_formulas

FIGURES = (
    "excess_loss",
    "loss",
    "accuracy",
    "r2",
    "auc",
    "baseline_accuracy",
    "baseline_r2",
    "baseline_loss",
    "aggregated_accuracy",
    "aggregated_r2",
    "aggregated_excess_loss",
)
"""Metrics with means, all measured in simulations."""

_RUN_METRICS = (*FIGURES, "recall", "precision", "majority_accuracy")

HALF_WIDTH = "{} ±95 %"
"""Suffix of the name of a metric's half-width."""

Row = dict[str, Any]
"""A run: values of the axes, and metrics by name. Or a cell, with the axes as its `values`."""


def summarise_rows(rows: Sequence[Row], axes: Sequence[str]) -> list[Row]:
    """Return the rows by cell, in order: the largest ε, means, half-widths, and number of runs.

    >>> row = {"privacy.epsilon": 1, "status": "complete", "epsilon": 1.0, "delta": 0.0}
    >>> (cell,) = summarise_rows([row | {"loss": x} for x in (1.0, 2.0, 3.0)], ["privacy.epsilon"])
    >>> cell["loss"], round(cell["loss ±95 %"], 4), cell["runs"]
    (2.0, 2.4841, 3)
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(repr([row.get(axis) for axis in axes]), []).append(row)
    return [_summarise_cell(own, axes) for own in groups.values()]


def _summarise_cell(rows: Sequence[Row], axes: Sequence[str]) -> Row:
    good = [row for row in rows if row["status"] != "failed"]
    found = {row["status"] for row in good}
    charged = [row["epsilon"] for row in good if row.get("epsilon") is not None]
    cell: Row = {
        "values": {axis: rows[0].get(axis) for axis in axes},
        "epsilon": max(charged, default=None),
        "delta": max((row["delta"] for row in good), default=None),
        "assumptions": format_assumptions(good),
    }
    counts = {}
    for name in FIGURES:
        values = np.array([row[name] for row in good if row.get(name) is not None], dtype=float)
        counts[name] = count = len(values)
        cell[name] = float(values.mean()) if count else None
        cell[HALF_WIDTH.format(name)] = None
        if count > 1:
            spread = float(values.std(ddof=1)) / math.sqrt(count)
            cell[HALF_WIDTH.format(name)] = float(t.ppf(0.975, count - 1)) * spread
    status = found.pop() if len(found) == 1 else "mixed" if found else "failed"
    return cell | {
        "runs": max(counts.values()),
        "counts": counts,
        "failed": len(rows) - len(good),
        "status": status,
    }


def format_assumptions(rows: Sequence[Row]) -> str:
    """Return the assumptions of any run's ε beyond its proof, or an empty text."""
    return "; ".join(dict.fromkeys(each for row in rows for each in row.get("assumptions", ())))


def format_scope(rows: Sequence[Row], axes: Sequence[str] = ()) -> str:
    """Return what the ε of runs protects, against whom, and what it assumes.

    If runs have different adversaries, each is followed by its positions on the axes.
    """
    scopes = dict.fromkeys(f"per {row['unit']} ({row['neighbouring']})" for row in rows)
    labels: dict[str, dict[str, None]] = {}
    for row in rows:
        of = labels.setdefault(Adversary(row["adversary"]).words, {})
        of[format_cell_label({"values": row}, axes)] = None
    against = ", or ".join(labels)
    if len(labels) > 1 and axes:
        against = "; ".join(f"{words} ({', '.join(names)})" for words, names in labels.items())
    assumed = format_assumptions(rows)
    assuming = f"; assuming: {assumed}" if assumed else ""
    return f"{' or '.join(scopes)}, against {against}{assuming}"


def compute_total_charge(rows: Sequence[Row]) -> tuple[float, float, str]:
    """Return the maximum cost of all runs on the same real records: ε, δ, and the account.

    δ is Σδ. ε is the lower of Σε (basic composition) and the cost of all releases together by the
    accountants that are proved for them. For example, Gaussians add up in μ². A run at two
    positions of
    the grid counts once.
    """
    runs = {row["cell"]: row for row in rows if row["status"] != "failed"}
    good = list(runs.values())
    delta = math.fsum(row["delta"] for row in good)
    basic = math.fsum(math.inf if row["epsilon"] is None else row["epsilon"] for row in good)
    if not good or not all(row.get("spent") for row in good):
        return basic, delta, "basic composition"
    together = Composition()
    for row in good:
        spent = Composition.from_json(row["spent"])
        for event, count in spent.counts.items():
            together = together.add(event, count)
        distance = together.sampler_distance + spent.sampler_distance
        together = replace(together, sampler_distance=distance)
    conversion, epsilon = together.compute_lowest_epsilon(min(delta, 1.0 - 1e-9))
    return (epsilon, delta, conversion) if epsilon < basic else (basic, delta, "basic composition")


def write_results(rows: Sequence[Row], axes: Sequence[str], folder: Path) -> None:
    """Write `results.csv` (a row per run) and `summary.csv` (a row per cell and metric)."""
    runs = [_build_run(row, axes, folder) for row in rows]
    means = [mean for cell in summarise_rows(rows, axes) for mean in _list_means(cell)]
    measured = {mean["metric"] for mean in means if mean["runs"]}
    shown = [mean for mean in means if mean["metric"] in measured] or means
    for name, table in (("results.csv", runs), ("summary.csv", shown)):
        escape_formulas(_build_frame(table)).write_csv(folder / name)


def _build_run(row: Row, axes: Sequence[str], folder: Path) -> Row:
    """Return the columns of `results.csv` for a run."""
    place = row.get("folder")
    return {
        **{axis: row.get(axis) for axis in axes},
        **{name: row.get(name) for name in ("model", "algorithm", "parties", "records")},
        **{name: row.get(name) for name in ("unit", "neighbouring", "adversary")},
        "epsilon_budget": row.get("epsilon_budget"),
        "epsilon_charged": row.get("epsilon"),
        "delta": row.get("delta"),
        "assumptions": format_assumptions([row]),
        "seed": row.get("repetition"),
        **{name: row.get(name) for name in _RUN_METRICS},
        "simulation_only": True,
        "rounds": row.get("rounds_done"),
        "seconds": row.get("seconds"),
        "status": row["status"],
        "error": row.get("error", ""),
        "run": None if place is None else os.path.relpath(place, folder),
    }


def _list_means(cell: Row) -> list[Row]:
    """Return the rows of `summary.csv` for a cell."""
    return [
        {
            **cell["values"],
            "epsilon_charged": cell["epsilon"],
            "delta": cell["delta"],
            "metric": name,
            "mean": cell[name],
            "half_width_95": cell[HALF_WIDTH.format(name)],
            "runs": cell["counts"][name],
            "failed": cell["failed"],
            "status": cell["status"],
            "assumptions": cell["assumptions"],
        }
        for name in FIGURES
    ]


def format_cell_label(cell: Row, axes: Sequence[str]) -> str:
    """Return a cell's position on some axes, in words.

    >>> cell = {"values": {"method": "a", "parties.count": 5}}
    >>> format_cell_label(cell, ["method", "parties.count"])
    'a · 5 parties'
    """
    words = {"method": "{}", "parties.count": "{} parties", "privacy.epsilon": "ε = {}"}
    return " · ".join(
        words.get(axis, axis.rpartition(".")[2] + " {}").format(cell["values"][axis])
        for axis in axes
    )


def _build_frame(rows: Sequence[Row]) -> pl.DataFrame:
    """Return plain columns. A column with several kinds of values, or with lists, becomes text."""
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        kinds = {type(value) for value in values if value is not None}
        numbers = kinds <= {int, float}
        if numbers and float in kinds:
            values = [None if value is None else float(value) for value in values]
        elif not numbers and not (len(kinds) == 1 and kinds <= {str, bool}):
            values = [None if value is None else str(value) for value in values]
        columns[name] = values
    return pl.DataFrame(columns, infer_schema_length=None)


def to_number(value: Any) -> float | None:
    """Return an axis value as a number, or None if it is not one."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return float(value) if number else None
