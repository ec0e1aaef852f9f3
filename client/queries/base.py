"""What a query is: integers that each record adds, what bounds them, and what their noisy sum says.

A record adds an integer vector: `weight` times what the query's module says, rounded to whole
numbers. The vectors of all records meet in one secure sum, noise is added to it, and `answer` is
post-processing. Everything but the records is public: cells are the schema's categories, or bins
that somebody wrote down, never read off the data.

`norms` bounds, over any two neighbouring data sets, how far the *integer* sum moves: rounding is
part of the map from a record to its integers, so that it costs no sensitivity.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from parley.client.data.schema import Schema
from parley.client.data.table_block import Range, TableBlock, Texts, field_of
from parley.privacy.accounting.guarantee import Neighbouring

Integers = NDArray[np.int64]
State = Mapping[str, NDArray[np.float64]]
Table = dict[str, Sequence[Any] | NDArray[Any]]
"""Columns of an answer: the keys of its cells, then `value`, `low` and `high`."""

_ANSWERS_OWN = frozenset(
    ("value", "low", "high", "quantile", "lead", "winner", "cluster", "table", "party")
)

LARGEST_WEIGHT = 2**40
"""Of a query, or of a part of it: sums of such integers stay below 2⁶²."""


class QueryError(ValueError):
    """A query that cannot be asked: what was expected, what came."""


class Filter(Protocol):
    """Which records count: `parley.client.where` makes them."""

    @property
    def columns(self) -> frozenset[str]:
        """Columns that it reads."""

    def check(self, schema: Schema) -> None:
        """Raises QueryError or SchemaError where it is none of this schema."""

    def mask(self, block: TableBlock) -> NDArray[np.bool_]:
        """`[N]` which records of the block count."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; `parley.client.where` reads them back."""


@dataclass(frozen=True, kw_only=True)
class Norms:
    """How far one neighbour moves the integer sum, and how much one record may add.

    Attributes:
        l1: Δ₁.
        l2_squared: Δ₂².
        largest: the largest |entry| of one record's vector.
    """

    l1: int
    l2_squared: int
    largest: int

    def __post_init__(self) -> None:
        if min(self.l1, self.l2_squared, self.largest) < 1:
            raise QueryError(f"Expected a query that records can move, got norms {self}.")


class Noise(Protocol):
    """The noise on the sum, in the units of a query's integers."""

    @property
    def deviation(self) -> float:
        """Standard deviation of a cell's."""

    def half_width(self, level: float = 0.95, *, cells: int = 1) -> float:
        """h with |noise| ≤ h in all of `cells` cells at once, with probability `level`."""

    def alpha(self, level: float = 0.95) -> float:
        """What each row of an answer may miss by, so that the rows hold with `level`."""

    def widened(
        self, half: NDArray[np.float64], deviation: NDArray[np.float64], level: float = 0.95
    ) -> NDArray[np.float64]:
        """Half-widths, with sampling errors of these standard deviations where that is asked."""

    def ratio_tail(self, numerator: float, denominator: float) -> Callable[[float, float], float]:
        """Of a ratio whose parts are this noise times so much, for `intervals.ratio_interval`."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is public about the records that a sum is of.

    Attributes:
        schema: of all parties.
        neighbouring: the relation that is charged.
        records: N of the survivors; None where sizes are private.
    """

    schema: Schema
    neighbouring: Neighbouring
    records: int | None


