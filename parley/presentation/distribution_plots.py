"""Plots of distributions over many parties or columns: a map of shares, and ranges of quantiles."""

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


def plot_heat_map(cells: Sequence[tuple[int, str, float]], *, x_title: str, y_title: str) -> Spec:
    """Plot a map of squares ``(column from 1, row, depth of colour in [0, 1])``, rows in order."""
    # Opacity, not a colour scale: one colour is visible on both backgrounds.
    values = [{"x": x, "y": y, "o": round(depth, 3)} for x, y, depth in cells]
    columns = max(x for x, _, _ in cells)
    step = max(1, columns // 10)
    x_axis = {"title": x_title, "labelAngle": 0, "values": list(range(1, columns + 1, step))}
    apart = {"paddingInner": 0.06}
    encoding = {
        "x": {"field": "x", "type": "ordinal", "axis": x_axis, "scale": apart},
        "y": build_nominal("y", sort=None, title=y_title, scale=apart),
        "fillOpacity": build_quantitative("o", scale=None, legend=None),
    }
    return build_layer(values, "rect", encoding, color=Palette.ACCENT)


def plot_ranges(
    rows: Sequence[tuple[str, float, float, float, float, float]], *, x_title: str, y_title: str
) -> Spec:
    """Plot a row per ``(name, low, lower, middle, upper, high)``: a thin bar, a thick bar, a
    tick.
    """
    values = name_values(rows, "name", "low", "lower", "middle", "upper", "high")
    axis = {"title": x_title, "format": "%", "tickCount": 6}
    y = build_nominal("name", sort=None, title=y_title)
    low, lower, middle = (
        {"x": build_quantitative(each, axis=axis, scale={"zero": True}), "y": y}
        for each in ("low", "lower", "middle")
    )
    thick = min(14.0, 150 / len(rows))
    thin = {**low, "x2": build_bar_end("high")}
    wide = {**lower, "x2": build_bar_end("upper")}
    tick = {"color": Palette.LIMIT, "thickness": 3, "size": thick * 1.4}
    drawn = [
        build_layer(values, "bar", thin, height=thick / 4, color=Palette.QUIET),
        build_layer(values, "bar", wide, height=thick, color=Palette.ACCENT),
        build_layer(values, "tick", middle, **tick),
    ]
    return {"layer": drawn}
