"""Build the report's section on what each column adds to a linear model's answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parley.client.data.schema import SchemaError
from parley.prediction.fitted_model import FittedModel
from parley.prediction.model_loading import load_fitted_model
from parley.prediction.shape_functions import (
    NO_BAND,
    ShapeFunction,
    ShapeFunctions,
    compute_shapes,
    format_length,
    list_positions,
)
from parley.presentation.document import (
    Figure,
    Figures,
    LegendEntry,
    Section,
    Table,
    Text,
    build_section,
)
from parley.presentation.plots import draw_figure
from parley.presentation.shape_plots import STYLES, Point, plot_shape_bars, plot_shape_curves
from parley.server.model_file import ModelFileError
from parley.server.records.run_summary import RunSummary
from parley.server.statements.number_format import format_number

_MOST_DRAWN, _WIDEST, _MOST_LISTED, _MOST_BARS = 12, 6, 60, 12


def build_column_section(folder: Path, summary: RunSummary) -> Section | None:
    """Return the section's text, its figures, and a table of the remaining columns.

    Return None if there is no model file, or if the model is not additive in its columns.
    """
    try:
        shapes = compute_shapes(load_fitted_model(folder, FittedModel), summary)
    except (ModelFileError, SchemaError):
        return None
    if shapes is None:
        return None
    count = _MOST_DRAWN if len(shapes.columns) <= _MOST_DRAWN else _WIDEST
    drawn, others = shapes.columns[:count], shapes.columns[count:]
    domain = _compute_domain(drawn)
    return build_section(
        "Contribution of each column",
        Text(_describe_shapes(shapes)),
        Figures([_build_figure(each, domain) for each in drawn]),
        _build_column_table(others) if others else None,
    )


def _describe_shapes(shapes: ShapeFunctions) -> str:
    band = f"There is {NO_BAND}."
    if shapes.columns[0].band is not None:
        band = (
            "The grey band shows how far the noise alone can move a curve: 95 %, to first order, "
            "an upper bound (it ignores that records pull the fit back). It does not cover the "
            "variation between samples of records. A curve within its band around zero shows no "
            "effect."
        )
    return (
        f"The model adds up one function of each column to {shapes.of}. Each is shown minus its "
        f"mean, {format_length(shapes)}. The widest come first, all on one scale. {band}"
    )


def _compute_domain(shapes: tuple[ShapeFunction, ...]) -> tuple[float, float]:
    """Return the range of all drawn values and 0, with a margin."""
    ends = [
        end
        for each in shapes
        for of in each.steepest[: len(STYLES)]
        for low, _, high in _list_points(each, of)
        for end in (low, high)
    ]
    low, high = min(0.0, *ends), max(0.0, *ends)
    room = (high - low) * 0.04 or 1.0
    return low - room, high + room


def _list_points(shape: ShapeFunction, curve_name: str) -> list[Point]:
    curve = shape.curves[curve_name]
    band = shape.band or (0.0,) * len(curve)
    return [(value - half, value, value + half) for value, half in zip(curve, band, strict=True)]


def _build_figure(shape: ShapeFunction, domain: tuple[float, float]) -> Figure:
    shown = shape.steepest[: len(STYLES)]
    curves = [_list_points(shape, of) for of in shown]
    named = list_positions(shape)
    table = [[*map(format_number, points)] for points in zip(*shape.curves.values(), strict=True)]
    caption, head = "Contributions", ["", *shape.curves]
    if shape.band:
        caption, head = f"{caption}, and half the width of the band", [*head, "± noise"]
        table = [[*row, format_number(at, 2)] for row, at in zip(table, shape.band, strict=True)]
    table = [[name, *row] for name, row in zip(named, table, strict=True)]
    data = Table(caption=caption, head=head, rows=table)
    if shape.drawn == "bars":
        order = sorted(range(len(named)), key=lambda at: -shape.curves[shown[0]][at])
        half = _MOST_BARS // 2
        chosen = order if len(order) <= _MOST_BARS else [*order[:half], *order[-half:]]
        rows = [(named[at], [curve[at] for curve in curves]) for at in chosen]
        chart = plot_shape_bars(rows, domain=domain)
    else:
        steps = shape.drawn == "steps"
        chart = plot_shape_curves(shape.values, curves, steps=steps, domain=domain)
    several = len(shape.curves) > 1
    keys = [
        LegendEntry(name=of, colour=colour, width=2.25, dash=() if dash == (1, 0) else dash)
        for of, (colour, dash) in zip(shown, STYLES, strict=False)
    ]
    return draw_figure(
        shape.name, _describe_finding(shape, named), chart, data, keys=keys if several else ()
    )


def _describe_finding(shape: ShapeFunction, named: Any) -> str:
    """Describe where the widest curve is lowest and highest, and whether noise explains it."""
    of = shape.steepest[0]
    curve = shape.curves[of]
    low, high = min(curve), max(curve)
    said = (
        f"Lowest at {named[curve.index(low)]} ({format_number(low, 2)}), highest at "
        f"{named[curve.index(high)]} ({format_number(high, 2)})"
    )
    if len(shape.curves) > 1:
        said += f" for {of}"
    if shape.within_noise:
        said += "; not more than noise alone can cause"
    elif shape.drawn == "bars" and len(named) > _MOST_BARS:
        said += f"; the {_MOST_BARS} outermost of {len(named)}"
    return f"{said}."


def _build_column_table(shapes: tuple[ShapeFunction, ...]) -> Table:
    rows = []
    for each in shapes[:_MOST_LISTED]:
        curve = each.curves[each.steepest[0]]
        noise = format_number(max(each.band), 2) if each.band else "–"
        rows.append([each.name, format_number(min(curve), 2), format_number(max(curve), 2), noise])
    left = len(shapes) - len(rows)
    caption = "Other columns" + (f"; {format_number(left)} more: see `parley show`" if left else "")
    return Table(caption=caption, head=["column", "lowest", "highest", "± noise"], rows=rows)
