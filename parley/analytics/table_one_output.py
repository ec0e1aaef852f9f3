"""Format table one as text, CSV and page rows; each figure has its noise interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from parley.analytics.answer import UNIT_LIMITS, align_columns, format_to_width
from parley.client.queries.base import get_answer_key
from parley.privacy.accounting.rounding import format_exact
from parley.privacy.accounting.threat_model import Adversary, Unit
from parley.privacy.estimation.noise_intervals import (
    CellNoise,
    clip_to_possible,
    compute_ratio_interval,
)
from parley.safe_io.csv_writing import format_csv

_QUARTILES = ("lower quartile", "median", "upper quartile")
_LINES = (
    (("n", "%"), "{} ({}%)", "n (%)"),
    (("n",), "{}", "n"),
    (("mean", "sd"), "{} ± {}", "mean ± sd"),
    (("median", *_QUARTILES[::2]), "{} [{}, {}]", "median [quartiles]"),
)
"""Statistics that share a cell, their format, and the name of their row."""
_WHOLE = 10.0
"""Width of an interval whose numbers are shown without decimals, such as those of counts."""


class TableFigure(NamedTuple):
    """One figure, which is a line of the CSV; NaN if there are too few records for its ε.

    Attributes:
        low, high: Noise interval of 95 %.
    """

    column: str
    category: str
    group: str
    statistic: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class TableOne:
    """A released table.

    Attributes:
        groups: Categories of the column `by`; one entry if it is empty.
        facts: JSON of one of the answers, for the cost of all of them together.
    """

    figures: tuple[TableFigure, ...]
    groups: tuple[str, ...]
    by: str
    facts: dict[str, Any]

    @classmethod
    def from_answers(cls, answers: Sequence[dict[str, Any]]) -> Self:
        """Build the table from a batch's answers, as `Answer.to_json` returns them."""
        first, by = answers[0], answers[0]["query"]["by"]
        groups = tuple(first["table"][get_answer_key(by[0])]) if by else ("all",)
        figures = tuple(_list_figures(answers, groups))
        return cls(figures=figures, groups=groups, by=by[0] if by else "", facts=first)

    @property
    def head(self) -> str:
        """Cost of the whole table, with unit, relation and adversary."""
        facts, budget = self.facts, self.facts["budget"]
        return (
            f"Table one: ε = {format_exact(facts['epsilon'])} for the whole table at δ = "
            f"{format_exact(budget['delta'])} ({budget['unit']}, {budget['neighbouring']}; against "
            f"{Adversary(facts['against']).short})"
        )

    @property
    def shown(self) -> tuple[str, ...]:
        """Groups with more records than the noise; all groups if none has."""
        sizes = [each for each in self.figures if not each.column]
        return tuple(each.group for each in sizes if each.low > 0) or self.groups

    @property
    def rows(self) -> list[list[str]]:
        """Rows in the order in which papers show them: a label, then a cell per group.

        A cell has the intervals of its values in its second line. A heading has no cells.
        """
        found: dict[tuple[str, str], dict[tuple[str, str], TableFigure]] = {}
        for each in self.figures:
            own = found.setdefault((each.column, each.category), {})
            own[each.group, each.statistic] = each
        rows, last = list[list[str]](), ""
        for (column, category), own in found.items():
            known = {statistic for _, statistic in own}
            lines = [line for line in _LINES if set(line[0]) <= known]
            for statistics, form, name in lines[:1] if category else lines:
                if category and column != last:
                    rows.append([f"{column}, {name}"])
                label = f"  {category}" if category else f"{column}, {name}".removeprefix(", ")
                cells = ([own[group, each] for each in statistics] for group in self.shown)
                rows.append([label, *(self._format_cell(form, each) for each in cells)])
                last = column
        return rows

    def _format_cell(self, form: str, figures: Sequence[TableFigure]) -> str:
        """Return a cell's values and, in a second line, their intervals."""
        widths = [self._widths[_get_rounding_group(each)] for each in figures]
        shown = [
            [format_to_width(number, width) for number in each[-3:]]
            for each, width in zip(figures, widths, strict=True)
        ]
        values = form.format(*(value for value, _, _ in shown))
        ends = form.format(*(f"{low}…{high}" for _, low, high in shown))
        return f"{values}\n{ends}"

    @cached_property
    def _widths(self) -> dict[tuple[str, str], float]:
        """Median interval widths, by which figures are rounded alike in all groups."""
        found: dict[tuple[str, str], list[float]] = {}
        for each in self.figures:
            width = _WHOLE if each.statistic == "n" else each.high - each.low
            found.setdefault(_get_rounding_group(each), []).extend([width] if width > 0 else [])
        return {kind: median(widths) if widths else 0.1 for kind, widths in found.items()}

    @property
    def notes(self) -> list[str]:
        """Notes on the meaning of the figures and their assumptions."""
        facts, unit = self.facts, Unit(self.facts["budget"]["unit"])
        said = [
            f"{facts['survivors']} of {facts['parties']} parties; {facts['law']} noise. Below each "
            "figure is its noise interval (95 % each), which does not cover the variation between "
            "samples of records. Standard deviations use the divisor n, not n − 1."
        ]
        if hidden := [group for group in self.groups if group not in self.shown]:
            said.append(
                f"Left out, because they have fewer records than their noise: {', '.join(hidden)} "
                "(in the CSV)."
            )
        shown = [each for each in self.figures if each.group in self.shown]
        if any(math.isnan(each.value) for each in shown):
            said.append("–: too few records for this ε.")
        counts = [each for each in shown if each.statistic in ("n", "%")]
        if any(each.high < 0 or (each.statistic == "%" and each.low > 100) for each in counts):
            said.append(
                "Values below 0, or above 100 %: the noise of a count near that end was larger "
                "than in 95 % of draws."
            )
        if facts["assumptions"]:
            said.append(f"Assuming: {'; '.join(facts['assumptions'])}.")
        if unit in UNIT_LIMITS:
            said.append(f"{UNIT_LIMITS[unit]}.")
        if facts["seeded"]:
            said.append("The noise is seeded: repeatable, without any protection.")
        return said

    def __str__(self) -> str:
        lines: list[Sequence[str]] = [("", *self.shown)] if self.by else []
        for label, *cells in self.rows:
            both = [cell.split("\n") for cell in cells]
            lines.append((label, *(value for value, _ in both)))
            if both:
                lines.append(("", *(ends for _, ends in both)))
        texts = align_columns(lines, range(1, max(map(len, lines))))
        return "\n".join([self.head, "", *texts, "", *self.notes])

    def to_csv(self) -> str:
        """Return the table as CSV with a line per figure of every group. The first line, after #,
        has the cost.
        """
        rows = (
            [*each[:4], *("" if math.isnan(x) else x for x in each[4:])] for each in self.figures
        )
        return format_csv(TableFigure._fields, rows, note=self.head)


