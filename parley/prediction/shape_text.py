"""Format shape functions as text: a spark line per column, or the table of one column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parley.prediction.shape_functions import (
    NO_BAND,
    ShapeFunction,
    ShapeFunctions,
    format_length,
    list_positions,
)
from parley.server.statements.number_format import format_number

_SPARK_LEVELS = "▁▂▃▄▅▆▇█"
_MAX_COLUMNS = 30
"""Maximum number of listed columns."""


def format_overview(shapes: ShapeFunctions) -> Iterator[str]:
    """Yield a line per column, the widest first."""
    yield f"columns       by their contribution to {shapes.of}; {format_length(shapes)}"
    banded = shapes.columns[0].band is not None
    band = "± upper bound on the effect of noise alone, 95 %; · not more than that"
    yield f"              {band if banded else NO_BAND}"
    shown = shapes.columns[:_MAX_COLUMNS]
    wide = min(max(len(each.name) for each in shown), 30)
    for each in shown:
        of = each.steepest[0]
        mark = "·" if each.within_noise else " "
        noise = f"  ± {format_number(max(each.band), 2)}" if each.band else ""
        label = f"  ({of})" if len(each.curves) > 1 else ""
        yield (
            f"{mark} {each.name[:30]:<{wide}}  {format_sparkline(each.curves[of]):<12}  "
            f"{_format_extremes(each, each.curves[of])}{noise}{label}"
        )
    if left := len(shapes.columns) - len(shown):
        yield f"  and {left} more; for all, use --json"
    yield "  for one in full, use --column NAME"


def format_shape(shapes: ShapeFunctions) -> Iterator[str]:
    """Yield the lines of one column's points, steps or bars, with every curve."""
    (shape,) = shapes.columns
    yield f"{shape.name}: its contribution to {shapes.of}; {format_length(shapes)}"
    labels = list(shape.curves)
    rows = [["", *labels, *(["± noise, 95 %"] if shape.band else [])]]
    for at, place in enumerate(list_positions(shape)):
        rows.append([place, *(format_number(shape.curves[of][at]) for of in labels)])
        if shape.band:
            rows[-1].append(format_number(shape.band[at], 2))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        yield f"{first:<{widths[0]}}  {'  '.join(cells)}"
    if shape.band is None:
        yield NO_BAND


def format_sparkline(values: Sequence[float]) -> str:
    """Return at most twelve of the values as blocks of eight heights.

    >>> format_sparkline((-1, 0, 1))
    '▁▅█'
    """
    step = max((len(values) - 1) / 11, 1)
    chosen = [values[round(at * step)] for at in range(min(len(values), 12))]
    low, high = min(chosen), max(chosen)
    if not high > low:
        return _SPARK_LEVELS[0] * len(chosen)
    return "".join(_SPARK_LEVELS[min(int((each - low) / (high - low) * 8), 7)] for each in chosen)


def _format_extremes(shape: ShapeFunction, curve: Sequence[float]) -> str:
    """Describe where a curve is lowest and highest."""
    named = list_positions(shape)
    low, high = min(curve), max(curve)
    return (
        f"{format_number(low, 2)} at {named[curve.index(low)]}, "
        f"{format_number(high, 2)} at {named[curve.index(high)]}"
    )
