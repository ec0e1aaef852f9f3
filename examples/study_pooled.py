"""Compute the figures of the pooled rows of `study.py`, and compare them with the released ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from parley.analytics.table_one_output import TableOne

Floats = NDArray[np.float64]
QUARTERS = {"lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75}


class Beside(NamedTuple):
    """A released figure with its interval, and the pooled rows' figure."""

    what: str
    group: str
    value: float
    low: float
    high: float
    true: float


def pooled(rows: pl.DataFrame, answers: list[dict[str, Any]]) -> Iterator[Beside]:
    """Yield every figure of the table one and of the curves, with that of all rows together."""
    table = [each for each in answers if each["name"].startswith("table one")]
    for each in TableOne.from_answers(table).figures:
        if each.category and each.statistic == "n":
            continue  # its percentage has the same information
        own = rows.filter(pl.col("flc") == each.group)
        what = f"{each.column} {each.category}".strip()
        true = described(own, each.column, each.category, each.statistic)
        yield Beside(f"{what} {each.statistic}".strip(), each.group, *each[-3:], true)
    (curve,) = (each["table"] for each in answers if each["name"] == "survival")
    keys = ("flc", "days to", "value", "low", "high")
    for group, end, *noisy in zip(*(curve[key] for key in keys), strict=True):
        ends = np.array(noisy, dtype=float)
        true = kaplan_meier(rows.filter(pl.col("flc") == group), end)
        yield Beside(f"alive at {end / 365:.0f} years", group, *ends, true)
    (ratios,) = (each["table"] for each in answers if each["name"] == "hazard ratios")
    names = ratios["coefficient"]
    for name, *noisy, true in zip(
        names,
        *(np.exp(np.array(ratios[end], dtype=float)) for end in keys[2:]),
        hazard_ratios(rows, names),
        strict=True,
    ):
        yield Beside("hazard ratio", name, *noisy, true)


def hazard_ratios(rows: pl.DataFrame, names: list[str]) -> Floats:
    """Return Cox's hazard ratios of exact times, with Breslow's ties; "column: category" is an
    indicator.
    """
    parts = [name.partition(": ") for name in names]
    columns = [rows[column] == value if value else rows[column] for column, _, value in parts]
    order = np.argsort(-rows["days"].to_numpy(), kind="stable")
    x = np.column_stack([column.cast(pl.Float64).to_numpy() for column in columns])[order]
    x -= x.mean(axis=0)
    days, died = (rows[name].to_numpy()[order] for name in ("days", "death"))
    last = (
        np.searchsorted(-days, -days[died == 1], side="right") - 1
    )  # last person at risk at each death
    found = np.zeros(len(names))
    for _ in range(12):
        weights = np.exp(x @ found)
        total = np.cumsum(weights)[last]
        mean = np.cumsum(weights[:, None] * x, axis=0)[last] / total[:, None]
        squares = np.cumsum(weights[:, None, None] * x[:, :, None] * x[:, None], axis=0)[last]
        bent = (squares / total[:, None, None] - mean[:, :, None] * mean[:, None]).sum(axis=0)
        found += np.linalg.solve(bent, (x[died == 1] - mean).sum(axis=0))
    return np.asarray(np.exp(found))


def described(rows: pl.DataFrame, column: str, category: str, statistic: str) -> float:
    """Return one figure of a table one, by its definition."""
    own = rows.filter(pl.col(column) == category) if category else rows
    values = np.sort(rows[column].to_numpy()) if column and not category else np.array([])
    if statistic in ("mean", "sd"):
        return float(values.mean() if statistic == "mean" else values.std())
    if len(values):
        return float(values[int(np.ceil(QUARTERS[statistic] * len(values))) - 1])
    return len(own) if statistic == "n" else 100 * len(own) / len(rows)


def kaplan_meier(rows: pl.DataFrame, end: float) -> float:
    """Return the Kaplan–Meier estimate of exact times."""
    days, died = rows["days"].to_numpy(), rows["death"].to_numpy() == 1
    times, deaths = np.unique(days[died & (days <= end)], return_counts=True)
    at_risk = len(days) - np.searchsorted(np.sort(days), times)
    return float(np.prod(1 - deaths / at_risk))


def shown(answers: list[dict[str, Any]], rows: pl.DataFrame) -> str:
    """Format a line per figure."""
    lines = [f"{'':38}{'released':>10}  {'interval':^19}{'pooled':>10}"]
    for each in pooled(rows, answers):
        ends = f"{each.low:,.4g} … {each.high:,.4g}"
        lines.append(
            f"{each.what:25} {each.group:12}{each.value:>10,.4g}  {ends:^19}{each.true:>10,.4g}"
        )
    return "\n".join(lines)
