"""Randomised response: `response`, of one column; every record answers for itself.

A record says its own category with probability e^ε/(e^ε + k − 1), else another one, before anything
is added up (`parley.privacy.mechanisms.randomised_response`): ε holds whoever sees a report, the
server and all other parties included. The sum of the reports is shown as it is. Its error grows
with √N, where noise on the sum has one that does not: what nobody need be trusted for costs that
much. Asked again, records draw other coins, and are paid for again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from parley.client.data.raw_party_block import RawPartyBlock
from parley.client.data.schema import Schema
from parley.client.queries.base import (
    CellSums,
    ColumnQuery,
    Integers,
    NonAdditiveQuery,
    QueryError,
    QueryFacts,
    Table,
    build_cell_counts,
    build_group_cells,
    get_categories,
)
from parley.privacy.accounting.rounding import check_positive
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.noise_intervals import compute_normal_quantile
from parley.privacy.mechanisms.randomised_response import RandomisedResponse, Reports
from parley.privacy.sampling.random_stream import NoiseStream


@dataclass(frozen=True, kw_only=True)
class ResponseQuery(ColumnQuery, NonAdditiveQuery):
    """How many records have each category, by what they say at ε = `local` (0: not planned yet)."""

    kind: ClassVar[str] = "response"
    derived_fields: ClassVar[frozenset[str]] = frozenset({"local"})
    nonnegative: ClassVar[bool] = True
    law: ClassVar[str] = RandomisedResponse.law

    local: float = 0.0

    @property
    def report_epsilon(self) -> float:
        """See `Query.report_epsilon`."""
        return self.local

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local:
            check_positive("epsilon of a report", self.local)
        if self.by or self.where is not None:
            raise QueryError(
                "Expected randomised response of all records, without groups, got a condition or "
                "groups: which records answer would reveal what these read."
            )

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """See `Query.check`."""
        super().check(schema, neighbouring)
        if len(get_categories(schema, self.column)) < 2:
            raise QueryError(f"Expected two answers or more in {self.column!r}, got one.")
        if neighbouring is not Neighbouring.REPLACE_ONE:
            raise QueryError(
                f"Expected replace-one with randomised response, got {neighbouring}: every record "
                "answers, so that their number shows."
            )

    def randomise_block(
        self, block: RawPartyBlock, fresh: Callable[[int], NoiseStream]
    ) -> RawPartyBlock:
        """The block in whose column stands what the records say, by fresh coins of each party."""
        response = self.build_mechanism(block.schema).response
        codes, said = block.columns[self.column], []
        for party in range(block.parties):
            said.append(response.draw_reports(codes[block.get_rows(party)], fresh(party)))
        own = {self.column: np.concatenate(said).astype(np.intp)}
        return replace(block, columns={**block.columns, **own})

    def build_mechanism(self, schema: Schema) -> Reports:
        """What the reports are to a plan."""
        return Reports.from_answers(self.local, self.count_cells(schema))

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Of what the records say, or of what they have where noise covers it: a histogram."""
        return (build_cell_counts(build_group_cells(schema, (self.column,)), weight),)

    def answer_from_output(self, shown: Integers, epsilon: float, facts: QueryFacts) -> Table:
        """Unbiased counts from the reports; the interval is normal, of the coins alone."""
        texts = get_categories(facts.schema, self.column)
        response = RandomisedResponse(epsilon=epsilon, answers=len(texts))
        records = int(shown.sum())
        value = response.estimate_counts(shown, records=records)
        spread = response.compute_deviation(np.clip(value, 0, records), records=records)
        half = compute_normal_quantile(0.05) * spread
        keys = build_group_cells(facts.schema, (self.column,)).build_key_columns()
        return {**keys, "value": value, "low": value - half, "high": value + half}
