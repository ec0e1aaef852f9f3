"""The report's plots: Vega-Lite by altair, drawn to static SVG by vl-convert, without a network.

Every function returns one inline `<svg>` element: no script, no style sheet, no identifier that
could clash with another plot's, no address. Colours are the six of `Palette`, which `report.css`
repaints in the dark scheme. A column of 424 px is half a desktop page.

Also here: plots of values with intervals: a row a name, or a step an interval of numbers.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import altair as alt
import vl_convert
from altair.utils.schemapi import debug_mode
from markupsafe import Markup

_WIDTH, _HEIGHT = 424, 232
_MOST_POINTS = 300
Point = tuple[float, float]

unchecked = debug_mode(False)
"""What it decorates is not held against Vega-Lite's schema part by part, which takes a
quarter of a plot's time: tests hold every plot against it."""


class Palette(StrEnum):
    """The colours of a plot in the light scheme; `report.css` knows each by its value."""

    INK = "#1b1f24"
    MUTED = "#6a727b"
    GRID = "#e4e6e9"
    ACCENT = "#0b6b66"
    QUIET = "#98a1aa"
    LIMIT = "#b2541f"


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A named line through points (x, y); ``dash`` as SVG's stroke-dasharray."""

    name: str
    points: Sequence[Point]
    colour: Palette = Palette.ACCENT
    width: float = 2.25
    dash: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Level:
    """A named horizontal line at ``value``: a baseline, a budget."""

    name: str
    value: float
    colour: Palette = Palette.LIMIT
    dash: tuple[int, ...] = (6, 4)
    width: float = 1.5


@dataclass(frozen=True, kw_only=True)
class Bars:
    """A named layer of bars from ``start`` to ``end`` on the x axis, stacked in the order given."""

    name: str
    bars: Sequence[tuple[float, float, float]]  # (start, end, height)
    colour: Palette = Palette.ACCENT


@unchecked
def curves(
    lines: Sequence[Curve],
    levels: Sequence[Level] = (),
    *,
    title: str,
    description: str,
    most: float | None = None,
    x_title: str = "round",
) -> Markup:
    """Lines by round, with levels across them. Lines are drawn in order, the last on top.

    The axis begins at 0, so that a small change looks small; `most`: it ends there.
    """
    scale = alt.Scale(zero=True, nice=True) if most is None else alt.Scale(domain=[0, most])
    rounds = max((x for line in lines for x, _ in line.points), default=1)
    # Few rounds get a tick each: fractions between them would be rounded to the same label.
    first = min((x for line in lines for x, _ in line.points), default=1)
    first = min(first, 1, rounds)
    ticks = (
        {"values": list(range(int(first), int(rounds) + 1))} if rounds <= 8 else {"tickCount": 6}
    )
    x_axis = alt.Axis(title=x_title, format=",d", tickMinStep=1, grid=False, **ticks)
    layers = []
    for level in levels:
        rule = chart_of([{"y": level.value}]).mark_rule(
            color=level.colour, strokeDash=list(level.dash), strokeWidth=level.width
        )
        layers.append(rule.encode(y=alt.Y("y:Q", scale=scale, title=None)))
    for line in lines:
        values = [{"x": x, "y": y} for x, y in _thinned(line.points)]
        chart = chart_of(values).mark_line(
            color=line.colour,
            strokeWidth=line.width,
            strokeDash=list(line.dash) or [1, 0],
            strokeCap="round" if not line.dash else "butt",
            strokeJoin="round",
            point={"filled": True, "size": 30, "color": line.colour} if rounds <= 8 else False,
        )
        x = alt.X("x:Q", axis=x_axis, scale=alt.Scale(domain=[first, rounds], nice=False))
        layers.append(chart.encode(x=x, y=alt.Y("y:Q", scale=scale, title=None)))
    return drawn_svg(alt.layer(*layers), title=title, description=description)


Box = tuple[float, float, float, float]
"""Between which ends x and y are."""


