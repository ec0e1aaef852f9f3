"""What a sweep came to: a row a run, and for every cell the mean over its repetitions.

    half-width = t_{.975, n−1}·s/√n

is that of the 95 % interval of a mean of n repetitions (Student's t; none for n = 1). Repetitions
differ in their noise; the split differs too where `data.seed` is swept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import t

from parley.privacy.accounting.composition import Composition

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
"""Figures of which means are shown, all of simulations."""

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean, the half-width of its 95 % interval (None of one value), and of how many values."""

    mean: float
    half: float | None
    count: int


@dataclass(frozen=True, kw_only=True)
class Summarised:
    """The repetitions of a cell.

    Attributes:
        values: of the axes.
        epsilon, delta: what a run of it was charged: the largest.
        figures: name → its mean.
        failed: repetitions that failed.
        status: of those that didn't, where all have the same; else "mixed".
    """

    values: dict[str, Any]
    epsilon: float | None
    delta: float | None
    figures: dict[str, Mean]
    failed: int
    status: str


def mean_of(values: Sequence[float]) -> Mean:
    """The mean of values and its interval.

    >>> found = mean_of([1.0, 2.0, 3.0])
    >>> found.mean, round(found.half, 4), found.count
    (2.0, 2.4841, 3)
    """
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Mean(mean=mean, half=None, count=1)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return Mean(
        mean=mean, half=float(t.ppf(0.975, count - 1)) * spread / math.sqrt(count), count=count
    )


def summarised(rows: Sequence[Row], axes: Sequence[str]) -> list[Summarised]:
    """The rows by cell, in their order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(repr([row.get(axis) for axis in axes]), []).append(row)
    return [_summarised(own, axes) for own in groups.values()]


def _summarised(rows: Sequence[Row], axes: Sequence[str]) -> Summarised:
    good = [row for row in rows if row["status"] != "failed"]
    figures = {}
    for name in FIGURES:
        values = [row[name] for row in good if row.get(name) is not None]
        if values:
            figures[name] = mean_of(values)
    charged = [row["epsilon"] for row in good if row.get("epsilon") is not None]
    found = {row["status"] for row in good}
    return Summarised(
        values={axis: rows[0].get(axis) for axis in axes},
        epsilon=max(charged, default=None),
        delta=max((row["delta"] for row in good), default=None),
        figures=figures,
        failed=len(rows) - len(good),
        status=found.pop() if len(found) == 1 else "mixed" if found else "failed",
    )


def charged_together(rows: Sequence[Row]) -> tuple[float, float, str]:
    """What all runs would cost on the same real records, at most: ε, δ, and by which account.

    δ is Σδ. ε is the lower of Σε (basic composition) and what all of their releases together come
    to by the accountants that are proved for them: Gaussians, for one, add up in μ². A run at two
    positions of the grid is one.
    """
    runs = {row["cell"]: row for row in rows if row["status"] != "failed"}
    good = list(runs.values())
    delta = math.fsum(row["delta"] for row in good)
    basic = math.fsum(math.inf if row["epsilon"] is None else row["epsilon"] for row in good)
    if not good or not all(row.get("spent") for row in good):
        return basic, delta, "basic composition"
    together = Composition.empty()
    for row in good:
        spent = Composition.from_json(row["spent"])
        for event, count in spent.counts.items():
            together = together.add(event, count)
        together = replace(together, slack=together.slack + spent.slack)
    conversion, epsilon = together.epsilon(min(delta, 1.0 - 1e-9))
    return (epsilon, delta, conversion) if epsilon < basic else (basic, delta, "basic composition")


def write_results(rows: Sequence[Row], axes: Sequence[str], folder: Path) -> None:
    """Writes `results.parquet` (a row a run) and `summary.csv` (a row a cell)."""
    names = list(dict.fromkeys(name for row in rows for name in row if name != "spent"))
    _frame([{name: row.get(name) for name in names} for row in rows]).write_parquet(
        folder / "results.parquet"
    )
    cells = []
    for cell in summarised(rows, axes):
        row: Row = {**cell.values, "epsilon": cell.epsilon, "delta": cell.delta}
        for name in FIGURES:
            found = cell.figures.get(name)
            row[name] = None if found is None else found.mean
            row[f"{name} ±95 %"] = None if found is None else found.half
        row |= {"runs": max((m.count for m in cell.figures.values()), default=0)}
        cells.append(row | {"failed": cell.failed, "status": cell.status})
    _frame(cells).write_csv(folder / "summary.csv")


def _frame(rows: Sequence[Row]) -> pl.DataFrame:
    """Plain columns: one of several kinds of values, or of lists, becomes text."""
    columns = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        kinds = {type(value) for value in values if value is not None}
        if kinds <= {int, float} and bool not in kinds:
            typed = [None if v is None else float(v) for v in values] if float in kinds else values
        elif len(kinds) == 1 and kinds <= {str, bool}:
            typed = values
        else:
            typed = [None if value is None else str(value) for value in values]
        columns[name] = typed
    return pl.DataFrame(columns, infer_schema_length=None)


def as_number(value: Any) -> float | None:
    """A value of an axis as a number, None where it is none."""
    return (
        float(value)
        if isinstance(value, int | float | np.number) and not isinstance(value, bool)
        else None
    )
