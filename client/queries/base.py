"""`Query`: a statistic as an integer vector, with its bounds and the answer from its noisy sum.

A query defines its *parts*: public cells, and for each part the integers that a record adds to one
of its cells, within public ends. Everything else is derived here. The vector contains a part's
sums, cell by cell, integer by integer. The vectors of all records are added in one secure sum,
noise is added to it, and the answer is post-processing. Everything except the records is public.
Cells are the schema's categories, or bins that a person wrote down; they are never read from the
data.

A record's integers are in a public set (`Query.set`). It is a product of intervals in one of a
part's cells, for every part, or zero if `where` does not select the record. The set alone decides
how far one neighbour moves the sum (`parley.privacy.sensitivity.bounded_sets`). A record's number
may be between integers. A party's sum is rounded once. This costs no sensitivity for intervals, and
for other sets at most 1 in each coordinate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from parley.client.data.query_party_block import CategoryField, RangeField, RawPartyBlock, get_field
from parley.client.data.schema import Schema
from parley.client.queries.filters.expressions import Expression
from parley.client.queries.group_cells import Axis, CellGrid, Summand
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.independence_test import MAX_CELLS, run_independence_test
from parley.privacy.estimation.noise_intervals import CellNoise, widen_by_rounding
from parley.privacy.estimation.sampling_error import estimate_count_deviation
from parley.privacy.sensitivity.bounded_sets import Set

Integers = NDArray[np.int64]
Numbers = NDArray[np.float64]
Table = dict[str, Sequence[Any] | NDArray[Any]]
"""Columns of an answer: the keys of its cells, then `value`, `low` and `high`."""

_RESERVED_NAMES = frozenset(
    ("value", "low", "high", "quantile", "lead", "winner", "cluster", "table", "party")
) | frozenset(("column", "with", "p", "term", "regression"))

MAX_WEIGHT = 2**40
"""Maximum weight of a query, or of a part of it, so that sums of such integers stay below 2⁶²."""
MAX_FINE_SUM = 2**46
"""Largest sum of a party for which the errors of doubles and of its records' fine grid stay below
½.
"""


class QueryError(ValueError):
    """Error for a query that cannot be asked: what was expected, what came."""


@dataclass(frozen=True, kw_only=True)
class QueryFacts:
    """Public facts about the records of a sum. `records` is N, or None if it is private."""

    schema: Schema
    neighbouring: Neighbouring
    records: int | None


@dataclass(frozen=True, kw_only=True)
class CellSums:
    """Sums of the integers that records add, in every cell.

    Attributes:
        cells: the cells. Every record that counts is in exactly one.
        summands: the integers that it adds there: to the cell's first sum, to the second, ….
        record_set: the set of these integers; None: all between the ends of `summands`.
    """

    cells: CellGrid
    summands: tuple[Summand, ...]
    record_set: Set | None = None

    @property
    def set(self) -> Set:
        """The set of the integers that one record adds to all cells."""
        ends = (Set.interval(each.low, each.high) for each in self.summands)
        return (self.record_set or Set.product(*ends)).spread_over_cells(self.cells.count)


@dataclass(frozen=True, kw_only=True)
class Query(ABC):
    """One statistic: a row of `parley.client.queries.registry.QUERIES`.

    Attributes:
        law: the only law under which it is released; empty: any that adds noise to the sum.
        integral: whether its integers need no finer grid than 1, so that it may have weight 1.
        nonnegative: whether its integers are at least 0, which halves what a party may move.
        sampling: whether its intervals can be widened by sampling error.
        consistent: whether its answer is counts that other queries' counts improve.
        free_fields: those of its fields that only decide how sums are read. Another value costs no
            budget.
        derived_fields: those of its fields that a law or earlier answers decide. Users do not set
            them.
        curve: whether its rows are a curve from 1 on, along a number, for every group.
        inference: whether its intervals always cover sampling error in addition to noise, if they
            can.
        where: condition on the records that count; None: all count.
        by: categorical columns: one answer for each combination of their categories.
    """

    kind: ClassVar[str]
    law: ClassVar[str] = ""
    integral: ClassVar[bool] = True
    nonnegative: ClassVar[bool] = False
    shared: ClassVar[bool] = False
    simultaneous: ClassVar[bool] = True
    sampling: ClassVar[bool] = False
    consistent: ClassVar[bool] = False
    allows_groups: ClassVar[bool] = True
    free_fields: ClassVar[frozenset[str]] = frozenset()
    derived_fields: ClassVar[frozenset[str]] = frozenset()
    curve: ClassVar[bool] = False
    inference: ClassVar[bool] = False

    where: Expression | None = None
    by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.by)) < len(self.by):
            raise QueryError(f"Expected columns to group by once each, got {', '.join(self.by)}.")
        if self.by and not self.allows_groups:
            raise QueryError(f"Expected {self.kind} without groups, got some: use where.")

    @property
    def columns(self) -> frozenset[str]:
        """All columns that it reads. A query of more columns adds its own."""
        return frozenset(self.by) | (frozenset() if self.where is None else self.where.columns)

    @property
    def report_epsilon(self) -> float:
        """ε at which each record answers for itself before any sum; 0: none does."""
        return 0.0

    @property
    def step_shares(self) -> tuple[int, ...]:
        """Percentages of the budget per step, for a query asked in steps; empty: it has none."""
        return ()

    def build_next_step(self, steps: Sequence[AnsweredQuery], schema: Schema) -> Query:
        """Return the step after the answered ones. A query that is asked once returns itself."""
        return self

    def is_step_after(self, other: Query) -> bool:
        """Return whether it is the step after `other`, of one query."""
        return False

    @property
    def interim_text(self) -> str:
        """Text that names its step; empty: its answer is the final one."""
        return ""

    @property
    def selects(self) -> bool:
        """Whether a record may not count, so that the number of those that do is private."""
        return self.where is not None

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Check that the query can be asked of such a table.

        Raises:
            QueryError, SchemaError: it cannot.
        """
        build_group_cells(schema, self.by)
        if self.where is not None:
            self.where.check(schema)

    def tune(self, law: str, facts: QueryFacts) -> Self:
        """Return the same query with the parts of its vector balanced for a noise law."""
        return self

    @abstractmethod
    def list_cell_sums(self, schema: Schema, weight: int) -> Sequence[CellSums]:
        """Return what records add at this weight. The vector is one part's sums after another's."""

    def count_cells(self, schema: Schema) -> int:
        """Return d, the length of its vector."""
        return sum(len(part.summands) * part.cells.count for part in self.list_cell_sums(schema, 1))

    def build_record_set(self, schema: Schema, weight: int) -> Set:
        """Return the set of the vectors that one record adds.

        If all of these are the same, the record may also be missing.
        """
        every = self.build_counted_set(schema, weight)
        return every.add_zero() if self.selects or not every.diameter.l1 else every

    def build_counted_set(self, schema: Schema, weight: int) -> Set:
        """Return the set of the vectors that a record adds if it counts."""
        return Set.product(*(part.set for part in self.list_cell_sums(schema, weight)))

    def compute_party_vectors(self, block: RawPartyBlock, weight: int) -> Iterator[Integers]:
        """Yield `[d]` for each party in turn: the sum over its records that count."""
        parts = [
            (
                part.cells.count,
                part.cells.compute_codes(block),
                [each.build_cell_adder(block) for each in part.summands],
            )
            for part in self.list_cell_sums(block.schema, weight)
        ]
        mask = None if self.where is None else self.where.mask(block)
        for party in range(block.parties):
            rows = block.get_rows(party)
            places = np.arange(rows.start, rows.stop)
            if mask is not None:
                places = places[mask[rows]]
            yield np.concatenate(
                [add(places, codes[places], count) for count, codes, sums in parts for add in sums]
            )

    def bound_rounding_error(self, parties: int) -> float:
        """Return the most that rounding moves a sum over `parties` parties, in its integers.

        A party rounds its sum once, by ½ at most. The other ½ covers its arithmetic in doubles, as
        long as its sum is below `MAX_FINE_SUM`.
        """
        return 0.0 if self.integral else float(parties)

    def get_steps_per_unit(self, weight: int) -> int:
        """Return how many of its integers make 1."""
        return weight

    def get_answer_unit(self, schema: Schema) -> float:
        """Return how much that 1 is in an answer."""
        return 1.0

    def build_key_columns(self, schema: Schema) -> Table:
        """Return the columns that identify an answer's rows."""
        return dict(self.list_cell_sums(schema, 1)[0].cells.build_key_columns())

    def answer(self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts) -> Table:
        """Return the answer of the noisy sum `[d]`: columns of the same length; here its cells."""
        steps, unit = self.get_steps_per_unit(weight), self.get_answer_unit(facts.schema)
        values: Numbers = noisy / steps * unit
        half = np.full(len(values), noise.compute_half_width() / steps * unit)
        return self.build_table(values, half, noise, facts)

    def build_table(
        self, values: Numbers, half: Numbers, noise: CellNoise, facts: QueryFacts
    ) -> Table:
        """Return the table of its cells `[d]`, with the half-widths `[d]` of their noise."""
        if self.supports_sampling(facts):
            half = noise.add_sampling_error(half, self.compute_sampling_errors(values, facts))
        low, high = values - half, values + half
        if not self.integral:
            low, high = widen_by_rounding(low, high, np.maximum(np.abs(low), np.abs(high)))
        return {**self.build_key_columns(facts.schema), "value": values, "low": low, "high": high}

    def derive_tables(
        self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts
    ) -> dict[str, Table]:
        """Return further tables that follow from the same noisy sum, by name.

        For counts by two columns it is the test of their independence.
        """
        first, *others = self.list_cell_sums(facts.schema, weight)
        shape = [axis.size for axis in first.cells.axes]
        if others or not self.nonnegative or len(shape) != 2 or 1 in shape:
            return {}
        if noisy.size > MAX_CELLS or noisy.size != first.cells.count:
            return {}  # a tree has more nodes than leaves
        found = run_independence_test(noisy.reshape(shape) / weight, noise, unit=weight)
        columns: Table = {"chi-squared, noise in its variance": [found.statistic], "p": [found.p]}
        return {"test of independence": columns}

    def supports_sampling(self, facts: QueryFacts) -> bool:
        """Return whether sampling error can widen the intervals.

        `CellNoise.add_sampling_error` then adds it.
        """
        return self.sampling

    def compute_sampling_errors(self, values: Numbers, facts: QueryFacts) -> Numbers:
        """Return standard deviations of the values over other samples of records, of counts."""
        return estimate_count_deviation(values, facts.records)

    def compute_expected_error(self, weight: int, noise: CellNoise, facts: QueryFacts) -> float:
        """Return about how far noise will move a value of the answer, before any query."""
        steps, unit = self.get_steps_per_unit(weight), self.get_answer_unit(facts.schema)
        return noise.deviation / steps * unit

    def get_error_scale(self, facts: QueryFacts) -> float:
        """Return what an error of 1 is relative to a group's records, for equal groups."""
        return build_group_cells(facts.schema, self.by).count / (facts.records or 1)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for transport; `registry.decode_query` is the inverse."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        plain = {name: list(v) if isinstance(v, tuple) else v for name, v in own.items()}
        where = None if self.where is None else self.where.to_json()
        return {"query": self.kind, **plain, "where": where}


