"""Draw a sweep's figures: means over repetitions with their 95 % intervals, along one axis.

If that axis is ε, a point is at the ε that the run was charged, never at a smaller one that it
requested. vl-convert draws them without a network, each as SVG and Vega-Lite.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import vl_convert

from parley.report.vega_lite import (
    Spec,
    build_bar_end,
    build_layer,
    build_nominal,
    build_quantitative,
)
from parley.safe_io.file_writing import make_folder, write_file
from parley.sweeps.sweep_cells import METHOD
from parley.sweeps.sweep_results import HALF_WIDTH, Row, to_number

_TITLES = {
    "excess_loss": "excess training loss",
    "accuracy": "accuracy, held-out records",
    "r2": "R², held-out records; below −1 at the edge",
    "auc": "area under the ROC curve",
}
_NON_PRIVATE = {
    "centralised": {"accuracy": "baseline_accuracy", "r2": "baseline_r2"},
    "aggregated": {
        "accuracy": "aggregated_accuracy",
        "r2": "aggregated_r2",
        "excess_loss": "aggregated_excess_loss",
    },
}
"""Non-private model → its metric for each metric of the figures."""

_PREFERRED = "privacy.epsilon"
_WIDTH, _HEIGHT = 560, 300
_PANEL_WIDTH, _PANEL_HEIGHT = 380, 260
_MAX_PANELS = 8
_NOTHING = 1e-12
"""Excess loss that rounding alone can cause."""

_SAME = 1e-3
"""Maximum distance between a panel's non-private values, relative to the largest."""

_DECADES = 100.0
"""Ratio of largest to smallest value from which an axis is logarithmic."""

_GREY = "#808890"  # reads on light and on dark
_COLOURS = (
    "#3b82c4", "#c8553d", "#2f9e6e", "#b8860b", "#8c6bb1", "#d0679d", "#5aa9a3", "#7d7461",
)  # fmt: skip

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_LOOK = {
    "background": "transparent",
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {
        **dict.fromkeys(("labelColor", "titleColor", "gridColor", "domainColor"), _GREY),
        "gridOpacity": 0.25,
        "tickColor": _GREY,
    },
    "legend": {"labelColor": _GREY},
    "title": {"color": _GREY},
}


@dataclass(frozen=True, kw_only=True)
class SweepFigure:
    """One figure: its title, its `<svg>`, and the number of failed runs that it lacks."""

    name: str
    title: str
    svg: str
    failed: int = 0


def find_main_axis(cells: Sequence[Row]) -> str | None:
    """Return the axis that figures run along: ε, or else the first axis with several numbers."""
    axes: list[str] = list(cells[0]["values"]) if cells else []
    for axis in sorted(axes, key=lambda axis: axis != _PREFERRED):
        values = [to_number(cell["values"][axis]) for cell in cells]
        if all(value is not None for value in values) and len(set(values)) > 1:
            return axis
    return None


def draw_figures(
    cells: Sequence[Row], folder: Path, *, non_private: Sequence[str] = ("centralised",)
) -> list[SweepFigure]:
    """Write the figures of a sweep to a folder. There are none without an axis of numbers."""
    axis = find_main_axis(cells)
    if axis is None:
        return []
    make_folder(folder)
    figures = []
    for name, title in _TITLES.items():
        points = _build_points(cells, axis, name)
        if len({point["x"] for point in points}) < 2:
            continue
        lines = _build_reference_lines(cells, axis, name, non_private)
        spec = json.dumps(_build_chart(points, lines, axis, title), indent=2, allow_nan=False)
        svg = str(vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]))
        write_file(folder / f"{name}.vl.json", spec)
        write_file(folder / f"{name}.svg", svg)
        failed = sum(cell["failed"] for cell in cells)
        figures.append(SweepFigure(name=name, title=f"{title} by {axis}", svg=svg, failed=failed))
    return figures


def _format_label(cell: Row, axes: Sequence[str]) -> str:
    said = {METHOD: "{}", "parties.count": "{} parties", _PREFERRED: "ε = {}"}
    return " · ".join(
        said.get(axis, axis.rpartition(".")[2] + " {}").format(cell["values"][axis])
        for axis in axes
    )


def _assign_axes(cells: Sequence[Row], axis: str) -> tuple[list[str], list[str]]:
    """Return the axes that distinguish lines, and those that distinguish panels.

    Methods are lines and all other axes panels, unless there are too many.
    """
    others = [each for each in cells[0]["values"] if each != axis]
    apart = [each for each in others if each != METHOD]
    panels = {_format_label(cell, apart) for cell in cells}
    if METHOD not in others or len(panels) > _MAX_PANELS:
        return others, []
    return [METHOD], apart


def _build_points(cells: Sequence[Row], axis: str, name: str) -> list[dict[str, Any]]:
    points = []
    lines, panels = _assign_axes(cells, axis)
    for cell in cells:
        mean, at = cell[name], to_number(cell["values"][axis])
        if mean is None or at is None:
            continue
        if axis == _PREFERRED and cell["epsilon"] is not None:
            at = max(at, cell["epsilon"])
        half = cell[HALF_WIDTH.format(name)] or 0.0
        points.append(
            {
                "x": at,
                "mean": mean,
                "low": mean - half,
                "high": mean + half,
                "series": _format_label(cell, lines) or "this job",
                "panel": _format_label(cell, panels),
            }
        )
    return points


