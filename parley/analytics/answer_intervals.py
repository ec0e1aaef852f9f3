"""Build an answer's table with intervals: per row or simultaneous, for noise or also sampling.

An interval is post-processing of noisy integers. It can be built again in another way at no cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from parley.client.queries.base import Integers, Query, QueryError, QueryFacts, Table
from parley.client.queries.consistency import ConsistentCounts, compute_rms
from parley.privacy.estimation.noise_intervals import CellNoise

PARTY_COLUMN = "party"
"""Column of an answer by party that names the party of each row."""
NO_SAMPLING_REASON = (
    "Expected no sampling intervals with unit party, got some. Each party's sum is clipped to "
    "records_per_party by a private amount, so no sampling error follows from it. Use intervals "
    "for the noise, or unit record or person."
)
"""Reason why a session with unit party has no sampling intervals."""


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """Properties of the intervals, which are of 95 %.

    Attributes:
        simultaneous: Whether they hold for all rows of the answer at once, not for each row.
        sampling: Whether they also cover sampling error, by a normal approximation.
    """

    simultaneous: bool = False
    sampling: bool = False

    def __str__(self) -> str:
        covered = "noise and sampling interval" if self.sampling else "noise interval"
        return f"{covered} 95 %{' for all cells at once' if self.simultaneous else ''}"

    @property
    def plural(self) -> str:
        """The description in plural."""
        return str(self).replace("interval", "intervals", 1)


@dataclass(frozen=True, kw_only=True)
class NoisyCounts:
    """Noisy integers of one query, of all parties together or of one party.

    Attributes:
        party: The party's name; empty for all parties together.
        consistent: The counts made consistent with the batch's other queries, if they were.
    """

    party: str
    noisy: Integers
    facts: QueryFacts
    consistent: ConsistentCounts | None = None


@dataclass(frozen=True, kw_only=True)
class AnswerSource:
    """The noisy counts and settings from which an answer's table is built.

    Attributes:
        parts: One part, or one per party in the order of the rows.
        weight: The query's weight in the batch.
        parties: Number of parties whose sums are in one of its integers.
        clipped: Whether parties' vectors were clipped, by a private amount.
    """

    query: Query
    parts: tuple[NoisyCounts, ...]
    weight: int
    law: str
    scale: float
    parties: int = 1
    clipped: bool = False

    def build_table(self, requested: Intervals) -> tuple[Table, Intervals]:
        """Return the answer's table and its intervals, which are as requested if the query supports
        them.
        """
        made = [self._build_part(part, requested) for part in self.parts]
        return self._join_parties([table for table, _ in made]), made[0][1]

    def derive_tables(self, applied: Intervals) -> dict[str, Table]:
        """Return further tables of the same integers, with the same kind of intervals.

        There are none if parties' vectors were clipped, because the results are not counts then.
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
        """Return one table of all parties, with a column that names the party."""
        if not self.parts[0].party:
            return tables[0]
        rows = [len(next(iter(table.values()))) for table in tables]
        whole: Table = {PARTY_COLUMN: np.repeat([part.party for part in self.parts], rows)}
        for column in tables[0]:
            whole[column] = np.concatenate([np.asarray(table[column]) for table in tables])
        return whole

    def _build_noise(self, applied: Intervals, rows: int) -> CellNoise:
        return CellNoise(
            law=self.law,
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
        """Standard deviation of the consistent counts' noise, relative to that of independent
        cells.
        """
        agreed = self.parts[0].consistent
        return 1.0 if agreed is None else compute_rms(agreed.factors)

    @property
    def supports_sampling(self) -> bool:
        """Whether the intervals can also cover sampling error."""
        return not self.clipped and self.query.supports_sampling(self.parts[0].facts)

    def check(self, requested: Intervals) -> None:
        """Refuse intervals that the query does not support.

        Raises:
            QueryError: what was expected and what was requested.
        """
        kind = self.query.kind
        if requested.simultaneous and not self.query.simultaneous:
            raise QueryError(
                f"Expected simultaneous with a query that has an interval per row, got {kind}: all "
                "its clusters share one noise."
            )
        if requested.sampling and self.clipped:
            raise QueryError(NO_SAMPLING_REASON)
        if requested.sampling and not self.supports_sampling:
            raise QueryError(
                "Expected a count, histogram, sum, mean, variance, marginals, quantiles, survival, "
                "correlations or regression for sampling intervals (a sum under add-or-remove-one "
                f"only for a range on one side of 0), got {kind}."
            )