@dataclass(frozen=True, kw_only=True)
class AnsweredQuery:
    """A query with its answer: the noisy sum, at this weight and with this noise."""

    query: Any
    noisy: Integers
    weight: int
    noise: CellNoise


class NonAdditiveQuery(ABC):
    """The part of a query whose release is not a sum with noise."""

    @abstractmethod
    def answer_from_output(self, shown: Integers, epsilon: float, facts: QueryFacts) -> Table:
        """Return the answer from all that leaves the server."""


@dataclass(frozen=True, kw_only=True)
class ColumnQuery(Query):
    """A query about one column."""

    column: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.column in self.by:
            raise QueryError(f"Expected a column that is not grouped by, got {self.column!r}.")

    @property
    def columns(self) -> frozenset[str]:
        """The columns of every query, and its own."""
        return super().columns | {self.column}


@dataclass(frozen=True, kw_only=True)
class ColumnsQuery(Query):
    """A query about several columns together."""

    allows_groups: ClassVar[bool] = False

    of: tuple[str, ...]

    @property
    def columns(self) -> frozenset[str]:
        """The columns of every query, and its own."""
        return super().columns | set(self.of)


def get_answer_key(column: str) -> str:
    """Return a column's name in an answer, which has reserved names.

    >>> get_answer_key("ward"), get_answer_key("value")
    ('ward', 'value (column)')
    """
    return f"{column} (column)" if column in _RESERVED_NAMES else column