def _build_reference_lines(
    cells: Sequence[Row], axis: str, name: str, baselines: Sequence[str]
) -> list[dict[str, Any]]:
    """Return non-private values if all cells of a panel have the same, up to a few records.

    Parties of equal size leave out the records that do not fill another party. One owner does not.
    """
    panels = _assign_axes(cells, axis)[1]
    found: dict[tuple[str, str], list[float]] = {}
    for cell in cells:
        apart = cell["aggregated_excess_loss"]
        alone = apart is not None and apart <= _NOTHING
        for model in baselines:
            mean = cell.get(_NON_PRIVATE[model].get(name, ""))
            if mean is not None and not (alone and "excess_loss" in _NON_PRIVATE[model]):
                found.setdefault((_format_label(cell, panels), model), []).append(mean)
    return [
        {"panel": panel, "series": f"{model}, not private", "mean": values[0]}
        for (panel, model), values in found.items()
        if max(values) - min(values) <= _SAME * max(map(abs, values))
    ]


def _fit_axis(low: float, high: float, ends: tuple[float, float]) -> tuple[float, float]:
    """Return round ends of an axis over the values, with half as much on either side, within
    `ends`.

    >>> _fit_axis(0.987, 0.989, (0.0, 1.0)), _fit_axis(0.4, 0.9, (0.0, 1.0))
    ((0.986, 0.99), (0.1, 1.0))
    """
    margin = max((high - low) / 2, 1e-3)
    low, high = max(low - margin, ends[0]), min(high + margin, ends[1])
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-3)))
    places = max(0, -round(math.log10(step)))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return max(round(first * step, places), ends[0]), min(round(last * step, places), ends[1])


def _build_chart(
    points: Sequence[dict[str, Any]], lines: Sequence[dict[str, Any]], axis: str, title: str
) -> Spec:
    panels = list(dict.fromkeys(point["panel"] for point in points))
    series = list(dict.fromkeys(point["series"] for point in points))
    values = [point["mean"] for point in points]
    shares = {"accuracy": (0.0, 1.0), "auc": (0.0, 1.0), "r2": (-1.0, 1.0)}
    share = next((ends for each, ends in shares.items() if _TITLES[each] == title), None)
    if share:
        seen = [*values, *(each["mean"] for each in lines)]
        share = _fit_axis(min(seen), max(seen), share)
        title += f"; axis from {share[0]:g}" if share[0] else ""
    spread = share is None and min(values) > 0 and max(values) / min(values) >= _DECADES
    floor = min(values) / 2 if spread else -float("inf")
    drawn = [{**each, "low": max(each["low"], floor)} for each in points]
    y_scale = (
        {"domain": share, "clamp": True}
        if share
        else {"type": "log", "nice": False}
        if spread
        else {"zero": True}
    )
    xs = [point["x"] for point in points]
    wide = min(xs) > 0 and max(xs) / min(xs) >= 10
    x = build_quantitative(
        "x",
        title="ε charged" if axis == _PREFERRED else axis,
        axis={"tickCount": 6, "format": "~g"},
        scale={"type": "log" if wide else "linear", "zero": False, "padding": 12, "nice": False},
    )
    legend = {"orient": "bottom", "columns": 2, "columnPadding": 28}
    colours = {"domain": series, "range": [_COLOURS[i % 8] for i in range(len(series))]}
    color = build_nominal(
        "series",
        title=None,
        sort=series,
        scale=colours,
        legend={**legend, "labelLimit": 400, "symbolOpacity": 1},
    )
    shape = build_nominal("series", sort=series, scale={"domain": series}, legend=None)
    ticks = {"axis": {"tickCount": 5, "format": "~g"}} if spread else {}
    y = build_quantitative("mean", title=f"{title} (simulation)", scale=y_scale, **ticks)
    spans = {"y": build_quantitative("low", scale=y_scale), "y2": build_bar_end("high")}

    def panel(shown: str) -> Spec:
        here = [each for each in drawn if each["panel"] == shown]
        at = {"x": x, "y": y, "color": color}
        layers = [
            build_layer(here, "rule", {"x": x, **spans, "color": color}),
            build_layer(here, "line", at),
            build_layer(here, "point", {**at, "shape": shape}, filled=True, size=45),
        ]
        width, height = (_PANEL_WIDTH, _PANEL_HEIGHT) if len(panels) > 1 else (_WIDTH, _HEIGHT)
        level = {"y": build_quantitative("mean", scale=y_scale)}
        for count, each in enumerate(each for each in lines if each["panel"] == shown):
            # Two that are close to each other have their names at either end.
            end = {"align": "right", "dx": -4} if count % 2 else {"align": "left", "dx": 4}
            text = {
                **level,
                "x": {"value": width if count % 2 else 0},
                "text": build_nominal("series"),
            }
            layers += [
                build_layer([each], "rule", level, strokeDash=(6, 4), color=_GREY),
                build_layer([each], "text", text, dy=-5, color=_GREY, **end),
            ]
        return {"layer": layers, "width": width, "height": height, "title": shown}

    whole = panel(panels[0])
    if len(panels) > 1:
        whole = {"concat": [panel(each) for each in panels], "columns": 2}
    return {**whole, "$schema": _SCHEMA, "config": _LOOK}
