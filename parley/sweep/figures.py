"""A sweep's figures: means over repetitions with their 95 % intervals, along one axis.

Where that axis is ε, a point lies at the ε that the run was charged, never at a smaller one that it
was asked for. Drawn by altair and vl-convert, without a network; each as SVG, PNG and Vega-Lite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parley.sweep.cells import METHOD
from parley.sweep.results import Summarised, as_number

__all__ = ["Figure", "draw", "main_axis"]

_TITLES = {
    "excess_loss": "excess training loss",
    "accuracy": "accuracy, held-out records",
    "auc": "area under the ROC curve",
}
_BASELINES = {"accuracy": "baseline_accuracy"}
_PREFERRED = "privacy.epsilon"
_WIDTH, _HEIGHT = 560, 300


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure: what it shows, and its `<svg>`."""

    name: str
    title: str
    svg: str


def main_axis(cells: Sequence[Summarised]) -> str | None:
    """The axis that figures run along: ε, else the first one of several numbers; None of none."""
    axes = list(cells[0].values) if cells else []
    ordered = sorted(axes, key=lambda axis: axis != _PREFERRED)
    for axis in ordered:
        values = [as_number(cell.values[axis]) for cell in cells]
        if all(value is not None for value in values) and len(set(values)) > 1:
            return axis
    return None


def draw(cells: Sequence[Summarised], folder: Path) -> list[Figure]:
    """The figures of a sweep, written to a folder; none where no axis is one of numbers."""
    axis = main_axis(cells)
    if axis is None:
        return []
    import vl_convert  # noqa: PLC0415 - start-up: for figures alone

    folder.mkdir(exist_ok=True)
    figures = []
    for name, title in _TITLES.items():
        points = _points(cells, axis, name)
        if len({point["x"] for point in points}) < 2:
            continue
        spec = _chart(points, axis, title, _baseline(cells, name)).to_json()
        svg = str(vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]))
        (folder / f"{name}.vl.json").write_text(spec, encoding="utf-8")
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
        (folder / f"{name}.png").write_bytes(
            vl_convert.vegalite_to_png(spec, scale=2, allowed_base_urls=[])
        )
        figures.append(Figure(name=name, title=f"{title} by {axis}", svg=svg))
    return figures


def _points(cells: Sequence[Summarised], axis: str, name: str) -> list[dict[str, Any]]:
    points = []
    for cell in cells:
        found, at = cell.figures.get(name), as_number(cell.values[axis])
        if found is None or at is None:
            continue
        if axis == _PREFERRED and cell.epsilon is not None:
            at = max(at, cell.epsilon)
        half = found.half or 0.0
        others = [each for each in cell.values if each != axis]
        series = " · ".join(
            str(cell.values[each])
            if each == METHOD
            else f"{each.rpartition('.')[2]} {cell.values[each]}"
            for each in others
        )
        points.append(
            {
                "x": at,
                "mean": found.mean,
                "low": found.mean - half,
                "high": found.mean + half,
                "series": series or "this job",
            }
        )
    return points


def _baseline(cells: Sequence[Summarised], name: str) -> float | None:
    """The non-private figure, where all cells have the same."""
    wanted = _BASELINES.get(name)
    found = (
        {round(c.figures[wanted].mean, 9) for c in cells if wanted in c.figures} if wanted else {}
    )
    return next(iter(found)) if len(found) == 1 else None


def _chart(points: Sequence[dict[str, Any]], axis: str, title: str, baseline: float | None) -> Any:
    import altair  # noqa: PLC0415 - start-up: altair takes .5 s

    alt: Any = altair
    xs = [point["x"] for point in points]
    wide = min(xs) > 0 and max(xs) / min(xs) >= 10
    told = "ε charged" if axis == _PREFERRED else axis
    x = alt.X(
        "x:Q",
        title=told,
        scale=alt.Scale(type="log" if wide else "linear", zero=False, padding=12, nice=False),
    )
    # A share is drawn from 0 to 1, so that no axis exaggerates; its interval may reach further.
    share = title != _TITLES["excess_loss"] and all(0 <= point["mean"] <= 1 for point in points)
    y_scale = alt.Scale(domain=[0, 1], clamp=True) if share else alt.Scale(zero=True)
    color = alt.Color(
        "series:N", title=None, legend=alt.Legend(orient="bottom", columns=2, labelLimit=400)
    )
    base = alt.Chart(alt.Data(values=list(points)))
    y = alt.Y("mean:Q", title=f"{title} (simulation)", scale=y_scale)
    layers = [
        base.mark_rule().encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=color),
        base.mark_line().encode(x=x, y=y, color=color),
        base.mark_point(filled=True, size=45).encode(x=x, y=y, color=color),
    ]
    if baseline is not None:
        rule = alt.Chart(alt.Data(values=[{"mean": baseline}]))
        layers.append(rule.mark_rule(strokeDash=[6, 4], color="#6a727b").encode(y="mean:Q"))
    return (
        alt.layer(*layers)
        .properties(width=_WIDTH, height=_HEIGHT)
        .configure(background="transparent", font="sans-serif")
    )
