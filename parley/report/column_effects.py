"""The report's section of what each column adds to a linear model's answer, from its model file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from parley.client.data.schema import SchemaError
from parley.prediction.model_loading import load_model
from parley.prediction.shape_functions import (
    NO_BAND,
    Shape,
    Shapes,
    length_words,
    places,
    shapes_of,
)
from parley.report.components import Figure, Key, Table
from parley.report.shape_plots import STYLES, Point, along, upright
from parley.server.model_file import ModelFileError
from parley.server.records.number_format import number
from parley.server.records.run_summary import RunSummary

_MOST_DRAWN, _WIDEST, _MOST_LISTED, _MOST_BARS = 12, 6, 60, 12


def column_section(folder: Path, summary: RunSummary) -> dict[str, Any] | None:
    """What the section says, its figures, and a table of the columns beyond them.

    None where there is no model file, or none of columns that add up.
    """
    try:
        shapes = shapes_of(load_model(folder), summary)
    except (ModelFileError, SchemaError):
        return None
    if shapes is None:
        return None
    few = len(shapes.columns) <= _MOST_DRAWN
    count = _MOST_DRAWN if few else _WIDEST
    drawn, others = shapes.columns[:count], shapes.columns[count:]
    domain = _domain(drawn)
    return {
        "text": _words(shapes),
        "figures": [_figure(each, domain) for each in drawn],
        "others": _listed(others) if others else None,
    }


def _words(shapes: Shapes) -> str:
    banded = shapes.columns[0].band is not None
    return (
        f"The model adds up one function of each column to {shapes.of}. It is shown less its mean, "
        f"{length_words(shapes)}; the widest come first, all on one scale. "
        + (
            "The grey band is what the noise alone may have moved, 95 %, at most: to first order, "
            "as if no record lay there to pull back. It is no interval for other records. A curve "
            "within its band around zero says nothing."
            if banded
            else f"There is {NO_BAND}."
        )
    )


def _domain(shapes: tuple[Shape, ...]) -> tuple[float, float]:
    """Of all that is drawn, and 0, with some room."""
    ends = [
        end
        for each in shapes
        for of in each.steepest[: len(STYLES)]
        for low, _, high in _points(each, of)
        for end in (low, high)
    ]
    low, high = min(0.0, *ends), max(0.0, *ends)
    room = (high - low) * 0.04 or 1.0
    return low - room, high + room


def _points(shape: Shape, of: str) -> list[Point]:
    curve = shape.curves[of]
    band = shape.band or (0.0,) * len(curve)
    return [(value - half, value, value + half) for value, half in zip(curve, band, strict=True)]


def _figure(shape: Shape, domain: tuple[float, float]) -> Figure:
    shown = shape.steepest[: len(STYLES)]
    curves = [_points(shape, of) for of in shown]
    named = places(shape)
    data = Table(
        caption="Contributions, and half the band's width" if shape.band else "Contributions",
        head=["", *shape.curves, *(["± noise"] if shape.band else [])],
        rows=[
            [
                named[at],
                *(number(curve[at]) for curve in shape.curves.values()),
                *([number(shape.band[at], 2)] if shape.band else []),
            ]
            for at in range(len(named))
        ],
    )
    if shape.drawn == "bars":
        order = sorted(range(len(named)), key=lambda at: -shape.curves[shown[0]][at])
        half = _MOST_BARS // 2
        chosen = order if len(order) <= _MOST_BARS else [*order[:half], *order[-half:]]
        rows = [(named[at], [curve[at] for curve in curves]) for at in chosen]
        plot = partial(upright, rows, domain=domain)
    else:
        steps = shape.drawn == "steps"
        plot = partial(along, shape.values, curves, steps=steps, domain=domain)
    several = len(shape.curves) > 1
    keys = [
        Key(name=of, colour=colour, width=2.25, dash=() if dash == (1, 0) else dash)
        for of, (colour, dash) in zip(shown, STYLES, strict=False)
    ]
    return Figure.drawn(
        shape.name, _finding(shape, named), plot, data, keys=keys if several else ()
    )


def _finding(shape: Shape, named: Any) -> str:
    """Where the widest curve is lowest and highest, and whether the noise could do that."""
    of = shape.steepest[0]
    curve = shape.curves[of]
    low, high = min(curve), max(curve)
    said = (
        f"Lowest at {named[curve.index(low)]} ({number(low, 2)}), highest at "
        f"{named[curve.index(high)]} ({number(high, 2)})"
    )
    if len(shape.curves) > 1:
        said += f" for {of}"
    if shape.within_noise:
        said += "; no more than the noise may have moved"
    elif shape.drawn == "bars" and len(named) > _MOST_BARS:
        said += f"; the {_MOST_BARS} outermost of {len(named)}"
    return f"{said}."


def _listed(shapes: tuple[Shape, ...]) -> Table:
    rows = []
    for each in shapes[:_MOST_LISTED]:
        curve = each.curves[each.steepest[0]]
        noise = number(max(each.band), 2) if each.band else "–"
        rows.append([each.name, number(min(curve), 2), number(max(curve), 2), noise])
    left = len(shapes) - len(rows)
    caption = "The other columns" + (f"; {number(left)} more are in `parley show`" if left else "")
    return Table(caption=caption, head=["column", "lowest", "highest", "± noise"], rows=rows)
