"""What a query is: integers that each record adds, what bounds them, and what their noisy sum says.

A query names its *parts*: public cells, and in each the integers that a record adds to one of them,
within public ends. All else is derived here. The vector holds a part's sums, cell by cell, integer
by integer; the vectors of all records meet in one secure sum, noise is added to it, and the answer
is post-processing. Everything but the records is public: cells are the schema's categories, or bins
that somebody wrote down, never read off the data.

A record's integers lie in a public set (`Query.set`): a product of intervals in one of a part's
cells, of every part, or nothing at all where `where` selects. How far one neighbour moves the sum
follows from that alone (`parley.privacy.sensitivity.bounded_sets`). A record's number may lie
between whole ones. A party's sum is rounded once, which costs no sensitivity of intervals, and of
other sets at most 1 in each coordinate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from parley.client.data.raw_party_block import CategoryField, RangeField, RawPartyBlock, get_field
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
"""Of a query, or of a part of it: sums of such integers stay below 2⁶²."""
MAX_FINE_SUM = 2**46
"""Largest sum of a party for which doubles, and its records' fine grid, are off by less than ½."""


class QueryError(ValueError):
    """A query that cannot be asked: what was expected, what came."""


@dataclass(frozen=True, kw_only=True)
class QueryFacts:
    """What is public about the records that a sum is of; `records`: N, None where it is private."""

    schema: Schema
    neighbouring: Neighbouring
    records: int | None


@dataclass(frozen=True, kw_only=True)
class CellSums:
    """Sums of what records add, in every cell.

    Attributes:
        cells: in one of which every record that counts is.
        summands: what it adds there: to the first sum of that cell, to the second, ….
        record_set: the set of these integers; None: any between the ends of `summands`.
    """

    cells: CellGrid
    summands: tuple[Summand, ...]
    record_set: Set | None = None

    @property
    def set(self) -> Set:
        """Of what one record adds to all cells."""
        ends = (Set.interval(each.low, each.high) for each in self.summands)
        return (self.record_set or Set.product(*ends)).spread_over_cells(self.cells.count)


