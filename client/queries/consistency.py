"""Consistency of a batch's answers: counts of the same records agree, at no cost.

Each answer is adjusted by least squares to the other answers and to a public number of records
(`parley.privacy.estimation.marginals`). This is post-processing of one release
(docs/query-accuracy.md).

The budget is divided so that Σ s_q·ln(rms error of q) is minimal, with shares s_q. A query's part
is what its noisy cells contribute to all answers: the derivative of that sum by ln p. Substituting
this for p repeatedly converges (Silvey, Titterington & Torsney 1978). It depends only on public
facts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from parley.client.queries.base import Integers, Numbers, QueryFacts
from parley.client.queries.query_batch import QueryBatch
from parley.privacy.estimation.marginals import TableOverlaps
from parley.privacy.estimation.noise_intervals import CellNoise

MIN_DEVIATION = 2.0
"""Minimum deviation of the noise, in integer steps. Below it, a sum of cells improves hardly any
answer.
"""
_MAX_ITERATIONS = 200
_TOLERANCE = 1e-5
_MIN_SHARE = 1e-6
"""Minimum part of a query whose purpose the other queries' cells already serve."""


@dataclass(frozen=True, kw_only=True)
class ConsistentCounts:
    """Counts `[cells]` of one answer, and the ratio of each deviation to a separate cell's."""

    values: Numbers
    factors: Numbers

    def compute_half_widths(self, noise: CellNoise, weight: int) -> Numbers:
        """Return `[cells]` half-widths of intervals, for a query whose integers have this noise.

        Counted in deviations they are those of one cell. A sum of a few Laplace draws exceeds them
        no more often than one draw does. The ½ is needed because sums of cells are finer than
        integers. Together they hold as independent intervals would (Šidák 1967, for normal sums of
        common noise). This includes Laplace noise, which is normal with a random variance: what is
        near then is so in all sums together.
        """
        return self.factors * (noise.compute_half_width() + 0.5) / weight


def compute_rms(factors: Numbers) -> float:
    """Return the root mean square over an answer's cells."""
    return float(np.sqrt(np.mean(np.square(factors))))


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Counts among the batch's integers: position, columns, and the integer of one record."""

    query: int
    place: slice
    shape: Mapping[Hashable, int]
    height: int


@dataclass(frozen=True, kw_only=True)
class _TableFamily:
    """Tables of the same records."""

    tables: Sequence[_Table]
    overlaps: TableOverlaps

    @property
    def queries(self) -> Integers:
        """`[T]` the query of each table."""
        return np.array([table.query for table in self.tables])

    @property
    def sizes(self) -> Numbers:
        """`[T]` numbers of cells."""
        return np.array([table.place.stop - table.place.start for table in self.tables], float)

    def compute_precisions(self, steps: Numbers) -> Numbers:
        """Return `[T]` precisions of counts.

        An integer of query q has noise of deviation 1/steps_q.
        """
        return np.square(np.array([table.height for table in self.tables]) * steps[self.queries])