def _get_rounding_group(figure: TableFigure) -> tuple[str, str]:
    """Return the key of figures that are rounded alike, such as a column's quantiles.

    >>> _get_rounding_group(TableFigure("age", "", "all", "lower quartile", 35.0, 34.0, 36.0))
    ('age', 'quartile')
    """
    quartile = figure.statistic in _QUARTILES
    return figure.column, "quartile" if quartile else figure.statistic


def _list_figures(
    answers: Sequence[dict[str, Any]], groups: Sequence[str]
) -> Iterator[TableFigure]:
    """Yield the figures group by group and cell by cell, in the answers' order."""
    first, *others = answers
    asked = first["query"]
    if "column" not in asked:
        sizes, noise = _to_array(first["table"]), float(first["scale"])
    else:  # the total number of records is public
        others, noise = list(answers), 0.0
        sizes = np.full((1, 3), float(first["records"]))
    for group, ends in zip(groups, sizes.tolist(), strict=True):
        yield TableFigure("", "", group, "n", *_clip_to_possible(ends))
    for each in others:
        column = each["query"]["column"]
        ends = _to_array(each["table"]).reshape(len(groups), -1, 3)
        texts, mean = each["table"].get(get_answer_key(column)), each.get("beside", {}).get("mean")
        for place, group in enumerate(groups):
            rows = ends[place].tolist()
            if texts is not None:  # categories of each group in turn
                for text, row in zip(texts, rows, strict=False):
                    yield TableFigure(column, text, group, "n", *_clip_to_possible(row))
                    size, scale = sizes[place][0], float(each["scale"])
                    share = _compute_percentage(row, size, scale, noise, first)
                    yield TableFigure(column, text, group, "%", *share)
            elif mean is not None:
                yield TableFigure(column, "", group, "mean", *_to_array(mean)[place].tolist())
                yield TableFigure(column, "", group, "sd", *np.sqrt(rows[0]).tolist())
            else:
                for name, row in zip(_QUARTILES, rows, strict=True):
                    yield TableFigure(column, "", group, name, *row)


def _to_array(table: dict[str, Any]) -> NDArray[np.float64]:
    """Return `[rows, 3]` value, low and high; NaN for JSON's null."""
    return np.array([table[end] for end in ("value", "low", "high")], dtype=np.float64).T


def _compute_percentage(
    row: Sequence[float], size: float, scale: float, noise: float, facts: dict[str, Any]
) -> tuple[float, float, float]:
    """Return a noisy count as a percentage of its group's, with Fieller's interval, or of a public
    N.

    Consistent counts may share noise, with the same sign in both. Treating it as independent gives
    the wider interval.
    """
    ends: Sequence[float]
    if noise:
        tail = CellNoise(law=facts["law"], scale=1.0).build_ratio_tail(scale, noise)
        ends = [float(end) for end in compute_ratio_interval(row[0], size, tail, 0.05)]
    else:
        ends = [end / size for end in row[1:]]
    if math.isnan(ends[0]):
        return math.nan, math.nan, math.nan
    return _clip_to_possible([100 * end for end in (row[0] / size, *ends)], most=100.0)


def _clip_to_possible(row: Sequence[float], most: float = math.inf) -> tuple[float, float, float]:
    value, low, high = clip_to_possible(*np.array(row, dtype=np.float64), maximum=most)
    return float(value), float(low), float(high)
