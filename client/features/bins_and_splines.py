"""Feature maps that encode table columns as indicators: bins, linear splines, record codes.

`Bins` encodes numbers one-hot by public bins, and products of named pairs of columns. A linear
model on bins is a generalised additive model: a free step function of each column, and of each
named pair. Bins are equal parts of a column's range, or have edges from the job; they use no
information from the records. Each row has the same number of ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.data.column_types import ArrayColumn, CategoricalColumn, NumericColumn
from parley.client.data.record_discretization import build_coded_columns, find_array_column
from parley.client.data.schema import Schema, SchemaError
from parley.client.features.base import BoundFeatureMap, FeatureMap
from parley.client.features.column_terms import (
    ColumnTerm,
    build_bar_term,
    build_step_term,
    compute_spline_weights,
    list_plain_terms,
)
from parley.client.features.feature_error import FeatureError
from parley.safe_io.error_translation import translate_errors

_MAX_BINS = 1000


@dataclass(frozen=True, kw_only=True)
class Bins(FeatureMap):
    """Indicators of bins and categories, and of products of pairs of columns.

    Attributes:
        bins: equal parts that a numeric column's (transformed) range is cut into.
        edges: column → increasing values in the column's unit, at which it is cut instead.
    """

    name: ClassVar[str] = "bins"

    bins: int = 10
    edges: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    products: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        if not 2 <= self.bins <= _MAX_BINS:
            raise FeatureError(f"Expected 2 to {_MAX_BINS} bins, got {self.bins}.")
        for name, edges in self.edges.items():
            rising = all(low < high for low, high in pairwise(edges))
            if not edges or not rising:
                raise FeatureError(f"Expected increasing edges of {name!r}, got {list(edges)}.")
        for pair in self.products:
            if len(set(pair)) != 2:
                raise FeatureError(f"Expected pairs of two columns as products, got {list(pair)}.")

    def bind(self, schema: Schema) -> BoundFeatureMap:
        """Return the map for records without arrays."""
        columns, groups, starts = self._build_layout(schema)

        def piece(cells: NDArray[np.float64]) -> NDArray[np.float32]:
            codes = {name: column.compute_codes(cells) for name, column in columns.items()}
            rows = np.zeros((len(cells), int(starts[-1])), np.float32)
            for group, start in zip(groups, starts, strict=False):
                at = codes[group[0]]
                for name in group[1:]:
                    at = at * columns[name].count + codes[name]
                rows[np.arange(len(cells)), start + at] = 1
            return rows

        return BoundFeatureMap(width=int(starts[-1]), map_piece=piece, max_entries=len(groups))

    def list_column_terms(self, schema: Schema) -> tuple[ColumnTerm, ...]:
        """Return steps of numbers, bars of categories and of pairs."""
        columns, groups, starts = self._build_layout(schema)
        found: dict[tuple[str, ...], ColumnTerm] = {}
        for group, begin in zip(groups, starts.tolist(), strict=False):
            column, cuts = schema.features[group[0]], columns[group[0]].cuts
            if len(group) > 1:
                cells = product(*(found[name,].cells for name in group))
                names = [", ".join(each) for each in cells]
                found[group] = build_bar_term(" × ".join(group), begin, names)
            elif isinstance(column, NumericColumn) and cuts is not None:
                found[group] = build_step_term(group[0], begin, column, cuts)
            elif isinstance(column, CategoricalColumn):
                found[group] = build_bar_term(group[0], begin, column.cells)
        return tuple(found.values())

    def _build_layout(
        self, schema: Schema
    ) -> tuple[dict[str, _ColumnCode], list[tuple[str, ...]], NDArray[np.int64]]:
        """Return columns by name, a group per block, and the blocks' starts with the width last."""
        columns, begin = {}, 0
        for name, column in schema.features.items():
            if isinstance(column, ArrayColumn):
                raise FeatureError(f"Expected no arrays with features 'bins', got {name!r}.")
            columns[name] = self._build_column_code(name, column, begin)
            begin += column.width
        numeric = {n for n, c in schema.features.items() if isinstance(c, NumericColumn)}
        if unknown := sorted(set(self.edges) - numeric):
            raise FeatureError(f"Expected edges of numeric columns, got {unknown[0]!r}.")
        named = {name for pair in self.products for name in pair}
        if unknown := sorted(named - set(columns)):
            raise FeatureError(f"Expected products of columns of the schema, got {unknown[0]!r}.")
        groups = [(name,) for name in columns] + list(self.products)
        sizes = [int(np.prod([columns[name].count for name in group])) for group in groups]
        return columns, groups, np.cumsum([0, *sizes])

    def _build_column_code(
        self, name: str, column: NumericColumn | CategoricalColumn, begin: int
    ) -> _ColumnCode:
        if isinstance(column, CategoricalColumn):
            return _ColumnCode(begin=begin, count=column.width)
        low, high = column.encode(np.array(column.range, np.float64))
        if name in self.edges:
            cuts = column.encode(np.array(self.edges[name], np.float64))
        else:
            cuts = np.linspace(low, high, self.bins + 1)[1:-1]
        return _ColumnCode(begin=begin, count=len(cuts) + 1, cuts=cuts)


