"""Plots of values with intervals: a row a name, or a step an interval of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from parley.report.plots import Palette, chart_of, drawn_svg, unchecked


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
    import altair as alt  # noqa: PLC0415 - start-up: a report without plots (altair takes .5 s)

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
    import altair as alt  # noqa: PLC0415 - start-up: a report without plots (altair takes .5 s)

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
