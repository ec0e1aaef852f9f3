"""What answers of a batch say of each other: counts of the same records agree, at no cost.

Each answer takes what the others, or a public number of records, say of it, by least squares
(`parley.privacy.estimation.marginals`): post-processing of one release (docs/analytics-batches.md).

The budget is shared out so that Σ s_q·ln(rms error of q) is least, with shares s_q: a query's part
is what its noisy cells do for all answers, the derivative of that sum by ln p; putting this for p
again and again goes there (Silvey, Titterington & Torsney 1978). It follows from public facts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from parley.client.queries.base import Facts, Integers, Numbers
from parley.client.queries.query_batch import Batch
from parley.privacy.estimation.marginals import Overlaps
from parley.privacy.estimation.noise_intervals import Reach

LEAST_DEVIATION = 2.0
"""Of noise, in the steps of its whole numbers: of less, a sum of cells is hardly any nearer."""
_TURNS = 200
_STEADY = 1e-5
_LEAST = 1e-6
"""Of a query's part: what it was for, the others' cells say."""


@dataclass(frozen=True, kw_only=True)
class Agreed:
    """Counts `[cells]` of one answer, and their noise's deviation over that of its cells alone."""

    values: Numbers
    factors: Numbers

    def half_widths(self, noise: Reach, weight: int) -> Numbers:
        """`[cells]` of intervals, of a query whose integers have this noise.

        Counted in deviations they are those of one cell: what few Laplace draws make up is beyond
        them no more often than one of them. ½: sums of cells are finer than whole numbers. All at
        once hold as independent ones would (Šidák 1967: of normal sums of common noise, and so of
        Laplace noise, which is normal of a variance that is drawn; whatever is near then is so in
        all sums together).
        """
        return self.factors * (noise.half_width() + 0.5) / weight


def rms(factors: Numbers) -> float:
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
class _Family:
    """Tables of the same records."""

    tables: Sequence[_Table]
    overlaps: Overlaps

    @property
    def queries(self) -> Integers:
        """`[T]` whose each table is."""
        return np.array([table.query for table in self.tables])

    @property
    def sizes(self) -> Numbers:
        """`[T]` cells."""
        return np.array([table.place.stop - table.place.start for table in self.tables], float)

    def precisions(self, steps: Numbers) -> Numbers:
        """`[T]` of counts, where an integer of query q has noise of deviation 1/steps_q."""
        return np.square(np.array([table.height for table in self.tables]) * steps[self.queries])


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Of a batch's answers.

    Attributes:
        noise: on the batch's integers; None: large enough to matter.
        cut: whether parties' sums are clipped: they count no records then, and nothing agrees.
    """

    batch: Batch
    facts: Facts
    noise: Reach | None = None
    cut: bool = False

    @cached_property
    def families(self) -> tuple[_Family, ...]:
        """Tables that say something of each other."""
        fine = self.noise is not None and self.noise.deviation < LEAST_DEVIATION
        if self.cut or fine:
            return ()
        found = dict[str, list[_Table]]()
        for population, table in self._tables():
            found.setdefault(population, []).append(table)
        made = list[_Family]()
        for population, tables in found.items():
            public = population == str(None) and self.facts.records is not None
            overlaps = Overlaps(shapes=tuple(each.shape for each in tables), public=public)
            if overlaps.residuals:
                made.append(_Family(tables=tables, overlaps=overlaps))
        return tuple(made)

    def _tables(self) -> Iterator[tuple[str, _Table]]:
        """Every table, with what says whose records it counts."""
        schema = self.facts.schema
        queries = zip(
            self.batch.queries, self.batch.weights, self.batch.slices(schema), strict=True
        )
        for number, (query, weight, place) in enumerate(queries):
            parts, begin = query.parts(schema, weight), place.start
            if query.cells(schema) != sum(len(each.adds) * each.cells.count for each in parts):
                continue  # a tree has more than its leaves
            for part in parts:
                shape = {axis.name: axis.size for axis in part.cells.axes}
                first, end = part.adds[0], begin + part.cells.count
                if first.of is None and None not in shape:
                    counted = _Table(
                        query=number, place=slice(begin, end), shape=shape, height=first.high
                    )
                    yield str(query.where), counted
                begin += part.cells.count * len(part.adds)

    @cached_property
    def factors(self) -> Numbers:
        """`[d]` deviation of each cell's noise once they agree, over that of its cells alone."""
        found = np.ones(self.batch.cells(self.facts.schema))
        for family in self.families:
            own = family.precisions(np.ones(len(self.batch.queries)))
            spread = np.sqrt(family.overlaps.variances(own) * own)
            for table, factor in zip(family.tables, spread, strict=True):
                if self.batch.queries[table.query].agrees:
                    found[table.place] = factor
        return found

    def counts(self, noisy: Integers) -> list[Agreed | None]:
        """Of the batch's noisy sum `[d]`; None of a query that is answered by itself."""
        values = noisy.astype(np.float64)
        total = None if self.facts.records is None else float(self.facts.records)
        for family in self.families:
            tables = [
                noisy[table.place].reshape(list(table.shape.values())) / table.height
                for table in family.tables
            ]
            own = family.precisions(np.ones(len(self.batch.queries)))
            known = total if family.overlaps.public else None
            both = zip(family.tables, family.overlaps.agreed(tables, own, total=known), strict=True)
            for table, agreed in both:
                values[table.place] = agreed.ravel()
        return [
            Agreed(values=values[place], factors=self.factors[place])
            if query.agrees and (self.factors[place] < 1).all()
            else None
            for query, place in zip(
                self.batch.queries, self.batch.slices(self.facts.schema), strict=True
            )
        ]

    def shared_out(self, shares: Sequence[float], steps: Callable[[Numbers], Numbers]) -> Numbers:
        """`[Q]` parts of the budget, Σ = 1, from shares of what answers gain by them.

        Args:
            steps: of parts `[Q]`, what an integer of each query is in deviations of its noise.
        """
        asked: Numbers = np.array(shares) / np.sum(shares)
        families = [each for each in self.families if len(set(each.queries)) > 1]
        if not families:
            return asked
        parts = asked
        for _ in range(_TURNS):
            before, parts = parts, asked.copy()
            for family in families:
                parts += self._credit(family, asked, family.precisions(steps(before)))
            parts = np.maximum(parts, _LEAST)
            if np.abs(parts - before).max() < _STEADY:
                break
        rounded: Numbers = np.round(parts, 6)
        return rounded

    def _credit(self, family: _Family, asked: Numbers, own: Numbers) -> Numbers:
        """`[Q]` what a family's cells of each query do for all answers, less what it asked for."""
        queries, sizes = family.queries, family.sizes
        reads = np.array([query.agrees for query in self.batch.queries])
        errors = np.bincount(queries, sizes * family.overlaps.variances(own), len(asked))
        wanted = asked[queries] * sizes / np.maximum(errors[queries], 1e-300)
        wanted[~reads[queries]] = 0
        found = np.bincount(queries, family.overlaps.gains(own, wanted), len(asked)).astype(float)
        read = [q for q in set(queries) if reads[q]]
        found[read] -= asked[read]
        return found
