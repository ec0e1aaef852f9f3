"""The mode: `choose`, the most common category of a column, in every group, by noisy votes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from parley.client.data.schema import Schema
from parley.client.queries.base import (
    CellSums,
    ColumnQuery,
    Integers,
    QueryError,
    QueryFacts,
    Table,
    build_cell_counts,
    build_group_cells,
    get_answer_key,
    get_categories,
)
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.noise_intervals import CellNoise


@dataclass(frozen=True, kw_only=True)
class Mode(ColumnQuery):
    """The mode of a column: the category that most records have."""

    kind: ClassVar[str] = "choose"

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """Run the checks of `Query.check`."""
        super().check(schema, neighbouring)
        if len(get_categories(schema, self.column)) < 2:
            raise QueryError(f"Expected two candidates or more in {self.column!r}, got one.")

    def list_cell_sums(self, schema: Schema, weight: int) -> tuple[CellSums, ...]:
        """Return the votes for every candidate, in every group."""
        cells = build_group_cells(schema, (*self.by, self.column))
        return (build_cell_counts(cells, weight),)

    def answer(self, noisy: Integers, weight: int, noise: CellNoise, facts: QueryFacts) -> Table:
        """Return the winner with its noisy votes, and its lead over the second."""
        candidates = np.array(get_categories(facts.schema, self.column))
        groups = build_group_cells(facts.schema, self.by)
        votes = noisy.reshape(groups.count, len(candidates)) / weight
        order = np.argsort(votes, axis=1)
        rows = np.arange(groups.count)
        value, second = votes[rows, order[:, -1]], votes[rows, order[:, -2]]
        # The winner is the largest of all candidates, so its interval must hold for all of them at
        # once.
        half = noise.compute_half_width(cells=len(candidates)) / weight
        return {
            **groups.build_key_columns(),
            get_answer_key(self.column): candidates[order[:, -1]],
            "lead": value - second,
            "value": value,
            "low": value - half,
            "high": value + half,
        }
