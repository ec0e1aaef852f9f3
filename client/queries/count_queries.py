"""Counts of records: `count`, `histogram` and `marginals`.

`count` is the number of records that are selected, or of every group. A record adds 1 to its
group's cell. Without `where` and groups the number of records is public under replace-one, so no
query is needed.

`histogram` is the number of records with each value, by categories or by intervals of a number.

`marginals` is tables of several columns at once, each of `ways` of them together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.data.query_party_block import CategoryField, RangeField, RawPartyBlock, get_field
from parley.client.data.schema import Schema
from parley.client.queries.base import (
    CellSums,
    ColumnQuery,
    ColumnsQuery,
    Numbers,
    Query,
    QueryError,
    QueryFacts,
    Table,
    build_cell_counts,
    build_group_cells,
    get_answer_key,
    get_range,
)
from parley.client.queries.group_cells import Axis, CellGrid
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.marginals import project_onto_simplex
from parley.privacy.estimation.noise_intervals import CellNoise


@dataclass(frozen=True, kw_only=True)
class Count(Query):
    """The number of records."""

    kind: ClassVar[str] = "count"
    nonnegative: ClassVar[bool] = True
    sampling: ClassVar[bool] = True
    consistent: ClassVar[bool] = True

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Run the checks of `Query.check`."""
        super().check(schema, neighbouring)
        if self.where is None and not self.by and neighbouring is Neighbouring.REPLACE_ONE:
            raise QueryError(
                "Expected where or group_by with count, got neither: under replace-one the number "
                "of records is public and free (Answer.records, Session.records)."
            )

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Return G counts."""
        return (build_cell_counts(build_group_cells(schema, self.by), weight),)


MAX_CELLS = 10**7
"""Maximum number of cells of a query. A vector of that length takes 80 MB."""


@dataclass(frozen=True, kw_only=True)
class Histogram(ColumnQuery):
    """Numbers of records by the value of one column.

    Attributes:
        bins: for numbers: number of intervals of one width; 0 if `edges` are given.
        edges: for numbers: increasing, within the column's range; at most 64. Values beyond them
            are counted in the first and the last interval, as the answer states.
    """

    kind: ClassVar[str] = "histogram"
    nonnegative: ClassVar[bool] = True
    sampling: ClassVar[bool] = True
    consistent: ClassVar[bool] = True

    bins: int = 0
    edges: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.bins <= MAX_CELLS:
            raise QueryError(f"Expected 1 to {MAX_CELLS} bins, got {self.bins}.")
        if self.edges and self.bins:
            raise QueryError("Expected either bins or edges, got both.")
        rising = all(a < b for a, b in pairwise(self.edges))
        if self.edges and not (len(self.edges) > 1 and rising):
            raise QueryError(f"Expected two or more increasing edges, got {list(self.edges)}.")

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Run the checks of `Query.check`."""
        super().check(schema, neighbouring)
        if isinstance(get_field(schema, self.column), CategoryField):
            if self.bins or self.edges:
                raise QueryError(f"Expected no bins with {self.column!r}, a column of categories.")
            return
        known = get_range(schema, self.column)
        if not self.bins and not self.edges:
            expected = f"bins (how many) or edges with {self.column!r}, a column of numbers"
            why = "intervals are never read from the records"
            raise QueryError(f"Expected {expected}, got neither: {why}.")
        if self.edges and not known.low <= self.edges[0] < self.edges[-1] <= known.high:
            expected = f"edges within [{known.low:g}, {known.high:g}], the range of {self.column!r}"
            raise QueryError(f"Expected {expected}, got {self.edges[0]:g} to {self.edges[-1]:g}.")

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Return a count for every group and value."""
        field = get_field(schema, self.column)
        if isinstance(field, CategoryField):
            cells = build_group_cells(schema, (*self.by, self.column))
        else:
            groups = build_group_cells(schema, self.by).axes
            cells = CellGrid(axes=(*groups, self._build_interval_axis(field)))
        return (build_cell_counts(cells, weight),)

    def _build_interval_axis(self, value_range: RangeField) -> Axis:
        size = self.bins or len(self.edges) - 1

        def codes(block: RawPartyBlock) -> NDArray[np.intp]:
            values = block.columns[self.column]
            if self.edges:
                found = np.searchsorted(self.edges, values, side="right") - 1
            else:
                per_unit = size / (value_range.high - value_range.low)
                found = np.floor((values - value_range.low) * per_unit)
            return np.fmin(np.fmax(found, 0), size - 1).astype(np.intp)

        def keys() -> dict[str, NDArray[np.float64]]:
            inner = (self.edges or np.linspace(value_range.low, value_range.high, size + 1))[1:-1]
            # Values beyond them are counted.
            edges = np.array([value_range.low, *inner, value_range.high])
            return {f"{self.column} from": edges[:-1], f"{self.column} to": edges[1:]}

        return Axis(size=size, codes=codes, keys=keys, name=(self.column, size, self.edges))


MAX_TABLES = 4096
"""Maximum number of tables of one query: 90 columns in pairs."""


@dataclass(frozen=True, kw_only=True)
class MarginalsQuery(ColumnsQuery):
    """Numbers of records by the categories of every `ways` of several columns."""

    kind: ClassVar[str] = "marginals"
    nonnegative: ClassVar[bool] = True
    shared: ClassVar[bool] = True
    sampling: ClassVar[bool] = True
    consistent: ClassVar[bool] = True

    ways: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.of)) < len(self.of):
            raise QueryError(f"Expected columns once each, got {', '.join(self.of)}.")
        if not 1 <= self.ways <= len(self.of):
            limit = f"{len(self.of)}, the number of columns"
            raise QueryError(f"Expected ways from 1 to {limit}, got {self.ways}.")
        if (tables := math.comb(len(self.of), self.ways)) > MAX_TABLES:
            raise QueryError(f"Expected at most {MAX_TABLES} tables, got {tables:.3g}.")

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Run the checks of `Query.check`."""
        super().check(schema, neighbouring)
        build_group_cells(schema, self.of)

    def _build_tables(self, schema: Schema) -> dict[tuple[str, ...], CellGrid]:
        axes = dict(zip(self.of, build_group_cells(schema, self.of).axes, strict=True))
        every = combinations(self.of, self.ways)
        return {names: CellGrid(axes=tuple(axes[name] for name in names)) for names in every}

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Return the counts in every table."""
        tables = self._build_tables(schema).values()
        return tuple(build_cell_counts(cells, weight) for cells in tables)

    def build_table(
        self, values: Numbers, half: Numbers, noise: CellNoise, facts: QueryFacts
    ) -> Table:
        """Return the tables one below the other. A column that a table lacks is empty there.

        No count is negative: each table is replaced by the nearest one without negative counts. No
        interval begins below 0.
        """
        tables = self._build_tables(facts.schema)
        keys: dict[str, list[Any]] = {name: [] for name in ("table", *map(get_answer_key, self.of))}
        for names, cells in tables.items():
            own = cells.build_key_columns()
            keys["table"] += [", ".join(names)] * cells.count
            for name in map(get_answer_key, self.of):
                keys[name] += own[name].tolist() if name in own else [None] * cells.count
        ends = np.cumsum([cells.count for cells in tables.values()])
        parts = np.split(values, ends[:-1])
        projected = [project_onto_simplex(part, total=max(part.sum(), 0.0)) for part in parts]
        counts = np.concatenate(projected)
        half = noise.add_sampling_error(half, self.compute_sampling_errors(values, facts))
        return {
            **keys,
            "value": counts,
            "low": np.minimum(np.maximum(values - half, 0), counts),
            "high": np.maximum(values + half, counts),
        }