@dataclass(frozen=True, kw_only=True)
class _ColumnCode:
    """One column as a number from 0 to `count` − 1: by its cuts, or already one-hot."""

    begin: int
    count: int
    cuts: NDArray[np.float64] | None = None

    def compute_codes(self, cells: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return `[n]` codes of `[n, p]` cells."""
        if self.cuts is not None:
            return np.asarray(np.searchsorted(self.cuts, cells[:, self.begin], side="right"))
        return np.asarray(cells[:, self.begin : self.begin + self.count].argmax(axis=1))


_MAX_INTERVALS = 1000


@dataclass(frozen=True, kw_only=True)
class LinearSplines(FeatureMap):
    """Linear splines of numbers, over ranges in equal `intervals`; other columns are unchanged."""

    name: ClassVar[str] = "hats"

    intervals: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.intervals <= _MAX_INTERVALS:
            expected = f"Expected 1 to {_MAX_INTERVALS} intervals for features 'hats'"
            raise FeatureError(f"{expected}, got {self.intervals}.")

    def bind(self, schema: Schema) -> BoundFeatureMap:
        """Return the map for any records."""
        columns = schema.features

        def piece(cells: NDArray[np.float64]) -> NDArray[np.float32]:
            blocks, at = [], 0
            for column in columns.values():
                block = cells[:, at : at + column.width]
                at += column.width
                if isinstance(column, NumericColumn):
                    low, high = column.encode(np.array(column.range, np.float64))
                    block = compute_spline_weights(block[:, 0], low, high, self.intervals)
                blocks.append(block.astype(np.float32))
            return np.concatenate(blocks, axis=1)

        numbers = sum(isinstance(each, NumericColumn) for each in columns.values())
        return BoundFeatureMap(
            width=schema.dimension + numbers * self.intervals,
            map_piece=piece,
            # The two knots around a number. Without a map it has one entry.
            max_entries=schema.max_entries + numbers,
        )

    def list_column_terms(self, schema: Schema) -> tuple[ColumnTerm, ...]:
        """Return lines through the knots of numbers, bars of categories."""
        return list_plain_terms(schema, self.intervals)


@dataclass(frozen=True, kw_only=True)
class RecordCodes(FeatureMap):
    """A single 1 per column of the schema, at its code (`client.data.record_discretization`)."""

    name: ClassVar[str] = "codes"

    def bind(self, schema: Schema) -> BoundFeatureMap:
        """Return the map for records without arrays, or with only one, and a label with classes."""
        array = find_array_column(schema)
        if array is not None:
            root = math.sqrt(array[1].width)
            width = array[1].width
            return BoundFeatureMap(width=width, map_piece=lambda c: (c / root).astype(np.float32))
        with translate_errors(SchemaError, FeatureError):
            columns = build_coded_columns(schema)
        return Bins(edges={each.name: each.edges for each in columns if each.edges}).bind(schema)