@dataclass(frozen=True, kw_only=True)
class Query(ABC):
    """One statistic; a row of `parley.client.queries.registry.QUERIES`.

    Attributes:
        law: the only one that it is released under; empty: any that adds noise to the sum.
        integral: its integers need no finer grid than 1: it may have weight 1.
        nonnegative: its integers are at least 0, which halves what a party may move.
        sampling: they can be widened by sampling error.
        consistent: its answer is counts, which those of other queries bring nearer.
        free_fields: of its fields those that say how sums are read: another value costs nothing.
        derived_fields: of its fields those that a law decides, or the answers before: nobody names
            them.
        curve: its rows are a curve from 1 on, along a number, for every group.
        inference: its intervals always cover sampling error beside the noise, where they can.
        where: which records count; None: all of them.
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
        """Every column that it reads; a query of more columns adds its own."""
        return frozenset(self.by) | (frozenset() if self.where is None else self.where.columns)

    @property
    def report_epsilon(self) -> float:
        """ε at which each record answers for itself before anything is summed; 0: none does."""
        return 0.0

    @property
    def step_shares(self) -> tuple[int, ...]:
        """Percent of the budget, of a query that is asked in steps, of each; empty: it is one."""
        return ()

    def build_next_step(self, steps: Sequence[AnsweredQuery], schema: Schema) -> Query:
        """The step that follows those that were answered; what is asked once is itself."""
        del steps, schema
        return self

    def is_step_after(self, other: Query) -> bool:
        """Whether it is the step after `other`, of one query."""
        del other
        return False

    @property
    def interim_text(self) -> str:
        """Which of its steps it is, in words; empty: its answer is what was asked for."""
        return ""

    @property
    def selects(self) -> bool:
        """Whether a record may count for nothing, so that how many do is not public."""
        return self.where is not None

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Refuses a query that cannot be asked of such a table, by a QueryError or SchemaError."""
        del neighbouring
        build_group_cells(schema, self.by)
        if self.where is not None:
            self.where.check(schema)

    def tune(self, law: str, facts: QueryFacts) -> Self:
        """The same query with the parts of its vector balanced for a noise law."""
        del law, facts
        return self

    @abstractmethod
    def list_cell_sums(self, schema: Schema, weight: int) -> Sequence[CellSums]:
        """What records add, at this weight: the vector is one part's sums after the other's."""

    def count_cells(self, schema: Schema) -> int:
        """d: length of its vector."""
        return sum(len(part.summands) * part.cells.count for part in self.list_cell_sums(schema, 1))

    def build_record_set(self, schema: Schema, weight: int) -> Set:
        """Of the vectors that one record adds; where all are the same, it may be missing too."""
        every = self.build_counted_set(schema, weight)
        return every.add_zero() if self.selects or not every.diameter.l1 else every

    def build_counted_set(self, schema: Schema, weight: int) -> Set:
        """Of the vectors that a record adds which counts."""
        return Set.product(*(part.set for part in self.list_cell_sums(schema, weight)))

    def compute_party_vectors(self, block: RawPartyBlock, weight: int) -> Iterator[Integers]:
        """`[d]` for every party in turn: the sum over its records that count."""
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
        """Return the most that rounding moves a sum over so many parties by, in its integers.

        A party rounds its sum once, by ½ at most. The other ½ covers its arithmetic in doubles, as
        long as its sum is below `MAX_FINE_SUM`.
        """
        return 0.0 if self.integral else float(parties)

    def get_steps_per_unit(self, weight: int) -> int:
        """What 1 is in its integers."""
        return weight

    def get_answer_unit(self, schema: Schema) -> float:
        """What that 1 is in an answer."""
        del schema
        return 1.0

    def build_key_columns(self, schema: Schema) -> Table:
        """What an answer's rows are of."""
        return dict(self.list_cell_sums(schema, 1)[0].cells.build_key_columns())

    def answer(self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts) -> Table:
        """What the noisy sum `[d]` says: columns of the same length; here its cells."""
        steps, unit = self.get_steps_per_unit(weight), self.get_answer_unit(facts.schema)
        values: Numbers = noisy / steps * unit
        half = np.full(len(values), noise.compute_half_width() / steps * unit)
        return self.build_table(values, half, noise, facts)

    def build_table(
        self, values: Numbers, half: Numbers, noise: CellNoise, facts: QueryFacts
    ) -> Table:
        """What its cells `[d]` say, with the half-widths `[d]` of their noise."""
        if self.supports_sampling(facts):
            half = noise.add_sampling_error(half, self.compute_sampling_errors(values, facts))
        low, high = values - half, values + half
        if not self.integral:
            low, high = widen_by_rounding(low, high, np.maximum(np.abs(low), np.abs(high)))
        return {**self.build_key_columns(facts.schema), "value": values, "low": low, "high": high}

    def derive_tables(
        self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts
    ) -> dict[str, Table]:
        """Further tables that the same noisy sum says, by their names.

        Of counts by two columns, whether those are independent.
        """
        first, *others = self.list_cell_sums(facts.schema, weight)
        shape = [axis.size for axis in first.cells.axes]
        if (
            others
            or not self.nonnegative
            or len(shape) != 2
            or 1 in shape
            or noisy.size > MAX_CELLS
        ):
            return {}
        if noisy.size != first.cells.count:
            return {}  # a tree has more than its leaves
        found = run_independence_test(noisy.reshape(shape) / weight, noise, unit=weight)
        return {
            "test of independence": {
                "chi-squared, noise in its variance": [found.statistic],
                "p": [found.p],
            }
        }

    def supports_sampling(self, facts: QueryFacts) -> bool:
        """Whether its intervals can be widened by sampling error: `CellNoise.add_sampling_error` is
        asked.
        """
        del facts
        return self.sampling

    def compute_sampling_errors(self, values: Numbers, facts: QueryFacts) -> Numbers:
        """Standard deviations of the values over other samples of records; of counts."""
        return estimate_count_deviation(values, facts.records)

    def compute_expected_error(self, weight: int, noise: CellNoise, facts: QueryFacts) -> float:
        """About how far a value of the answer will be off by noise, before anything is asked."""
        return (
            noise.deviation / self.get_steps_per_unit(weight) * self.get_answer_unit(facts.schema)
        )

    def get_error_scale(self, facts: QueryFacts) -> float:
        """What such an error of 1 is of what is read: of a group's records, if all are alike."""
        return build_group_cells(facts.schema, self.by).count / (facts.records or 1)

    def to_json(self) -> dict[str, Any]:
        """Plain values that travel; `parley.client.queries.decode_query` reads them back."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        plain = {name: list(v) if isinstance(v, tuple) else v for name, v in own.items()}
        where = None if self.where is None else self.where.to_json()
        return {"query": self.kind, **plain, "where": where}


@dataclass(frozen=True, kw_only=True)
class AnsweredQuery:
    """A query as it was answered: the noisy sum, at this weight and with this noise."""

    query: Any
    noisy: Integers
    weight: int
    noise: CellNoise


class NonAdditiveQuery(ABC):
    """Of a query: what is shown where something else is done in the place of noise on its sum."""

    @abstractmethod
    def answer_from_output(self, shown: Integers, epsilon: float, facts: QueryFacts) -> Table:
        """The answer, from all that leaves the server."""


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
        """Those of every query, and the column."""
        return super().columns | {self.column}


@dataclass(frozen=True, kw_only=True)
class ColumnsQuery(Query):
    """A query about several columns together."""

    allows_groups: ClassVar[bool] = False

    of: tuple[str, ...]

    @property
    def columns(self) -> frozenset[str]:
        """Those of every query, and its own."""
        return super().columns | set(self.of)


def get_answer_key(column: str) -> str:
    """What a column is called in an answer, which has its own parts.

    >>> get_answer_key("ward"), get_answer_key("value")
    ('ward', 'value (column)')
    """
    return f"{column} (column)" if column in _RESERVED_NAMES else column


def to_four_digits(values: Sequence[float] | Numbers) -> list[float]:
    """As figures beside an answer's own are shown."""
    return [float(f"{value:.4g}") for value in values]


def build_group_cells(schema: Schema, by: Sequence[str]) -> CellGrid:
    """The combinations of columns of categories."""
    return CellGrid(axes=tuple(_build_category_axis(schema, name) for name in by))


def build_cell_counts(cells: CellGrid, weight: int) -> CellSums:
    """How many records are in every cell."""
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
    """The cells of a column of categories."""
    field = get_field(schema, name)
    if not isinstance(field, CategoryField):
        raise QueryError(
            f"Expected a column of categories, got {name!r}, a number in "
            f"[{field.low:g}, {field.high:g}]: histogram({name!r}, bins=…) has cells of numbers."
        )
    return field.texts


def get_range(schema: Schema, name: str) -> RangeField:
    """The range of a column of numbers."""
    field = get_field(schema, name)
    if not isinstance(field, RangeField):
        raise QueryError(
            f"Expected a column of numbers, with a range, got {name!r}, of categories."
        )
    return field