def to_four_digits(values: Sequence[float] | Numbers) -> list[float]:
    """Round numbers that are shown next to an answer's values."""
    return [float(f"{value:.4g}") for value in values]


def build_group_cells(schema: Schema, by: Sequence[str]) -> CellGrid:
    """Return the combinations of columns of categories."""
    return CellGrid(axes=tuple(_build_category_axis(schema, name) for name in by))


def build_cell_counts(cells: CellGrid, weight: int) -> CellSums:
    """Return the number of records in every cell."""
    return CellSums(cells=cells, summands=(Summand.from_constant(weight),))


def _build_category_axis(schema: Schema, name: str) -> Axis:
    texts = get_categories(schema, name)
    return Axis(
        size=len(texts),
        codes=lambda block: block.columns[name],
        keys=lambda: {get_answer_key(name): texts},
        name=name,
    )


def get_categories(schema: Schema, name: str) -> tuple[str, ...]:
    """Return the cells of a column of categories.

    Raises:
        QueryError: the column is of numbers.
    """
    field = get_field(schema, name)
    if not isinstance(field, CategoryField):
        got = f"{name!r}, a number in [{field.low:g}, {field.high:g}]"
        why = f"histogram({name!r}, bins=…) has cells of numbers"
        raise QueryError(f"Expected a column of categories, got {got}: {why}.")
    return field.texts


def get_range(schema: Schema, name: str) -> RangeField:
    """Return the range of a column of numbers.

    Raises:
        QueryError: the column is of categories.
    """
    field = get_field(schema, name)
    if not isinstance(field, RangeField):
        expected = "Expected a column of numbers, with a range"
        raise QueryError(f"{expected}, got {name!r}, of categories.")
    return field
