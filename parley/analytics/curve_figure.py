"""Plot an answer whose rows are curves: a line per group, with two bands around it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from parley.analytics.answer import Answer
from parley.client.queries.base import Table
from parley.presentation.document import LegendEntry
from parley.presentation.plots import Palette
from parley.presentation.shape_plots import STYLES, Point, plot_shape_curves
from parley.presentation.vega_lite import Spec


def plot_answer_curves(answer: Answer) -> tuple[Spec | None, Sequence[LegendEntry]]:
    """Return the chart and its legend, or no chart if there are more groups than line styles.

    The inner band covers only the noise. The outer one covers noise and sampling, if the query
    supports it. Both are independent of the answer's own intervals.
    """
    if answer.source is None:
        return None, ()
    inner = answer.with_intervals()
    wide = answer.source.supports_sampling
    outer = answer.with_intervals(sampling=True) if wide else inner
    curves, around = _list_curves(inner.table), _list_curves(outer.table)
    known = [name for name, curve in curves.items() if not math.isnan(curve[1][1])]
    if not 1 <= len(known) <= len(STYLES):
        return None, ()
    edge = _find_edge_columns(answer.table)[1]
    chart = plot_shape_curves(
        [0.0, *dict.fromkeys(np.asarray(answer.table[edge]).tolist())],
        [curves[name] for name in known],
        bands=[around[name] for name in known] if wide else (),
        steps=False,
        height=232,
        domain=(0.0, 1.0),
        x_title=edge.removesuffix(" to"),
    )
    lines = [
        LegendEntry(name=name or "answer", colour=colour, width=2.5, dash=dash)
        for name, (colour, dash) in zip(known, STYLES, strict=False)
    ]
    bands = [LegendEntry(name=str(inner.intervals), colour=Palette.QUIET, depth=0.7)]
    if wide:
        bands.append(LegendEntry(name=str(outer.intervals), colour=Palette.QUIET, depth=0.25))
    return chart, (*lines, *bands)


def _find_edge_columns(table: Table) -> tuple[str, str]:
    """Return the names of the columns with an interval's ends."""
    first, second = [name for name in table if name.endswith((" from", " to"))][-2:]
    return first, second


def _list_curves(table: Table) -> dict[str, list[Point]]:
    """Return each group's points, starting with 1 at 0."""
    low, value, high = (np.asarray(table[name]).tolist() for name in ("low", "value", "high"))
    keys = list(table)[: list(table).index(_find_edge_columns(table)[0])]
    curves: dict[str, list[Point]] = {}
    for row, point in enumerate(zip(low, value, high, strict=True)):
        name = " · ".join(str(table[key][row]) for key in keys)
        curves.setdefault(name, [(1.0, 1.0, 1.0)]).append(point)
    return curves
