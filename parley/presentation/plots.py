"""Draw the report's plots with Vega-Lite; vl-convert renders them to static SVG offline.

The `plot_` functions return Vega-Lite charts. `render_svg` returns a chart as one inline `<svg>`
element. It has no script, style sheet or address, and no identifier that could clash with another
plot's. The six colours of `Palette` are the only ones, and `report.css` replaces them in the dark
scheme. A column of 424 px is half a desktop page.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import vl_convert
from markupsafe import Markup

from parley.presentation.document import Figure, LegendEntry, Table
from parley.presentation.vega_lite import (
    Spec,
    build_bar_end,
    build_layer,
    build_nominal,
    build_quantitative,
)

_WIDTH, _HEIGHT = 424, 232
_MAX_POINTS = 300
Point = tuple[float, float]


class Palette(StrEnum):
    """The colours of a plot in the light scheme. `report.css` matches them by value."""

    INK = "#1b1f24"
    MUTED = "#6a727b"
    GRID = "#e4e6e9"
    ACCENT = "#0b6b66"
    QUIET = "#98a1aa"
    LIMIT = "#b2541f"


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A named line through points (x, y); ``dash`` is SVG's stroke-dasharray."""

    name: str
    points: Sequence[Point]
    colour: Palette = Palette.ACCENT
    width: float = 2.25
    dash: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Level:
    """A named horizontal line at ``value``, such as a baseline or a budget."""

    name: str
    value: float
    colour: Palette = Palette.LIMIT
    dash: tuple[int, ...] = (6, 4)
    width: float = 1.5


@dataclass(frozen=True, kw_only=True)
class Bars:
    """A named layer of bars from ``start`` to ``end`` on the x axis, stacked in the given order."""

    name: str
    bars: Sequence[tuple[float, float, float]]  # (start, end, height)
    colour: Palette = Palette.ACCENT


def build_legend(
    entries: Sequence[Curve | Level | Bars], charged: str = ""
) -> tuple[LegendEntry, ...]:
    """Return the legend of a plot, in order. The entry named `charged` is emphasised."""
    legend = []
    for entry in entries:
        own = LegendEntry(name=entry.name, colour=entry.colour, charged=entry.name == charged)
        if not isinstance(entry, Bars):
            own = replace(own, width=entry.width, dash=entry.dash)
        legend.append(own)
    return tuple(legend)


def _build_line_style(line: Curve | Level) -> Spec:
    return {"color": line.colour, "strokeWidth": line.width, "strokeDash": line.dash or (1, 0)}


def plot_curves(
    lines: Sequence[Curve],
    levels: Sequence[Level] = (),
    *,
    most: float | None = None,
    x_title: str = "round",
) -> Spec:
    """Plot lines by round and horizontal levels. Lines are drawn in order, the last on top.

    The axis begins at 0, so that a small change looks small. With `most`, it ends there.
    """
    scale = {"zero": True} if most is None else {"domain": [0, most]}
    y = build_quantitative("y", title=None, scale=scale)
    places = [x for line in lines for x, _ in line.points] or [1]
    first, rounds = min(1, *places), max(places)
    # A few rounds get one tick each: ticks at fractions would round to the same label.
    few = rounds <= 8
    ticks = {"values": list(range(int(first), int(rounds) + 1))} if few else {"tickCount": 6}
    axis = {"title": x_title, "format": ",d", "tickMinStep": 1, "grid": False, **ticks}
    x = build_quantitative("x", axis=axis, scale={"domain": [first, rounds], "nice": False})
    drawn = [
        build_layer([{"y": level.value}], "rule", {"y": y}, **_build_line_style(level))
        for level in levels
    ]
    for line in lines:
        values = name_values(_subsample_points(line.points), "x", "y")
        ends = {"strokeCap": "butt" if line.dash else "round", "strokeJoin": "round"}
        point = {"filled": True, "size": 30, "color": line.colour} if few else False
        look = {**_build_line_style(line), **ends, "point": point}
        drawn.append(build_layer(values, "line", {"x": x, "y": y}, **look))
    return {"layer": drawn}


Box = tuple[float, float, float, float]
"""Ends of x and of y."""