@unchecked
def unit_square(
    lines: Sequence[Curve],
    boxes: Sequence[Box],
    *,
    title: str,
    description: str,
    x_title: str,
    y_title: str,
) -> Markup:
    """Lines over shares on both axes, with a block where a point may lie; the last line on top."""
    unit = alt.Scale(domain=[0, 1], nice=False)
    x = alt.X("x:Q", scale=unit, axis=alt.Axis(title=x_title, tickCount=6, grid=False))
    y = alt.Y("y:Q", scale=unit, axis=alt.Axis(title=y_title, tickCount=6))
    layers = []
    if boxes:
        values = [{"x": a, "x2": b, "y": c, "y2": d} for a, b, c, d in boxes]
        drawn = chart_of(values).mark_rect(color=Palette.QUIET, fillOpacity=0.35)
        layers.append(drawn.encode(x=x, x2="x2:Q", y=y, y2="y2:Q"))
    for line in lines:
        values = [{"x": at, "y": height} for at, height in line.points]
        chart = chart_of(values).mark_line(
            color=line.colour,
            strokeWidth=line.width,
            strokeDash=list(line.dash) or [1, 0],
            order=False,
        )
        layers.append(chart.encode(x=x, y=y))
    layered = alt.layer(*layers)
    return drawn_svg(layered, title=title, description=description, height=_WIDTH * 3 // 4)


@unchecked
def bars(
    layers: Sequence[Bars], *, title: str, description: str, x_title: str, y_title: str
) -> Markup:
    """Upright bars over intervals of x, layers stacked: party sizes, a histogram, losses."""
    values: list[dict[str, object]] = []
    foot: dict[float, float] = {}
    for layer in layers:
        for start, end, height in layer.bars:
            low = foot.get(start, 0.0)
            foot[start] = low + height
            gap = (end - start) * (0.12 if len(layer.bars) <= 120 else 0.0)
            values.append(
                {"a": start + gap, "b": end - gap, "low": low, "top": low + height}
                | {"c": layer.colour.value}
            )
    x_axis = alt.Axis(title=x_title, grid=False, tickCount=6, tickMinStep=1, format=",d")
    edges = [edge for layer in layers for start, end, _ in layer.bars for edge in (start, end)]
    chart = (
        chart_of(values)
        .mark_rect()
        .encode(
            x=alt.X("a:Q", axis=x_axis, scale=alt.Scale(domain=[min(edges), max(edges)])),
            x2="b:Q",
            y=alt.Y("low:Q", title=y_title, axis=alt.Axis(tickMinStep=1, format=",d")),
            y2="top:Q",
            color=alt.Color("c:N", scale=None),
        )
    )
    return drawn_svg(chart, title=title, description=description)


@unchecked
def ranking(
    rows: Sequence[tuple[str, float, str, Palette]], *, title: str, description: str
) -> Markup:
    """Horizontal bars from zero, one a row ``(name, value, value as text, colour)``, in order."""
    values = [
        {"name": name, "value": value, "text": text, "c": colour.value}
        for name, value, text, colour in rows
    ]
    base = chart_of(values).encode(
        y=alt.Y(
            "name:N",
            sort=None,
            title=None,
            axis=alt.Axis(grid=False, labelLimit=190, labelColor=Palette.INK),
        )
    )
    widest = max(value for _, value, _, _ in rows) * 1.22 or 1
    x = alt.X("value:Q", axis=None, scale=alt.Scale(domain=[0, widest]))
    drawn = base.mark_bar(height=16).encode(x=x, color=alt.Color("c:N", scale=None))
    text = base.mark_text(align="left", dx=6, color=Palette.INK).encode(x=x, text="text:N")
    layers, height = alt.layer(drawn, text), 8 + 32 * len(rows)
    return drawn_svg(layers, title=title, description=description, height=height)


@unchecked
def heat(
    cells: Sequence[tuple[int, str, float]],
    *,
    title: str,
    description: str,
    x_title: str,
    y_title: str,
) -> Markup:
    """A map of squares ``(column from 1, row, depth of colour in [0, 1])``, rows in order."""
    # Opacity, not a scale of colours: one colour stands out from the paper in either scheme.
    values = [{"x": x, "y": y, "o": round(depth, 3)} for x, y, depth in cells]
    columns = max(x for x, _, _ in cells)
    step = max(1, columns // 10)
    x_axis = alt.Axis(title=x_title, labelAngle=0, values=list(range(1, columns + 1, step)))
    chart = (
        chart_of(values)
        .mark_rect(color=Palette.ACCENT)
        .encode(
            x=alt.X("x:O", axis=x_axis, scale=alt.Scale(paddingInner=0.06)),
            y=alt.Y("y:N", sort=None, title=y_title, scale=alt.Scale(paddingInner=0.06)),
            fillOpacity=alt.FillOpacity("o:Q", scale=None, legend=None),
        )
    )
    return drawn_svg(chart, title=title, description=description)


@unchecked
def ranges(
    rows: Sequence[tuple[str, float, float, float, float, float]],
    *,
    title: str,
    description: str,
    x_title: str,
    y_title: str,
) -> Markup:
    """A row each ``(name, low, lower, middle, upper, high)``: a thin bar, a thick one, a tick."""
    names = ("name", "low", "lower", "middle", "upper", "high")
    base = chart_of([dict(zip(names, row, strict=True)) for row in rows])
    y = alt.Y("name:N", sort=None, title=y_title)
    axis = alt.Axis(title=x_title, format="%", tickCount=6)

    def x(field: str) -> Any:
        return alt.X(f"{field}:Q", axis=axis, scale=alt.Scale(zero=True))

    thick = min(14.0, 150 / len(rows))
    drawn = [
        base.mark_bar(height=thick / 4, color=Palette.QUIET).encode(x=x("low"), x2="high:Q", y=y),
        base.mark_bar(height=thick, color=Palette.ACCENT).encode(x=x("lower"), x2="upper:Q", y=y),
        base.mark_tick(color=Palette.LIMIT, thickness=3, size=thick * 1.4).encode(
            x=x("middle"), y=y
        ),
    ]
    return drawn_svg(alt.layer(*drawn), title=title, description=description)


def chart_of(values: Sequence[dict[str, Any]]) -> Any:
    """An unmarked chart of plain values."""
    return alt.Chart(alt.Data(values=list(values)))  # type: ignore[no-untyped-call]


def _thinned(points: Sequence[Point]) -> list[Point]:
    """At most 300 of the points, evenly chosen, the first and the last among them."""
    if len(points) <= _MOST_POINTS:
        return list(points)
    step = (len(points) - 1) / (_MOST_POINTS - 1)
    return [points[round(index * step)] for index in range(_MOST_POINTS)]


@unchecked
def drawn_svg(chart: Any, *, title: str, description: str, height: int = _HEIGHT) -> Markup:
    """The chart as inline SVG, in the palette and the size of a column."""
    font = "system-ui, sans-serif"
    axis = {
        "domain": False,
        "ticks": False,
        "gridColor": Palette.GRID.value,
        "gridWidth": 1,
        "labelColor": Palette.MUTED.value,
        "labelFontSize": 12.5,
        "labelPadding": 7,
        "titleColor": Palette.MUTED.value,
        "titleFontSize": 12.5,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelFont": font,
        "titleFont": font,
    }
    spec = chart.properties(width=_WIDTH, height=height).to_dict(validate=False) | {
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
    spec.pop("$schema", None)
    drawn: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    return _inline(drawn, title, description)


def _inline(svg: str, title: str, description: str) -> Markup:
    """The SVG as it stands inside HTML: labelled as one image, without addresses or fixed size."""
    found = re.search(r'viewBox="([^"]*)"', svg)
    box = found.group(1) if found else f"0 0 {_WIDTH} {_HEIGHT}"
    body = svg[svg.index(">") + 1 : svg.rindex("</svg>")]
    body = re.sub(
        r' (?:(?:aria-\w+|role|class|pointer-events|font-family)="[^"]*"|opacity="1")', "", body
    )
    body = re.sub(r'="[^"]*"', lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found[0]), body)
    # vl-convert escapes the text that it draws; ours is escaped here.
    return Markup(  # noqa: S704
        f'<svg class="plot" viewBox="{box}" role="img" aria-label="{html.escape(title)}. '
        f'{html.escape(description)}"><title>{html.escape(title)}</title>'
        f"<desc>{html.escape(description)}</desc>{body}</svg>"
    )


@unchecked
def interval_rows(
    rows: Sequence[tuple[str, float, float, float]],
    *,
    title: str,
    description: str,
    x_title: str,
    from_zero: bool,
) -> Markup:
    """A row each `(name, low, value, high)`: a bar over the interval, a tick at the value."""
    names = ("name", "low", "value", "high")
    base = chart_of([dict(zip(names, row, strict=True)) for row in rows])
    axis = alt.Axis(grid=False, labelLimit=190, labelColor=Palette.INK)
    y = alt.Y("name:N", sort=None, title=None, axis=axis)

    def x(field: str) -> Any:
        own = alt.Axis(title=x_title, tickCount=5)
        return alt.X(f"{field}:Q", axis=own, scale=alt.Scale(zero=from_zero))

    layers = alt.layer(
        base.mark_bar(height=6, color=Palette.QUIET).encode(x=x("low"), x2="high:Q", y=y),
        base.mark_tick(color=Palette.ACCENT, thickness=3, size=14).encode(x=x("value"), y=y),
    )
    return drawn_svg(layers, title=title, description=description, height=56 + 24 * len(rows))


@unchecked
def interval_steps(
    rows: Sequence[tuple[float, float, float, float, float]],
    *,
    title: str,
    description: str,
    x_title: str,
) -> Markup:
    """A step each `(start, end, low, value, high)`: a block over the interval, a line at the
    value."""
    names = ("a", "b", "low", "value", "high")
    base = chart_of([dict(zip(names, row, strict=True)) for row in rows])
    ends = [rows[0][0], rows[-1][1]]
    axis = alt.Axis(title=x_title, grid=False, tickCount=6)
    x = alt.X("a:Q", axis=axis, scale=alt.Scale(domain=ends, nice=False))
    y_axis = alt.Axis(tickCount=5)
    layers = alt.layer(
        base.mark_rect(color=Palette.QUIET, fillOpacity=0.55).encode(
            x=x, x2="b:Q", y=alt.Y("low:Q", title=None, axis=y_axis), y2="high:Q"
        ),
        base.mark_rule(color=Palette.ACCENT, strokeWidth=2).encode(
            x=x, x2="b:Q", y=alt.Y("value:Q", title=None, axis=y_axis)
        ),
    )
    return drawn_svg(layers, title=title, description=description)
