"""The features that a column has for itself, along the column: what an additive model is drawn by.

    Σ over blocks of ⟨θ of the block, features of the block at the column's value⟩ / ‖row‖

No map, hats, bins and codes are made of such blocks; a map that mixes columns has none.
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
"""Points an interval where a column is transformed: what is linear there is none in its unit."""

_MAX_STEPS = 20
"""Of a column's `step`, up to which it is drawn at each."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnTerm:
    """Consecutive features of one column, or of a pair, at points along it.

    Attributes:
        begin, width: which of a row's features.
        drawn: "line": `values` are points in the column's unit, and features linear in between, or
            nearly; "steps": `values` are edges, a feature between each two; "bars": a feature for
            each of `names`.
        features: `[n, width]` at the points of a line; None: a feature for each step or bar.
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
        """What each step or bar stands for."""
        return self.names or format_spans(self.values)


def format_spans(edges: Sequence[float]) -> tuple[str, ...]:
    """What lies between each two."""
    return tuple(f"{low:g}–{high:g}" for low, high in pairwise(edges))


def build_line_term(name: str, begin: int, column: NumericColumn, intervals: int = 0) -> ColumnTerm:
    """A number as its cell in [−1, 1], or spread over hats of so many equal intervals."""
    low, high = column.encode(np.array(column.range, np.float64))
    finer = 1 if column.transform == "none" else _BETWEEN_LOGS
    cells = np.linspace(low, high, max(intervals, 1) * finer + 1)
    begins, ends = column.range
    if intervals and column.step and (ends - begins) / column.step <= _MAX_STEPS:
        # No value lies between two.
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
    """`[n, intervals + 1]` weights of the two knots that each of `[n]` cells lies between."""
    position = (cells - low) / (high - low) * intervals
    away = np.abs(position[:, None] - np.arange(intervals + 1))
    return np.asarray(np.maximum(0, 1 - away))


def build_step_term(
    name: str, begin: int, column: NumericColumn, cuts: NDArray[np.float64]
) -> ColumnTerm:
    """A number one-hot between cuts of its cell."""
    low, high = column.encode(np.array(column.range, np.float64))
    values = _decode_values(column, np.array([low, *cuts, high]))
    return ColumnTerm(name=name, begin=begin, width=len(cuts) + 1, drawn="steps", values=values)


def build_bar_term(name: str, begin: int, names: Sequence[str]) -> ColumnTerm:
    """Categories, or the cells of a pair, one-hot."""
    return ColumnTerm(name=name, begin=begin, width=len(names), drawn="bars", names=tuple(names))


def _decode_values(column: NumericColumn, cells: NDArray[np.float64]) -> tuple[float, ...]:
    low, high = column.range
    places = 12 - math.ceil(math.log10(high - low))  # 30, no 29.999999999999996
    return tuple(round(float(value), places) for value in column.decode(cells))


def list_plain_terms(schema: Schema, intervals: int = 0) -> tuple[ColumnTerm, ...]:
    """Of rows without a map, or of hats; none where a column is an array."""
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
    """The norm that a row is divided by, where numbers lie evenly in their ranges.

    The same for every row with scaling "schema", and of indicators alone; else a row is divided by
    its own, which scales all of its columns alike.
    """
    if not mapped and schema.scaling == "schema":
        return 1 / schema.row_scale
    typical = math.sqrt(sum(block.square for block in terms))
    return typical if not mapped and schema.scaling == "unit" else max(typical, 1.0)
