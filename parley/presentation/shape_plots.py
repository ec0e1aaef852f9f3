"""Plot what columns add to an answer: a line, steps or bars, each with a band."""

from __future__ import annotations

import math
from collections.abc import Sequence

from parley.presentation.plots import Palette, name_values
from parley.presentation.vega_lite import (
    Spec,
    build_bar_end,
    build_layer,
    build_nominal,
    build_quantitative,
)

STYLES = ((Palette.ACCENT, (1, 0)), (Palette.LIMIT, (6, 4)), (Palette.QUIET, (2, 3)))
"""Colour and dashes of the first, second and third curve."""

_BAND = 0.35
Domain = tuple[float, float]
Point = tuple[float, float, float]
"""Low end of the band, value, high end."""


def plot_shape_curves(
    positions: Sequence[float],
    curves: Sequence[Sequence[Point]],
    *,
    steps: bool,
    domain: Domain,
    bands: Sequence[Sequence[Point]] = (),
    x_title: str | None = None,
    height: int = 170,
) -> Spec:
    """Plot curves through positions, or with `steps` constant between them; the first on top.

    Of the curves in `bands` only the bands are drawn, below the rest. A curve ends at a NaN.
    """
    axis = {"title": x_title, "grid": False, "tickCount": 6}
    ends = {"domain": [positions[0], positions[-1]], "nice": False}
    x = build_quantitative("x", axis=axis, scale=ends)
    low, y = (_build_channel(each, domain) for each in ("low", "y"))
    how = "step-after" if steps else "linear"

    def values(curve: Sequence[Point]) -> list[Spec]:
        # The last step extends to the last edge.
        points = [*curve, curve[-1]] if steps else curve
        return [
            {"x": place, "low": low, "y": value, "high": high}
            for place, (low, value, high) in zip(positions, points, strict=True)
            if not math.isnan(value)
        ]

    def band(curve: Sequence[Point], opacity: float) -> Spec:
        area = {"x": x, "y": low, "y2": build_bar_end("high")}
        look = {"color": Palette.QUIET, "fillOpacity": opacity, "interpolate": how}
        return build_layer(values(curve), "area", area, **look)

    drawn = [build_layer([{"y": 0}], "rule", {"y": y}, color=Palette.QUIET, strokeWidth=1)]
    drawn += [band(curve, _BAND / 2) for curve in bands]
    for curve, (colour, dash) in reversed(list(zip(curves, STYLES, strict=False))):
        if any(low < high for low, _, high in curve):
            drawn.append(band(curve, _BAND))
        look = {"color": colour, "strokeWidth": 2.25, "strokeDash": dash, "interpolate": how}
        drawn.append(build_layer(values(curve), "line", {"x": x, "y": y}, **look))
    return {"layer": drawn, "height": height}


def _build_channel(field: str, domain: Domain) -> Spec:
    """Return a channel on an axis without a title, over this domain."""
    scale = {"domain": domain, "nice": False}
    return build_quantitative(field, title=None, axis={"tickCount": 5}, scale=scale)


def plot_shape_bars(rows: Sequence[tuple[str, Sequence[Point]]], *, domain: Domain) -> Spec:
    """Plot a row per name, with a tick at each curve's value and a bar over its band."""
    axis = {"grid": False, "labelLimit": 150, "labelColor": Palette.INK}
    y = build_nominal("name", sort=[each for each, _ in rows], title=None, axis=axis)
    low, x = (_build_channel(each, domain) for each in ("low", "x"))
    drawn = [build_layer([{"x": 0}], "rule", {"x": x}, color=Palette.QUIET, strokeWidth=1)]
    for at in reversed(range(min(len(rows[0][1]), len(STYLES)))):
        own = [(each, *points[at]) for each, points in rows]
        values = name_values(own, "name", "low", "x", "high")
        bar = {"x": low, "x2": build_bar_end("high"), "y": y}
        colour, _ = STYLES[at]
        drawn += [
            build_layer(values, "bar", bar, height=9, color=Palette.QUIET, opacity=_BAND),
            build_layer(values, "tick", {"x": x, "y": y}, color=colour, thickness=3, size=14),
        ]
    return {"layer": drawn, "height": max(60, 30 + 18 * len(rows))}