@dataclass(frozen=True, kw_only=True)
class BatchConsistency:
    """Consistency of a batch's answers.

    Attributes:
        noise: noise on the batch's integers; None: large enough to matter.
        clipped: whether parties' sums are clipped. They then do not count records, and never agree.
    """

    batch: QueryBatch
    facts: QueryFacts
    noise: CellNoise | None = None
    clipped: bool = False

    @cached_property
    def families(self) -> tuple[_TableFamily, ...]:
        """Families of tables that inform each other."""
        fine = self.noise is not None and self.noise.deviation < MIN_DEVIATION
        if self.clipped or fine:
            return ()
        found = dict[str, list[_Table]]()
        for population, table in self._list_tables():
            found.setdefault(population, []).append(table)
        made = list[_TableFamily]()
        for population, tables in found.items():
            public = population == str(None) and self.facts.records is not None
            overlaps = TableOverlaps(shapes=tuple(each.shape for each in tables), public=public)
            if overlaps.residuals:
                made.append(_TableFamily(tables=tables, overlaps=overlaps))
        return tuple(made)

    def _list_tables(self) -> Iterator[tuple[str, _Table]]:
        """Yield every table, with a key of the records it counts."""
        schema = self.facts.schema
        places = self.batch.list_slices(schema)
        queries = zip(self.batch.queries, self.batch.weights, places, strict=True)
        for number, (query, weight, place) in enumerate(queries):
            parts, begin = query.list_cell_sums(schema, weight), place.start
            leaves = sum(len(each.summands) * each.cells.count for each in parts)
            if query.count_cells(schema) != leaves:
                continue  # a tree has more nodes than leaves
            for part in parts:
                shape = {axis.name: axis.size for axis in part.cells.axes}
                first, end = part.summands[0], begin + part.cells.count
                if first.compute is None and None not in shape:
                    at, height = slice(begin, end), first.high
                    counted = _Table(query=number, place=at, shape=shape, height=height)
                    yield str(query.where), counted
                begin += part.cells.count * len(part.summands)

    @cached_property
    def factors(self) -> Numbers:
        """`[d]` ratio of each cell's noise deviation after agreement to that before."""
        found = np.ones(self.batch.count_cells(self.facts.schema))
        for family in self.families:
            own = family.compute_precisions(np.ones(len(self.batch.queries)))
            spread = np.sqrt(family.overlaps.compute_variances(own) * own)
            for table, factor in zip(family.tables, spread, strict=True):
                if self.batch.queries[table.query].consistent:
                    found[table.place] = factor
        return found

    def make_consistent(self, noisy: Integers) -> list[ConsistentCounts | None]:
        """Return the counts of the batch's noisy sum `[d]`; None for a separate query."""
        values = noisy.astype(np.float64)
        total = None if self.facts.records is None else float(self.facts.records)
        for family in self.families:
            tables = [
                noisy[table.place].reshape(list(table.shape.values())) / table.height
                for table in family.tables
            ]
            own = family.compute_precisions(np.ones(len(self.batch.queries)))
            known = total if family.overlaps.public else None
            consistent = family.overlaps.make_consistent(tables, own, total=known)
            both = zip(family.tables, consistent, strict=True)
            for table, agreed in both:
                values[table.place] = agreed.ravel()
        return [
            ConsistentCounts(values=values[place], factors=self.factors[place])
            if query.consistent and (self.factors[place] < 1).all()
            else None
            for query, place in zip(
                self.batch.queries, self.batch.list_slices(self.facts.schema), strict=True
            )
        ]

    def allocate_budget(
        self, shares: Sequence[float], steps: Callable[[Numbers], Numbers]
    ) -> Numbers:
        """Return `[Q]` parts of the budget, Σ = 1, from shares of the answers' gains.

        Args:
            steps: maps parts `[Q]` to the size of each query's integer step, in deviations of its
                noise.
        """
        asked: Numbers = np.array(shares) / np.sum(shares)
        families = [each for each in self.families if len(set(each.queries)) > 1]
        if not families:
            return asked
        parts = asked
        for _ in range(_MAX_ITERATIONS):
            before, parts = parts, asked.copy()
            for family in families:
                precisions = family.compute_precisions(steps(before))
                parts += self._compute_credit(family, asked, precisions)
            parts = np.maximum(parts, _MIN_SHARE)
            if np.abs(parts - before).max() < _TOLERANCE:
                break
        return np.asarray(np.round(parts, 6))

    def _compute_credit(self, family: _TableFamily, shares: Numbers, precision: Numbers) -> Numbers:
        """Return `[Q]` the gain of all answers from a family's cells, less each own share."""
        queries, sizes = family.queries, family.sizes
        reads = np.array([query.consistent for query in self.batch.queries])
        variances = sizes * family.overlaps.compute_variances(precision)
        errors = np.bincount(queries, variances, len(shares))
        wanted = shares[queries] * sizes / np.maximum(errors[queries], 1e-300)
        wanted[~reads[queries]] = 0
        gains = family.overlaps.compute_gains(precision, wanted)
        found = np.bincount(queries, gains, len(shares)).astype(float)
        read = [q for q in set(queries) if reads[q]]
        found[read] -= shares[read]
        return found