@dataclass(frozen=True, kw_only=True)
class Query(ABC):
    """One statistic; a row of `parley.client.queries.QUERIES`.

    Attributes:
        kind: its name.
        law: the only one that it is released under; empty: any that adds noise to the sum.
        rounds: how many secure sums it takes.
        whole: its integers need no finer grid than 1: it may have weight 1.
        counts: its integers are at least 0, which halves what a party may move.
        shared: its rows look at the same noise.
        simultaneous: its rows' intervals can be made to hold all at once.
        where: which records count; None: all of them.
        by: categorical columns: one answer for each combination of their categories.
    """

    kind: ClassVar[str]
    law: ClassVar[str] = ""
    rounds: ClassVar[int] = 1
    whole: ClassVar[bool] = True
    counts: ClassVar[bool] = False
    shared: ClassVar[bool] = False
    simultaneous: ClassVar[bool] = True

    where: Filter | None = None
    by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.by)) < len(self.by):
            raise QueryError(f"Expected columns to group by once each, got {', '.join(self.by)}.")

    @property
    def columns(self) -> frozenset[str]:
        """Every column that it reads; a query of more columns adds its own."""
        return frozenset(self.by) | (frozenset() if self.where is None else self.where.columns)

    @property
    def reports(self) -> float:
        """ε at which each record answers for itself before anything is summed; 0: none does."""
        return 0.0

    @property
    def selects(self) -> bool:
        """Whether a record may count for nothing, so that how many do is not public."""
        return self.where is not None

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Refuses a query that cannot be asked of such a table.

        Raises:
            QueryError, SchemaError: what was expected, what came.
        """
        del neighbouring
        groups_of(schema, self.by)
        if self.where is not None:
            self.where.check(schema)

    def tuned(self, law: str, neighbouring: Neighbouring) -> Self:
        """The same query with the parts of its vector balanced for a noise law."""
        del law, neighbouring
        return self

    @abstractmethod
    def cells(self, schema: Schema) -> int:
        """d: length of its vector."""

    @abstractmethod
    def norms(self, schema: Schema, neighbouring: Neighbouring, weight: int) -> Norms:
        """What bounds the integers that records add at this weight."""

    @abstractmethod
    def vectors(self, block: TableBlock, weight: int, state: State) -> Iterator[Integers]:
        """`[d]` for every party in turn: the sum over its records."""

    @abstractmethod
    def answer(self, noisy: Integers, weight: int, noise: Noise, facts: Facts) -> Table:
        """What the noisy sum `[d]` says: columns of the same length."""

    def samples(self, facts: Facts) -> bool:
        """Whether its intervals can be widened by sampling error: `Noise.widened` is asked."""
        del facts
        return False

    def expected_error(self, weight: int, noise: Noise, facts: Facts) -> float:
        """About how far a value of the answer will be off by noise, before anything is asked."""
        del facts
        return noise.deviation / weight

    def to_json(self) -> dict[str, Any]:
        """Plain values that travel; `parley.client.queries.query_from` reads them back."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        plain = {name: list(v) if isinstance(v, tuple) else v for name, v in own.items()}
        where = None if self.where is None else self.where.to_json()
        return {"query": self.kind, **plain, "where": where}


class Shown(ABC):
    """Of a query: what is shown where something else is done in the place of noise on its sum."""

    @abstractmethod
    def answer_shown(self, shown: Integers, epsilon: float, facts: Facts) -> Table:
        """The answer, from all that leaves the server."""


@dataclass(frozen=True, kw_only=True)
class ColumnQuery(Query):
    """A query about one column.

    Attributes:
        column: its name.
    """

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
class Groups:
    """The cells that records are divided into: combinations of categories, the last column first
    to change.

    Attributes:
        names: of the columns.
        texts: of each, its cells.
    """

    names: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]

    @property
    def count(self) -> int:
        """G; 1 without columns."""
        return math.prod(len(each) for each in self.texts)

    def keys(self) -> Table:
        """The columns of keys, `[G]` each."""
        rows = list(product(*self.texts))
        return {key_of(name): [row[k] for row in rows] for k, name in enumerate(self.names)}

    def codes(self, block: TableBlock) -> NDArray[np.intp]:
        """`[N]` the group of each record."""
        codes = np.zeros(block.records, dtype=np.intp)
        for name, texts in zip(self.names, self.texts, strict=True):
            codes *= len(texts)
            codes += block.columns[name]
        return codes


def key_of(column: str) -> str:
    """What a column is called in an answer, which has its own parts.

    >>> key_of("ward"), key_of("value")
    ('ward', 'value (column)')
    """
    return f"{column} (column)" if column in _ANSWERS_OWN else column


def selected(
    query: Query, block: TableBlock, groups: Groups
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """For every party in turn: `[k]` places of the records that count, and the group of each."""
    codes = groups.codes(block)
    mask = None if query.where is None else query.where.mask(block)
    for party in range(block.parties):
        rows = block.rows(party)
        places = np.arange(rows.start, rows.stop)
        if mask is not None:
            places = places[mask[rows]]
        yield places, codes[places]


def groups_of(schema: Schema, by: Sequence[str]) -> Groups:
    """The groups of columns of categories.

    Raises:
        QueryError, SchemaError: a column of numbers, or none that can be asked about.
    """
    return Groups(names=tuple(by), texts=tuple(texts_of(schema, name) for name in by))


def texts_of(schema: Schema, name: str) -> tuple[str, ...]:
    """The cells of a column of categories.

    Raises:
        QueryError, SchemaError: another kind of column.
    """
    field = field_of(schema, name)
    if not isinstance(field, Texts):
        raise QueryError(
            f"Expected a column of categories, got {name!r}, a number in "
            f"[{field.low:g}, {field.high:g}]: histogram({name!r}, bins=…) has cells of numbers."
        )
    return field.texts


def numeric(schema: Schema, name: str) -> Range:
    """The range of a column of numbers.

    Raises:
        QueryError, SchemaError: another kind of column.
    """
    field = field_of(schema, name)
    if not isinstance(field, Range):
        raise QueryError(
            f"Expected a column of numbers, with a range, got {name!r}, of categories."
        )
    return field
