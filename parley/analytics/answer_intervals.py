"""What the intervals beside an answer hold for: each row or all at once, noise or sampling too.

An interval is post-processing of noisy integers: it may be made anew in another way, at no cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from parley.client.queries.base import Integers, Query, QueryError, QueryFacts, Table
from parley.client.queries.consistency import ConsistentCounts, compute_rms
from parley.privacy.estimation.noise_intervals import CellNoise

PARTY_COLUMN = "party"
"""Of an answer by party: whose row it is."""
NO_SAMPLING_REASON = (
    "Expected no sampling with unit party, got it: each party's sum is cut to what "
    "records_per_party reach, by how much is private, so that no interval of another sample "
    "follows from it. Intervals of the noise hold; with unit record or person sampling can be had."
)
"""Why a session by party has no sampling intervals."""


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """Of 95 %.

    Attributes:
        simultaneous: all rows of the answer hold at once, not each by itself.
        sampling: they cover sampling error too, by a normal approximation.
    """

    simultaneous: bool = False
    sampling: bool = False

    def __str__(self) -> str:
        covered = "noise and sampling interval" if self.sampling else "noise interval"
        return f"{covered} 95 %{' for all cells at once' if self.simultaneous else ''}"

    @property
    def plural(self) -> str:
        """The same words of several."""
        return str(self).replace("interval", "intervals", 1)


@dataclass(frozen=True, kw_only=True)
class NoisyCounts:
    """Noisy integers of one query, of all parties together or of one of them.

    Attributes:
        party: whose they are; empty: of all together.
        consistent: the counts that they are with those of the batch's other queries, if they are.
    """

    party: str
    noisy: Integers
    facts: QueryFacts
    consistent: ConsistentCounts | None = None


@dataclass(frozen=True, kw_only=True)
class AnswerSource:
    """What a table was made of.

    Attributes:
        parts: one, or one a party, one below the other.
        weight: the query's own, in the batch.
        parties: how many parties' sums are in one of its integers.
        clipped: whether parties' vectors were clipped, by how much is private.
    """

    query: Query
    parts: tuple[NoisyCounts, ...]
    weight: int
    law: str
    scale: float
    parties: int = 1
    clipped: bool = False

    def build_table(self, requested: Intervals) -> tuple[Table, Intervals]:
        """The answer's table, and what its intervals hold for: as wanted, where the query can."""
        made = [self._build_part(part, requested) for part in self.parts]
        return self._join_parties([table for table, _ in made]), made[0][1]

    def derive_tables(self, applied: Intervals) -> dict[str, Table]:
        """The further tables of the same integers, with intervals as they were applied.

        None where parties' vectors were cut: what is left of them are no counts.
        """
        if self.clipped:
            return {}
        rows = sum(len(self._build_part(part, applied)[0]["value"]) for part in self.parts)
        noise = self._build_noise(applied, rows)
        made = [
            self.query.derive_tables(part.noisy, self.weight, noise, part.facts)
            for part in self.parts
        ]
        return {name: self._join_parties([each[name] for each in made]) for name in made[0]}

    def _join_parties(self, tables: Sequence[Table]) -> Table:
        """One table of all parties, whose rows each is."""
        if not self.parts[0].party:
            return tables[0]
        rows = [len(next(iter(table.values()))) for table in tables]
        whole: Table = {PARTY_COLUMN: np.repeat([part.party for part in self.parts], rows)}
        for column in tables[0]:
            whole[column] = np.concatenate([np.asarray(table[column]) for table in tables])
        return whole

    def _build_noise(self, applied: Intervals, rows: int) -> CellNoise:
        return CellNoise.from_law(
            self.law,
            scale=self.scale,
            rounding=self.query.bound_rounding_error(self.parties),
            sampling=applied.sampling,
            together=rows if applied.simultaneous else 1,
            shared=applied.simultaneous and self.query.shared,
        )

    def _build_part(self, part: NoisyCounts, requested: Intervals) -> tuple[Table, Intervals]:
        sampling = (requested.sampling or self.query.inference) and not self.clipped
        sampling = sampling and self.query.supports_sampling(part.facts)
        applied = Intervals(sampling=sampling)
        table = self._build_part_table(part, self._build_noise(applied, 1))
        rows = len(table["value"]) * len(self.parts)
        if requested.simultaneous and self.query.simultaneous and rows > 1:
            applied = replace(applied, simultaneous=True)
            table = self._build_part_table(part, self._build_noise(applied, rows))
        return table, applied

    def _build_part_table(self, part: NoisyCounts, noise: CellNoise) -> Table:
        if part.consistent is None:
            return self.query.answer(part.noisy, self.weight, noise, part.facts)
        half = part.consistent.compute_half_widths(noise, self.weight)
        return self.query.build_table(part.consistent.values, half, noise, part.facts)

    @property
    def error_ratio(self) -> float:
        """The deviation of its noise over that of its cells alone, together."""
        agreed = self.parts[0].consistent
        return 1.0 if agreed is None else compute_rms(agreed.factors)

    @property
    def supports_sampling(self) -> bool:
        """Whether its intervals can be widened by sampling error."""
        return not self.clipped and self.query.supports_sampling(self.parts[0].facts)

    def check(self, requested: Intervals) -> None:
        """Refuses intervals that the query has none of.

        Raises:
            QueryError: what was expected, what came.
        """
        kind = self.query.kind
        if requested.simultaneous and not self.query.simultaneous:
            raise QueryError(
                f"Expected simultaneous with a query whose rows have an interval each, got {kind}: "
                "all its clusters share one noise."
            )
        if requested.sampling and self.clipped:
            raise QueryError(NO_SAMPLING_REASON)
        if requested.sampling and not self.supports_sampling:
            raise QueryError(
                "Expected a count, histogram, sum, mean, variance, marginals, quantiles, survival, "
                "correlations or regression for sampling (a sum under add-or-remove-one of a range "
                f"on one side of 0), got {kind}."
            )
