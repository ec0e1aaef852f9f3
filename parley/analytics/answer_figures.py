"""Each answer of a session as a figure or a table of its page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from parley.analytics.answer import ENDS, Answer, shown_number, shown_rows
from parley.privacy.accounting.rounding import as_written, shown_up
from parley.privacy.ledger.budget import DatasetBudget
from parley.report.interval_plots import interval_rows, interval_steps
from parley.report.parts import NOTHING, Figure, Key, Table
from parley.report.plots import Curve as Line
from parley.report.plots import Palette, curves

_MOST_ROWS = 24
_MOST_STEPS = 400
_MOST_CELLS = 200
"""Of a table on the page; the folder has them all."""
_COVERED = {
    False: "without noise",
    True: "in the population that the records are drawn from, by a normal approximation",
}


def numbers_table(answers: Sequence[Answer]) -> Table:
    """Answers of one number each, with intervals that cover the same."""
    rows = []
    for each in answers:
        low, high = each.interval
        shown = [shown_number(x, high - low) for x in (each.value, low, high)]
        if not math.isfinite(each.value):
            shown[0] = "too few records for this ε"
        rows.append([each.title, *shown, as_written(each.ledger.epsilon)])
    return Table(
        caption=f"Answers of one number, with the {answers[0].intervals}: of the value "
        f"{_COVERED[answers[0].intervals.sampling]}",
        head=["asked", "answer", "from", "to", "ε"],
        rows=rows,
    )


def answer_figure(answer: Answer) -> Figure:
    """An answer of several cells: drawn where that shows something, and a table."""
    table, keys = answer.table, [name for name in answer.table if name not in ENDS]
    values = [np.asarray(table[name], dtype=np.float64) for name in ("low", "value", "high")]
    low, value, high = values
    known = np.isfinite(value) & np.isfinite(low) & np.isfinite(high)
    count, rows = len(value), shown_rows(table, _MOST_CELLS)
    more = f"; the first {_MOST_CELLS} of {count:,} cells" if count > _MOST_CELLS else ""
    name, intervals = answer.title, answer.intervals.several
    finding = _finding(answer, int((~known).sum()))
    drawn: dict[str, Any] = {"title": name, "description": finding}
    plot = NOTHING
    if known.any():
        edges = [k for k in keys if k.endswith((" from", " to"))]
        if len(keys) == 2 == len(edges) and count <= _MOST_STEPS and known.all():
            spans = [np.asarray(table[edge], dtype=np.float64) for edge in edges]
            steps = list(zip(*(x.tolist() for x in (*spans, low, value, high)), strict=True))
            plot = interval_steps(steps, x_title=edges[0].removesuffix(" from"), **drawn)
        elif count <= _MOST_ROWS:
            texts = [at for at, key in enumerate(keys) if isinstance(table[key][0], str)]
            marks = [" · ".join(row[at] for at in texts or range(len(keys))) for row in rows]
            named = [
                (marks[k] or name, float(low[k]), float(value[k]), float(high[k]))
                for k in np.flatnonzero(known)
            ]
            plot = interval_rows(
                named, x_title="", from_zero=bool((value[known] >= 0).all()), **drawn
            )
    key = (
        Key(name="answer", colour=Palette.ACCENT, width=3),
        Key(name=str(answer.intervals), colour=Palette.QUIET),
    )
    return Figure(
        title=name,
        finding=finding,
        plot=plot,
        data=Table(
            caption=f"{intervals[:1].upper()}{intervals[1:]}{more}", head=[*keys, *ENDS], rows=rows
        ),
        keys=key if plot else (),
    )


def _finding(answer: Answer, unknown: int) -> str:
    charge = answer.ledger
    together = f" for {charge.queries} queries together" if charge.queries > 1 else ""
    few = f" {unknown} of the cells have too few records for this ε." if unknown else ""
    return (
        f"{len(answer.table['value']):,} cells from {answer.survivors} of {answer.parties} "
        f"parties; {answer.law}, scale {answer.scale:.4g}; "
        f"ε = {as_written(charge.epsilon)}{together}.{few}"
    )


def budget_figure(answers: Sequence[Answer], budget: DatasetBudget) -> Figure | None:
    """ε spent of the data's budget, release by release; None where nothing was asked of it."""
    own = {
        each.ledger.index: each.ledger for each in answers if each.ledger.budget.key == budget.key
    }
    if not own:
        return None
    finding = (
        f"After release {max(own)} ε = {shown_up(own[max(own)].spent)} of "
        f"{as_written(budget.epsilon)} is spent ({budget.unit}, {budget.neighbouring})."
    )
    points = [(0.0, 0.0), *((float(index), charge.spent) for index, charge in own.items())]
    line = Line(name="spent", points=points)
    name = "ε spent, by release"
    drawn = curves([line], title=name, description=finding, most=budget.epsilon, x_title="release")
    rows = [
        [str(index), as_written(charge.epsilon), shown_up(charge.spent), shown_up(charge.left)]
        for index, charge in own.items()
    ]
    table = Table(caption=finding, head=["release", "asked ε", "spent", "left"], rows=rows)
    return Figure(title=name, finding=finding, plot=drawn, data=table)
