"""Plot the intervals of a session's answers, as Vega-Lite charts."""

from __future__ import annotations

from collections.abc import Sequence

from parley.presentation.plots import Palette, name_values
from parley.presentation.vega_lite import (
    Spec,
    build_bar_end,
    build_layer,
    build_nominal,
    build_quantitative,
)


def plot_interval_rows(rows: Sequence[tuple[str, float, float, float]], *, from_zero: bool) -> Spec:
    """Plot a row per `(name, low, value, high)`: a bar over the interval, a tick at the value."""
    values = name_values(rows, "name", "low", "value", "high")
    axis = {"grid": False, "labelLimit": 190, "labelColor": Palette.INK}
    y = build_nominal("name", sort=None, title=None, axis=axis)
    along = {"axis": {"title": "", "tickCount": 5}, "scale": {"zero": from_zero}}
    bar = {"x": build_quantitative("low", **along), "x2": build_bar_end("high"), "y": y}
    tick = {"x": build_quantitative("value", **along), "y": y}
    drawn = [
        build_layer(values, "bar", bar, height=6, color=Palette.QUIET),
        build_layer(values, "tick", tick, color=Palette.ACCENT, thickness=3, size=14),
    ]
    return {"layer": drawn, "height": 56 + 24 * len(rows)}


def plot_interval_steps(
    rows: Sequence[tuple[float, float, float, float, float]], *, x_title: str
) -> Spec:
    """Plot a step per `(start, end, low, value, high)`: a block over the interval, a line at the
    value.
    """
    values = name_values(rows, "a", "b", "low", "value", "high")
    axis = {"title": x_title, "grid": False, "tickCount": 6}
    ends = {"domain": [rows[0][0], rows[-1][1]], "nice": False}
    x = {"x": build_quantitative("a", axis=axis, scale=ends), "x2": build_bar_end("b")}
    low, value = (
        build_quantitative(each, title=None, axis={"tickCount": 5}) for each in ("low", "value")
    )
    block = {**x, "y": low, "y2": build_bar_end("high")}
    drawn = [
        build_layer(values, "rect", block, color=Palette.QUIET, fillOpacity=0.55),
        build_layer(values, "rule", {**x, "y": value}, color=Palette.ACCENT, strokeWidth=2),
    ]
    return {"layer": drawn}
