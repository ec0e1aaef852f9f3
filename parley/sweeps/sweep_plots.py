"""Draw a sweep's figures: means over repetitions with their 95 % intervals, along one axis.

If that axis is ε, a point is at the ε that the run was charged, never at a smaller one that it
requested. vl-convert draws them without a network: for the page, and as SVG and PDF for print.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import vl_convert

from parley.presentation.vega_lite import Spec
from parley.safe_io.file_writing import make_folder, write_file
from parley.sweeps.metric_chart import PRINT, SCREEN, ChartData, build_chart
from parley.sweeps.sweep_cells import METHOD
from parley.sweeps.sweep_summary import HALF_WIDTH, Row, format_cell_label, to_number


@dataclass(frozen=True, kw_only=True)
class _Metric:
    """A metric with a figure: its titles on a screen and in print, and the ends of its axis."""

    title: str
    short: str
    ends: tuple[float, float] | None = None


_METRICS = {
    "excess_loss": _Metric(title="excess training loss", short="excess training loss"),
    "accuracy": _Metric(title="accuracy, held-out records", short="accuracy", ends=(0.0, 1.0)),
    "r2": _Metric(title="R², held-out records; below −1 at the edge", short="R²", ends=(-1.0, 1.0)),
    "auc": _Metric(title="area under the ROC curve", short="area under ROC", ends=(0.0, 1.0)),
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
_MAX_PANELS = 8
_NOTHING = 1e-12
"""Excess loss that rounding alone can cause."""

_SAME = 1e-3
"""Maximum distance between a panel's non-private values, relative to the largest."""

_CM_PER_POINT = 2.54 / 72


@dataclass(frozen=True, kw_only=True)
class SweepFigure:
    """One figure: its title, its `<svg>`, whether it shows non-private values, and the number of
    failed runs that it lacks.
    """

    name: str
    title: str
    svg: str
    non_private: bool = False
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
    figures, x_title = [], "ε charged" if axis == _PREFERRED else axis
    for name, metric in _METRICS.items():
        points = _build_points(cells, axis, name)
        if len({point["x"] for point in points}) < 2:
            continue
        lines = _build_reference_lines(cells, axis, name, non_private)
        data = ChartData(points=points, lines=lines, x_title=x_title, ends=metric.ends)
        screen = _format_spec(build_chart(data, SCREEN, y_title=metric.title))
        write_file(folder / f"{name}.vl.json", screen)
        _write_print(folder, name, _format_spec(build_chart(data, PRINT, y_title=metric.short)))
        svg = str(vl_convert.vegalite_to_svg(screen, allowed_base_urls=[]))
        failed = sum(cell["failed"] for cell in cells)
        title = f"{metric.title} by {axis}"
        figures.append(
            SweepFigure(name=name, title=title, svg=svg, non_private=bool(lines), failed=failed)
        )
    return figures


def _format_spec(spec: Spec) -> str:
    return json.dumps(spec, indent=2, allow_nan=False)


def _write_print(folder: Path, name: str, spec: str) -> None:
    """Write a figure for print as SVG and PDF, both of the same size on paper."""
    svg = str(vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]))
    # A point of the chart is a point of the PDF. In SVG a length without a unit is a pixel.
    size = r'width="([\d.]+)" height="([\d.]+)"'
    svg = re.sub(size, lambda found: _to_centimetres(*found.groups()), svg, count=1)
    write_file(folder / f"{name}.svg", svg)
    write_file(folder / f"{name}.pdf", vl_convert.vegalite_to_pdf(spec, allowed_base_urls=[]))


def _to_centimetres(width: str, height: str) -> str:
    sizes = (f"{float(points) * _CM_PER_POINT:.2f}cm" for points in (width, height))
    return 'width="{}" height="{}"'.format(*sizes)


def _assign_axes(cells: Sequence[Row], axis: str) -> tuple[list[str], list[str]]:
    """Return the axes that distinguish lines, and those that distinguish panels.

    Methods are lines and all other axes panels, unless there are too many.
    """
    others = [each for each in cells[0]["values"] if each != axis]
    apart = [each for each in others if each != METHOD]
    panels = {format_cell_label(cell, apart) for cell in cells}
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
        named = {
            "series": format_cell_label(cell, lines) or "this job",
            "panel": format_cell_label(cell, panels),
        }
        points.append({"x": at, "mean": mean, "low": mean - half, "high": mean + half, **named})
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
                found.setdefault((format_cell_label(cell, panels), model), []).append(mean)
    return [
        {"panel": panel, "series": f"{model}, not private", "mean": values[0]}
        for (panel, model), values in found.items()
        if max(values) - min(values) <= _SAME * max(map(abs, values))
    ]
