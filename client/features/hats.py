"""Tables as hats: every number spread over the two knots that it lies between, categories one-hot.

Knots cut a column's public range into equal parts, and the hat of a knot is 1 there and falls to 0
at its neighbours (the basis of linear splines; Hastie, Tibshirani & Friedman 2009, 5.2). A linear
model on hats is a continuous, piecewise linear curve of every column, added up. The hats of a
column add up to 1, so that no intercept is needed.

    >>> age = Schema.from_toml('''[columns]
    ... age = { kind = "numeric", range = [0, 100] }
    ... sick = { kind = "label", positive = 1, negative = 0 }''')
    >>> cell = age.features["age"].encode(np.array([[30.0]]))
    >>> Hats(intervals=4).on(age).of(cell).astype(float).round(2).tolist()
    [[0.0, 0.8, 0.2, 0.0, 0.0]]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.data.columns import ArrayColumn, NumericColumn
from parley.client.data.schema import Schema
from parley.client.features.base import FeatureError, FeatureMap, Features

_MOST_INTERVALS = 1000


@dataclass(frozen=True, kw_only=True)
class Hats(FeatureMap):
    """Linear splines of numbers, over ranges in equal `intervals`; indicators of categories."""

    name: ClassVar[str] = "hats"

    intervals: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.intervals <= _MOST_INTERVALS:
            raise FeatureError(
                f"Expected 1 to {_MOST_INTERVALS} intervals of hats, got {self.intervals}."
            )

    def on(self, schema: Schema) -> Features:
        """For records without arrays."""
        columns = schema.features
        if arrays := [name for name, each in columns.items() if isinstance(each, ArrayColumn)]:
            raise FeatureError(f"Expected no arrays with features 'hats', got {arrays[0]!r}.")
        knots = np.arange(self.intervals + 1)

        def piece(cells: NDArray[np.float64]) -> NDArray[np.float32]:
            blocks, at = [], 0
            for column in columns.values():
                block = cells[:, at : at + column.width]
                at += column.width
                if isinstance(column, NumericColumn):
                    low, high = column.encode(np.array(column.range, np.float64))
                    position = (block - low) / (high - low) * self.intervals  # [n, 1]
                    block = np.maximum(0, 1 - np.abs(position - knots))
                blocks.append(block.astype(np.float32))
            return np.concatenate(blocks, axis=1)

        width = sum(
            len(knots) if isinstance(each, NumericColumn) else each.width
            for each in columns.values()
        )
        return Features(width=width, piece=piece)
