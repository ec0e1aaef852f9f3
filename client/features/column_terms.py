"""Features of a single column along the column, from which plots of additive models are drawn.

    Σ over blocks of ⟨θ of the block, features of the block at the column's value⟩ / ‖row‖

Rows without a map, linear splines, bins and codes consist of such blocks. A map that mixes columns
has none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from parley.client.data.column_types import ArrayColumn, CategoricalColumn, NumericColumn
from parley.client.data.schema import Schema

_BETWEEN_LOGS = 8
"""Points per interval if a column is transformed: linear features are not linear in its unit."""

_MAX_STEPS = 20
"""Maximum number of a column's `step`s for which each one is drawn."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnTerm:
    """Consecutive features of one column, or of a pair, at points along it.

    Attributes:
        begin, width: position of its features in a row.
        drawn: "line": `values` are points in the column's unit, and features are linear, or nearly,
            in between; "steps": `values` are edges, with a feature between each two; "bars": a
            feature for each of `names`.
        features: `[n, width]` at the points of a line; None: one feature per step or bar.
        square: ‖features‖², on average over the range.
    """

    name: str
    begin: int
    width: int
    drawn: Literal["line", "steps", "bars"]
    values: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    features: NDArray[np.float64] | None = None
    square: float = 1.0

    @property
    def cells(self) -> tuple[str, ...]:
        """Text for each step or bar."""
        return self.names or format_spans(self.values)


def format_spans(edges: Sequence[float]) -> tuple[str, ...]:
    """Format the range between each two edges."""
    return tuple(f"{low:g}–{high:g}" for low, high in pairwise(edges))


def build_line_term(name: str, begin: int, column: NumericColumn, intervals: int = 0) -> ColumnTerm:
    """Build the term of a number as its cell in [−1, 1], or on splines of equal `intervals`."""
    low, high = column.encode(np.array(column.range, np.float64))
    finer = 1 if column.transform == "none" else _BETWEEN_LOGS
    cells = np.linspace(low, high, max(intervals, 1) * finer + 1)
    begins, ends = column.range
    if intervals and column.step and (ends - begins) / column.step <= _MAX_STEPS:
        # There are no values between two steps.
        cells = column.encode(np.arange(begins, ends + column.step / 2, column.step))
    if intervals:
        features, square = compute_spline_weights(cells, low, high, intervals), 2 / 3
    else:
        features, square = cells[:, None], float(low * low + low * high + high * high) / 3
    return ColumnTerm(
        name=name,
        begin=begin,
        width=features.shape[1],
        drawn="line",
        values=_decode_values(column, cells),
        features=features,
        square=square,
    )


def compute_spline_weights(
    cells: NDArray[np.float64], low: float, high: float, intervals: int
) -> NDArray[np.float64]:
    """Return `[n, intervals + 1]` weights of the two knots around each of `[n]` cells."""
    position = (cells - low) / (high - low) * intervals
    away = np.abs(position[:, None] - np.arange(intervals + 1))
    return np.asarray(np.maximum(0, 1 - away))


def build_step_term(
    name: str, begin: int, column: NumericColumn, cuts: NDArray[np.float64]
) -> ColumnTerm:
    """Build the term of a number that is one-hot between cuts of its cell."""
    low, high = column.encode(np.array(column.range, np.float64))
    values = _decode_values(column, np.array([low, *cuts, high]))
    return ColumnTerm(name=name, begin=begin, width=len(cuts) + 1, drawn="steps", values=values)


def build_bar_term(name: str, begin: int, names: Sequence[str]) -> ColumnTerm:
    """Build the term of one-hot categories, or of the cells of a pair."""
    return ColumnTerm(name=name, begin=begin, width=len(names), drawn="bars", names=tuple(names))


def _decode_values(column: NumericColumn, cells: NDArray[np.float64]) -> tuple[float, ...]:
    low, high = column.range
    places = 12 - math.ceil(math.log10(high - low))  # 30, not 29.999999999999996
    return tuple(round(float(value), places) for value in column.decode(cells))


def list_plain_terms(schema: Schema, intervals: int = 0) -> tuple[ColumnTerm, ...]:
    """Return the terms of rows without a map, or of splines; empty if a column is an array."""
    blocks, begin = list[ColumnTerm](), 0
    for name, column in schema.features.items():
        if isinstance(column, ArrayColumn):
            return ()
        if isinstance(column, CategoricalColumn):
            blocks.append(build_bar_term(name, begin, column.cells))
        else:
            blocks.append(build_line_term(name, begin, column, intervals))
        begin += blocks[-1].width
    return tuple(blocks)


def estimate_row_norm(schema: Schema, terms: Sequence[ColumnTerm], *, mapped: bool) -> float:
    """Estimate the norm that a row is divided by, for numbers uniform in their ranges.

    It is the same for each row with scaling "schema", and for indicators only. Otherwise a row is
    divided by its own norm, which scales all its columns equally.
    """
    if not mapped and schema.scaling == "schema":
        return 1 / schema.row_scale
    typical = math.sqrt(sum(block.square for block in terms))
    return typical if not mapped and schema.scaling == "unit" else max(typical, 1.0)
