"""The plots of what columns add: a line, steps or bars, with a band around each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
from markupsafe import Markup

from parley.report.plots import Palette, chart_of, drawn_svg, unchecked

STYLES = ((Palette.ACCENT, (1, 0)), (Palette.LIMIT, (6, 4)), (Palette.QUIET, (2, 3)))
"""Colour and dashes of the first curve, the second, the third."""

_BAND = 0.35
Domain = tuple[float, float]
Point = tuple[float, float, float]
"""Low end of the band, value, high end."""


@unchecked
def along(
    places: Sequence[float],
    curves: Sequence[Sequence[Point]],
    *,
    steps: bool,
    domain: Domain,
    title: str,
    description: str,
    around: Sequence[Sequence[Point]] = (),
    x_title: str | None = None,
    height: int = 170,
) -> Markup:
    """Curves through places, or with `steps` level between each two; the first on top.

    `around`: curves whose bands alone are drawn, below all else. A curve ends where it is NaN.
    """
    x_axis = alt.Axis(title=x_title, grid=False, tickCount=6)
    x = alt.X("x:Q", axis=x_axis, scale=alt.Scale(domain=[places[0], places[-1]], nice=False))
    scale = alt.Scale(domain=list(domain), nice=False)
    y_axis = alt.Axis(tickCount=5)

    def y(field: str) -> Any:
        return alt.Y(f"{field}:Q", title=None, axis=y_axis, scale=scale)

    zero = chart_of([{"y": 0}]).mark_rule(color=Palette.QUIET, strokeWidth=1)
    layers = [zero.encode(y=y("y"))]
    how = "step-after" if steps else "linear"

    def base(curve: Sequence[Point]) -> Any:
        # The last step goes on to the last edge.
        points = [*curve, curve[-1]] if steps else curve
        values = [
            {"x": place, "low": low, "y": value, "high": high}
            for place, (low, value, high) in zip(places, points, strict=True)
            if not math.isnan(value)
        ]
        return chart_of(values).encode(x=x)

    def band(curve: Sequence[Point], opacity: float) -> Any:
        area = base(curve).mark_area(color=Palette.QUIET, fillOpacity=opacity, interpolate=how)
        return area.encode(y=y("low"), y2="high:Q")

    layers += [band(curve, _BAND / 2) for curve in around]
    for curve, (colour, dash) in reversed(list(zip(curves, STYLES, strict=False))):
        line = base(curve).mark_line(
            color=colour, strokeWidth=2.25, strokeDash=list(dash), interpolate=how
        )
        if any(low < high for low, _, high in curve):
            layers.append(band(curve, _BAND))
        layers.append(line.encode(y=y("y")))
    return drawn_svg(alt.layer(*layers), title=title, description=description, height=height)


@unchecked
def upright(
    rows: Sequence[tuple[str, Sequence[Point]]], *, domain: Domain, title: str, description: str
) -> Markup:
    """A row for each name, with a tick for each curve's value and a bar over its band."""
    names = [name for name, _ in rows]
    axis = alt.Axis(grid=False, labelLimit=150, labelColor=Palette.INK)
    y = alt.Y("name:N", sort=names, title=None, axis=axis)
    scale = alt.Scale(domain=list(domain), nice=False)

    def x(field: str) -> Any:
        return alt.X(f"{field}:Q", title=None, axis=alt.Axis(tickCount=5), scale=scale)

    zero = chart_of([{"x": 0}]).mark_rule(color=Palette.QUIET, strokeWidth=1)
    layers = [zero.encode(x=x("x"))]
    for at in reversed(range(min(len(rows[0][1]), len(STYLES)))):
        values = [
            {"name": name, "low": low, "x": value, "high": high}
            for name, points in rows
            for low, value, high in [points[at]]
        ]
        base = chart_of(values).encode(y=y)
        band = base.mark_bar(height=9, color=Palette.QUIET, opacity=_BAND)
        tick = base.mark_tick(color=STYLES[at][0], thickness=3, size=14)
        layers += [band.encode(x=x("low"), x2="high:Q"), tick.encode(x=x("x"))]
    height = max(60, 30 + 18 * len(rows))
    return drawn_svg(alt.layer(*layers), title=title, description=description, height=height)