def plot_unit_square(
    lines: Sequence[Curve], boxes: Sequence[Box], *, x_title: str, y_title: str
) -> Spec:
    """Plot lines with shares on both axes, and boxes where a point may be; the last line on top."""
    unit = {"domain": [0, 1], "nice": False}
    x = build_quantitative("x", scale=unit, axis={"title": x_title, "tickCount": 6, "grid": False})
    y = build_quantitative("y", scale=unit, axis={"title": y_title, "tickCount": 6})
    drawn = []
    if boxes:
        values = [{"x": a, "x2": b, "y": c, "y2": d} for a, b, c, d in boxes]
        within = {"x": x, "x2": build_bar_end("x2"), "y": y, "y2": build_bar_end("y2")}
        drawn.append(build_layer(values, "rect", within, color=Palette.QUIET, fillOpacity=0.35))
    for line in lines:
        points = [{"x": at, "y": height} for at, height in line.points]
        look = {**_build_line_style(line), "order": False}
        drawn.append(build_layer(points, "line", {"x": x, "y": y}, **look))
    return {"layer": drawn, "height": _WIDTH * 3 // 4}


def plot_bars(layers: Sequence[Bars], *, x_title: str, y_title: str) -> Spec:
    """Plot upright bars over intervals of x, with stacked layers: sizes, a histogram, losses."""
    values: list[Spec] = []
    foot: dict[float, float] = {}
    for each in layers:
        for start, end, height in each.bars:
            low = foot.get(start, 0.0)
            top = foot[start] = low + height
            gap = (end - start) * (0.12 if len(each.bars) <= 120 else 0.0)
            ends = {"a": start + gap, "b": end - gap, "low": low, "top": top}
            values.append({**ends, "c": each.colour})
    whole = {"tickMinStep": 1, "format": ",d"}
    x_axis = {"title": x_title, "grid": False, "tickCount": 6, **whole}
    edges = [edge for each in layers for start, end, _ in each.bars for edge in (start, end)]
    encoding = {
        "x": build_quantitative("a", axis=x_axis, scale={"domain": [min(edges), max(edges)]}),
        "x2": build_bar_end("b"),
        "y": build_quantitative("low", title=y_title, axis=whole),
        "y2": build_bar_end("top"),
        "color": build_nominal("c", scale=None),
    }
    return build_layer(values, "rect", encoding)


def name_values(rows: Sequence[tuple[Any, ...]], *names: str) -> list[Spec]:
    """Return the rows as records with these fields."""
    return [dict(zip(names, row, strict=True)) for row in rows]


def plot_ranking(rows: Sequence[tuple[str, float, str, Palette]]) -> Spec:
    """Plot horizontal bars from zero, one per row ``(name, value, value as text, colour)``, in
    order.
    """
    values = name_values(rows, "name", "value", "text", "c")
    axis = {"grid": False, "labelLimit": 190, "labelColor": Palette.INK}
    widest = max(value for _, value, _, _ in rows) * 1.22 or 1
    x = build_quantitative("value", axis=None, scale={"domain": [0, widest]})
    places = {"x": x, "y": build_nominal("name", sort=None, title=None, axis=axis)}
    bars = {**places, "color": build_nominal("c", scale=None)}
    words = {**places, "text": build_nominal("text")}
    drawn = [
        build_layer(values, "bar", bars, height=16),
        build_layer(values, "text", words, align="left", dx=6, color=Palette.INK),
    ]
    return {"layer": drawn, "height": 8 + 32 * len(rows)}


def _subsample_points(points: Sequence[Point]) -> list[Point]:
    """Return at most 300 of the points, evenly chosen, including the first and the last."""
    if len(points) <= _MAX_POINTS:
        return list(points)
    step = (len(points) - 1) / (_MAX_POINTS - 1)
    return [points[round(index * step)] for index in range(_MAX_POINTS)]


def draw_figure(
    title: str, finding: str, chart: Spec, data: Table | None = None, **more: Any
) -> Figure:
    """Return a figure of the chart, with its title, and the finding as its description."""
    plot = render_svg(chart, title=title, description=finding)
    return Figure(title=title, finding=finding, plot=plot, data=data, **more)


def render_svg(chart: Spec, *, title: str, description: str) -> Markup:
    """Render the chart as inline SVG, with the palette and width of a column."""
    font = "system-ui, sans-serif"
    axis = {
        "domain": False,
        "ticks": False,
        "gridColor": Palette.GRID,
        "gridWidth": 1,
        "labelColor": Palette.MUTED,
        "labelFontSize": 12.5,
        "labelPadding": 7,
        "titleColor": Palette.MUTED,
        "titleFontSize": 12.5,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelFont": font,
        "titleFont": font,
    }
    spec = chart | {
        "width": _WIDTH,
        "height": chart.get("height", _HEIGHT),
        "background": None,
        "autosize": {"type": "fit", "contains": "padding"},
        "padding": 2,
        "config": {
            "font": font,
            "view": {"stroke": None},
            "axis": axis,
            "axisY": {"tickCount": 5},
            "text": {"fontSize": 12.5},
        },
    }
    drawn: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    return _format_inline_svg(drawn, title, description)


def _format_inline_svg(svg: str, title: str, description: str) -> Markup:
    """Return the SVG for use inside HTML: labelled as one image, without addresses or a fixed
    size.
    """
    found = re.search(r'viewBox="([^"]*)"', svg)
    box = found.group(1) if found else f"0 0 {_WIDTH} {_HEIGHT}"
    body = svg[svg.index(">") + 1 : svg.rindex("</svg>")]
    body = re.sub(
        r' (?:(?:aria-\w+|role|class|pointer-events|font-family)="[^"]*"|opacity="1")', "", body
    )
    body = re.sub(r'="[^"]*"', lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found[0]), body)
    # vl-convert escapes the text that it draws. Title and description are escaped here.
    return Markup(  # noqa: S704
        f'<svg class="plot" viewBox="{box}" role="img" aria-label="{html.escape(title)}. '
        f'{html.escape(description)}"><title>{html.escape(title)}</title>'
        f"<desc>{html.escape(description)}</desc>{body}</svg>"
    )
