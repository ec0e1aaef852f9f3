"""Randomised response on one column: `response`. Every record answers for itself.

A record reports its own category with probability e^ε/(e^ε + k − 1), else another one, before any
sum (`parley.privacy.mechanisms.randomised_response`). ε holds against everyone who sees a report,
including the server and all other parties. The sum of the reports is shown unchanged. Its error
grows with √N, while that of noise on the sum does not. This is the cost of trusting no one. If the
query is asked again, records draw other coins and are charged again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from parley.client.data.query_party_block import RawPartyBlock
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
    """Numbers of records per category, from reports at ε = `local` (0: not planned yet)."""

    kind: ClassVar[str] = "response"
    derived_fields: ClassVar[frozenset[str]] = frozenset({"local"})
    nonnegative: ClassVar[bool] = True
    law: ClassVar[str] = RandomisedResponse.law

    local: float = 0.0

    @property
    def report_epsilon(self) -> float:
        """ε of a report, as in `Query.report_epsilon`."""
        return self.local

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local:
            check_positive("epsilon of a report", self.local)
        if self.by or self.where is not None:
            expected = "Expected randomised response of all records, without groups"
            why = "which records answer would reveal what these read"
            raise QueryError(f"{expected}, got a condition or groups: {why}.")

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Run the checks of `Query.check`."""
        super().check(schema, neighbouring)
        if len(get_categories(schema, self.column)) < 2:
            raise QueryError(f"Expected two answers or more in {self.column!r}, got one.")
        if neighbouring is not Neighbouring.REPLACE_ONE:
            expected = "Expected replace-one with randomised response"
            why = "every record answers, which reveals their number"
            raise QueryError(f"{expected}, got {neighbouring}: {why}.")

    def randomise_block(
        self, block: RawPartyBlock, fresh: Callable[[int], NoiseStream]
    ) -> RawPartyBlock:
        """Return the block with the records' reports in its column, by each party's fresh coins."""
        response = self.build_mechanism(block.schema).response
        codes, said = block.columns[self.column], []
        for party in range(block.parties):
            said.append(response.draw_reports(codes[block.get_rows(party)], fresh(party)))
        own = {self.column: np.concatenate(said).astype(np.intp)}
        return replace(block, columns={**block.columns, **own})

    def build_mechanism(self, schema: Schema) -> Reports:
        """Return the mechanism of the reports for a plan."""
        return Reports.from_answers(self.local, self.count_cells(schema))

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Return a histogram of the reports or, if noise covers it, of the categories."""
        return (build_cell_counts(build_group_cells(schema, (self.column,)), weight),)

    def answer_from_output(self, shown: Integers, epsilon: float, facts: QueryFacts) -> Table:
        """Return unbiased counts from the reports, with normal intervals of only the coins."""
        texts = get_categories(facts.schema, self.column)
        response = RandomisedResponse(epsilon=epsilon, answers=len(texts))
        records = int(shown.sum())
        value = response.estimate_counts(shown, records=records)
        spread = response.compute_deviation(np.clip(value, 0, records), records=records)
        half = compute_normal_quantile(0.05) * spread
        keys = build_group_cells(facts.schema, (self.column,)).build_key_columns()
        return {**keys, "value": value, "low": value - half, "high": value + half}
