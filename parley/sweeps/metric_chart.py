"""Build the Vega-Lite chart of one metric of a sweep, for a screen or for print.

On a screen, text is grey and the background transparent, so that a chart reads on light and dark.
In print, a chart is 8.4 cm wide (a column of a paper) with text of 9 pt. Lines differ in dashes and
marks, too, so that they are legible in grey.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parley.presentation.vega_lite import (
    Spec,
    build_bar_end,
    build_layer,
    build_nominal,
    build_quantitative,
)

_DECADES = 100.0
"""Ratio of largest to smallest value from which an axis is logarithmic."""

_REFERENCE_DASHES = ((6, 4), (2, 3))
"""Dashes of the non-private values. The legend names them: in the plot, a name crosses curves."""

_GREY = "#808890"  # reads on light and on dark
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_POINTS_PER_CM = 72 / 2.54
_FONT_PT = 9


@dataclass(frozen=True, kw_only=True)
class ChartLook:
    """Sizes, colours and fonts of a chart.

    Attributes:
        size, panel_size: width and height of a single chart, and of one of several, in points
            (pixels on a screen).
        fits: whether the width includes axes and titles.
        dashes: dash pattern of each line in turn; empty for solid lines.
        grey: colour of reference lines.
        legend: properties of the legend.
        config: Vega-Lite's configuration.
    """

    size: tuple[int, int]
    panel_size: tuple[int, int]
    fits: bool
    colours: tuple[str, ...]
    dashes: tuple[tuple[int, ...], ...]
    grey: str
    mark_size: int
    legend: Spec
    config: Spec


SCREEN = ChartLook(
    size=(560, 300),
    panel_size=(380, 260),
    fits=False,
    colours=(
        "#3b82c4", "#c8553d", "#2f9e6e", "#b8860b", "#8c6bb1", "#d0679d", "#5aa9a3", "#7d7461",
    ),
    dashes=(),
    grey=_GREY,
    mark_size=45,
    legend={"columns": 2, "columnPadding": 28, "labelLimit": 400},
    config={
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
    },
)  # fmt: skip

PRINT = ChartLook(
    size=(round(8.4 * _POINTS_PER_CM), 175),
    panel_size=(190, 140),
    fits=True,
    # Okabe and Ito's colours, which people with colour blindness can tell apart; dark ones first.
    colours=(
        "#0072b2", "#d55e00", "#000000", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f",
    ),
    dashes=((1, 0), (5, 2), (2, 2), (7, 2, 2, 2), (3, 3), (9, 3), (1, 2), (6, 2, 1, 2, 1, 2)),
    grey="#555555",
    mark_size=28,
    legend={"columns": 1, "labelLimit": 210, "symbolSize": 40, "symbolStrokeWidth": 0},
    config={
        "background": "white",
        "font": "Helvetica, Arial, sans-serif",
        "padding": 2,
        "view": {"stroke": None},
        "axis": {
            "labelFontSize": _FONT_PT,
            "titleFontSize": _FONT_PT,
            "titleFontWeight": "normal",
            "labelColor": "black",
            "titleColor": "black",
            "gridColor": "#dddddd",
            "gridWidth": 0.5,
            "labelSeparation": 3,
            "domainColor": "black",
            "tickColor": "black",
        },
        "axisX": {"grid": False},
        "legend": {"labelFontSize": _FONT_PT, "labelColor": "black", "rowPadding": 1, "offset": 6,
                   "layout": {"bottom": {"anchor": "start", "direction": "vertical"}}},
        "line": {"strokeWidth": 1.5},
        "point": {"opacity": 1},
        "title": {"fontSize": _FONT_PT, "fontWeight": "normal", "color": "black"},
        "text": {"fontSize": _FONT_PT},
    },
)  # fmt: skip
"""Look of a figure in a paper. Its lengths are in points."""


@dataclass(frozen=True, kw_only=True)
class ChartData:
    """What a chart shows.

    Attributes:
        points: x, mean, low, high, series and panel of each mean.
        lines: panel, series and mean of each non-private value.
        x_title: title of the x axis.
        ends: smallest and largest value that the metric can show; None if it is no share.
    """

    points: Sequence[dict[str, Any]]
    lines: Sequence[dict[str, Any]]
    x_title: str
    ends: tuple[float, float] | None


def fit_axis(low: float, high: float, ends: tuple[float, float]) -> tuple[float, float]:
    """Return round ends of an axis over the values, with half as much on either side, within
    `ends`.

    >>> fit_axis(0.987, 0.989, (0.0, 1.0)), fit_axis(0.4, 0.9, (0.0, 1.0))
    ((0.986, 0.99), (0.1, 1.0))
    """
    margin = max((high - low) / 2, 1e-3)
    low, high = max(low - margin, ends[0]), min(high + margin, ends[1])
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-3)))
    places = max(0, -round(math.log10(step)))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return max(round(first * step, places), ends[0]), min(round(last * step, places), ends[1])


def _scale_values(
    data: ChartData, y_title: str, *, fits: bool
) -> tuple[list[dict[str, Any]], str, dict[str, Any]]:
    """Return the points with visible intervals, the title of y and its scale."""
    values = [point["mean"] for point in data.points]
    share, title = None, y_title
    if data.ends:
        seen = [*values, *(line["mean"] for line in data.lines)]
        share = fit_axis(min(seen), max(seen), data.ends)
        # An axis that begins where the metric does hides no part of it.
        cut = share[0] not in {0, data.ends[0]} and not fits
        title += f"; axis from {share[0]:g}".replace("-", "−") if cut else ""
    spread = share is None and min(values) > 0 and max(values) / min(values) >= _DECADES
    floor = min(values) / 2 if spread else -float("inf")
    drawn = [{**point, "low": max(point["low"], floor)} for point in data.points]
    if share:
        return drawn, title, {"domain": share, "clamp": True}
    return drawn, title, {"type": "log", "nice": False} if spread else {"zero": True}


def build_chart(data: ChartData, look: ChartLook, *, y_title: str) -> Spec:
    """Return the chart: a panel for each value of `panel`, a line for each series."""
    panels = list(dict.fromkeys(point["panel"] for point in data.points))
    series = list(dict.fromkeys(point["series"] for point in data.points))
    drawn, title, y_scale = _scale_values(data, y_title, fits=look.fits)
    xs = [point["x"] for point in data.points]
    wide = min(xs) > 0 and max(xs) / min(xs) >= 10
    x = build_quantitative(
        "x",
        title=data.x_title,
        axis={"tickCount": 6, "format": "~g"},
        scale={"type": "log" if wide else "linear", "zero": False, "padding": 12, "nice": False},
    )
    legend = None
    if len(series) > 1 or not look.fits:
        legend = {"orient": "bottom", "symbolOpacity": 1, **look.legend}
    shades = [look.colours[at % len(look.colours)] for at in range(len(series))]
    color = build_nominal(
        "series", title=None, sort=series, scale={"domain": series, "range": shades}, legend=legend
    )
    # Channels of one field whose legends are equal share one legend.
    marks = legend if look.dashes else None
    shape = build_nominal("series", title=None, sort=series, scale={"domain": series}, legend=marks)
    solid: list[Spec] = [{}]
    dashes = [{"strokeDash": dash} for dash in look.dashes] or solid
    names = list(dict.fromkeys(line["series"] for line in data.lines))
    reference = build_nominal(
        "series",
        title=None,
        sort=names,
        scale={"domain": names, "range": _REFERENCE_DASHES[: len(names)]},
        legend={"orient": "bottom", "direction": "vertical", "symbolSize": 250, "labelLimit": 210},
    )
    ticks = {"axis": {"tickCount": 5, "format": "~g"}} if y_scale.get("type") == "log" else {}
    y = build_quantitative("mean", title=f"{title} (simulation)", scale=y_scale, **ticks)
    spans = {"y": build_quantitative("low", scale=y_scale), "y2": build_bar_end("high")}

    def build_panel(name: str) -> Spec:
        here = [point for point in drawn if point["panel"] == name]
        at = {"x": x, "y": y, "color": color}
        layers = [build_layer(here, "rule", {"x": x, **spans, "color": color})]
        for number, label in enumerate(series):
            line = [point for point in here if point["series"] == label]
            layers.append(build_layer(line, "line", at, **dashes[number % len(dashes)]))
        marked = {**at, "shape": shape}
        layers.append(build_layer(here, "point", marked, filled=True, size=look.mark_size))
        width, height = look.panel_size if len(panels) > 1 else look.size
        if known := [line for line in data.lines if line["panel"] == name]:
            level = {"y": build_quantitative("mean", scale=y_scale), "strokeDash": reference}
            layers.append(build_layer(known, "rule", level, color=look.grey))
        return {"layer": layers, "width": width, "height": height, "title": name}

    if len(panels) > 1:
        whole: Spec = {"concat": [build_panel(name) for name in panels], "columns": 2}
    else:
        whole = build_panel(panels[0])
        if look.fits:
            # The legends take their rows from the height.
            rows = len(series) * (legend is not None) + len(names)
            whole["height"] += (_FONT_PT + 4) * rows
            whole["autosize"] = {"type": "fit", "contains": "padding"}
    return {**whole, "$schema": _SCHEMA, "config": look.config}
