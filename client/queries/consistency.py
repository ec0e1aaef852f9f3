"""What answers of a batch say of each other: counts of the same records agree, at no cost.

Each answer takes what the others, or a public number of records, say of it, by least squares
(`parley.privacy.estimation.marginals`): post-processing of one release (docs/batches.md).

The budget is shared out so that Σ s_q·ln(rms error of q) is least, with shares s_q: a query's part
is what its noisy cells do for all answers, the derivative of that sum by ln p; putting this for p
again and again goes there (Silvey, Titterington & Torsney 1978). It follows from public facts.
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
"""Of noise, in the steps of its whole numbers: of less, a sum of cells is hardly any nearer."""
_MAX_ITERATIONS = 200
_TOLERANCE = 1e-5
_MIN_SHARE = 1e-6
"""Of a query's part: what it was for, the others' cells say."""


@dataclass(frozen=True, kw_only=True)
class ConsistentCounts:
    """Counts `[cells]` of one answer, and their noise's deviation over that of its cells alone."""

    values: Numbers
    factors: Numbers

    def compute_half_widths(self, noise: CellNoise, weight: int) -> Numbers:
        """`[cells]` of intervals, of a query whose integers have this noise.

        Counted in deviations they are those of one cell: what few Laplace draws make up is beyond
        them no more often than one of them. ½: sums of cells are finer than whole numbers. All at
        once hold as independent ones would (Šidák 1967: of normal sums of common noise, and so of
        Laplace noise, which is normal of a variance that is drawn; whatever is near then is so in
        all sums together).
        """
        return self.factors * (noise.compute_half_width() + 0.5) / weight


def compute_rms(factors: Numbers) -> float:
    """Of an answer's cells together."""
    return float(np.sqrt(np.mean(np.square(factors))))


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Counts among the batch's integers: where, by which columns, and what a record is there."""

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
        """`[T]` whose each table is."""
        return np.array([table.query for table in self.tables])

    @property
    def sizes(self) -> Numbers:
        """`[T]` cells."""
        return np.array([table.place.stop - table.place.start for table in self.tables], float)

    def compute_precisions(self, steps: Numbers) -> Numbers:
        """`[T]` of counts, where an integer of query q has noise of deviation 1/steps_q."""
        return np.square(np.array([table.height for table in self.tables]) * steps[self.queries])


@dataclass(frozen=True, kw_only=True)
class BatchConsistency:
    """Of a batch's answers.

    Attributes:
        noise: on the batch's integers; None: large enough to matter.
        clipped: whether parties' sums are clipped: they count no records then, and nothing agrees.
    """

    batch: QueryBatch
    facts: QueryFacts
    noise: CellNoise | None = None
    clipped: bool = False

    @cached_property
    def families(self) -> tuple[_TableFamily, ...]:
        """Tables that say something of each other."""
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
        """Every table, with what says whose records it counts."""
        schema = self.facts.schema
        queries = zip(
            self.batch.queries, self.batch.weights, self.batch.list_slices(schema), strict=True
        )
        for number, (query, weight, place) in enumerate(queries):
            parts, begin = query.list_cell_sums(schema, weight), place.start
            if query.count_cells(schema) != sum(
                len(each.summands) * each.cells.count for each in parts
            ):
                continue  # a tree has more than its leaves
            for part in parts:
                shape = {axis.name: axis.size for axis in part.cells.axes}
                first, end = part.summands[0], begin + part.cells.count
                if first.compute is None and None not in shape:
                    counted = _Table(
                        query=number, place=slice(begin, end), shape=shape, height=first.high
                    )
                    yield str(query.where), counted
                begin += part.cells.count * len(part.summands)

    @cached_property
    def factors(self) -> Numbers:
        """`[d]` deviation of each cell's noise once they agree, over that of its cells alone."""
        found = np.ones(self.batch.count_cells(self.facts.schema))
        for family in self.families:
            own = family.compute_precisions(np.ones(len(self.batch.queries)))
            spread = np.sqrt(family.overlaps.compute_variances(own) * own)
            for table, factor in zip(family.tables, spread, strict=True):
                if self.batch.queries[table.query].consistent:
                    found[table.place] = factor
        return found

    def make_consistent(self, noisy: Integers) -> list[ConsistentCounts | None]:
        """Of the batch's noisy sum `[d]`; None of a query that is answered by itself."""
        values = noisy.astype(np.float64)
        total = None if self.facts.records is None else float(self.facts.records)
        for family in self.families:
            tables = [
                noisy[table.place].reshape(list(table.shape.values())) / table.height
                for table in family.tables
            ]
            own = family.compute_precisions(np.ones(len(self.batch.queries)))
            known = total if family.overlaps.public else None
            both = zip(
                family.tables,
                family.overlaps.make_consistent(tables, own, total=known),
                strict=True,
            )
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
        """`[Q]` parts of the budget, Σ = 1, from shares of what answers gain by them.

        Args:
            steps: of parts `[Q]`, what an integer of each query is in deviations of its noise.
        """
        asked: Numbers = np.array(shares) / np.sum(shares)
        families = [each for each in self.families if len(set(each.queries)) > 1]
        if not families:
            return asked
        parts = asked
        for _ in range(_MAX_ITERATIONS):
            before, parts = parts, asked.copy()
            for family in families:
                parts += self._compute_credit(
                    family, asked, family.compute_precisions(steps(before))
                )
            parts = np.maximum(parts, _MIN_SHARE)
            if np.abs(parts - before).max() < _TOLERANCE:
                break
        rounded: Numbers = np.round(parts, 6)
        return rounded

    def _compute_credit(
        self, family: _TableFamily, shares: Numbers, precisions: Numbers
    ) -> Numbers:
        """`[Q]` what a family's cells of each query do for all answers, less what it asked for."""
        queries, sizes = family.queries, family.sizes
        reads = np.array([query.consistent for query in self.batch.queries])
        errors = np.bincount(
            queries, sizes * family.overlaps.compute_variances(precisions), len(shares)
        )
        wanted = shares[queries] * sizes / np.maximum(errors[queries], 1e-300)
        wanted[~reads[queries]] = 0
        found = np.bincount(
            queries, family.overlaps.compute_gains(precisions, wanted), len(shares)
        ).astype(float)
        read = [q for q in set(queries) if reads[q]]
        found[read] -= shares[read]
        return found
