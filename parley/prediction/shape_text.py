"""The shapes of a model's columns as text: a spark line for each, or the table of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parley.client.features.blocks import spans
from parley.prediction.shapes import NO_BAND, Shape, Shapes
from parley.server.records.numerals import number

_LEVELS = "▁▂▃▄▅▆▇█"
_MOST = 30
"""Columns that are listed."""


def overview(shapes: Shapes) -> Iterator[str]:
    """A line for each column, the widest first."""
    yield f"columns       by what they add to {shapes.of}; {length_words(shapes)}"
    banded = shapes.columns[0].band is not None
    yield "              " + (
        "± at most: what the noise alone may have moved, 95 %; · no more than that"
        if banded
        else NO_BAND
    )
    shown = shapes.columns[:_MOST]
    wide = min(max(len(each.name) for each in shown), 30)
    for each in shown:
        of = each.steepest[0]
        mark = "·" if each.within_noise else " "
        noise = f"  ± {number(max(each.band), 2)}" if each.band else ""
        label = f"  ({of})" if len(each.curves) > 1 else ""
        yield (
            f"{mark} {each.name[:30]:<{wide}}  {spark(each.curves[of]):<12}  "
            f"{_ends(each, each.curves[of])}{noise}{label}"
        )
    if left := len(shapes.columns) - len(shown):
        yield f"  and {left} more; --json has all of them"
    yield "  --column NAME shows one in full"


def whole(shapes: Shapes) -> Iterator[str]:
    """One column's points, steps or bars, every curve."""
    (shape,) = shapes.columns
    yield f"{shape.name}: what it adds to {shapes.of}; {length_words(shapes)}"
    labels = list(shape.curves)
    rows = [["", *labels, *(["± noise, 95 %"] if shape.band else [])]]
    for at, place in enumerate(places(shape)):
        rows.append([place, *(number(shape.curves[of][at]) for of in labels)])
        if shape.band:
            rows[-1].append(number(shape.band[at], 2))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        yield f"{first:<{widths[0]}}  {'  '.join(cells)}"
    if shape.band is None:
        yield NO_BAND


def places(shape: Shape) -> Sequence[str]:
    """What each point, step or bar of a shape stands at."""
    if shape.drawn == "line":
        return [_place(value) for value in shape.values]
    return shape.names or spans(shape.values)


def _place(value: float) -> str:
    text = number(value, 4)
    return text.rstrip("0").rstrip(".") if "." in text and "×" not in text else text


def length_words(shapes: Shapes) -> str:
    """For which rows."""
    if shapes.fixed:
        return "the same in every row"
    return (
        f"in a row of length {number(shapes.row_length)} before it is scaled (a longer row's "
        "columns all count less)"
    )


def spark(values: Sequence[float]) -> str:
    """The values as blocks of eight heights, at most twelve of them.

    >>> spark((-1, 0, 1))
    '▁▅█'
    """
    step = max((len(values) - 1) / 11, 1)
    chosen = [values[round(at * step)] for at in range(min(len(values), 12))]
    low, high = min(chosen), max(chosen)
    if not high > low:
        return _LEVELS[0] * len(chosen)
    return "".join(_LEVELS[min(int((each - low) / (high - low) * 8), 7)] for each in chosen)


def _ends(shape: Shape, curve: Sequence[float]) -> str:
    """Where it is lowest and highest."""
    named = places(shape)
    low, high = min(curve), max(curve)
    return (
        f"{number(low, 2)} at {named[curve.index(low)]}, "
        f"{number(high, 2)} at {named[curve.index(high)]}"
    )
