"""The commonest category: `choose`, of one column, in every group; by votes.

A record votes for its own category: a count in groups. Nobody need see a bare sum: the winner is
read off the noisy votes, which are published. Hiding all but the winner would not be cheaper: under
replace-one a record takes a vote from one and gives it to another, and the largest of noisy votes
needs as much noise as all of them do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from parley.client.data.schema import Schema
from parley.client.queries.base import (
    ColumnQuery,
    Facts,
    Integers,
    Part,
    QueryError,
    Table,
    counts_in,
    groups_of,
    key_of,
    texts_of,
)
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.estimation.reach import Reach


@dataclass(frozen=True, kw_only=True)
class Choose(ColumnQuery):
    """The category that most records have."""

    kind: ClassVar[str] = "choose"

    def check(self, schema: Schema, neighbouring: Neighbouring) -> None:
        """See `Query.check`."""
        super().check(schema, neighbouring)
        if len(texts_of(schema, self.column)) < 2:
            raise QueryError(f"Expected two candidates or more in {self.column!r}, got one.")

    def parts(self, schema: Schema, weight: int) -> tuple[Part, ...]:
        """Votes for every candidate, in every group."""
        cells = groups_of(schema, (*self.by, self.column))
        return (counts_in(cells, weight),)

    def answer(self, noisy: Integers, weight: int, noise: Reach, facts: Facts) -> Table:
        """The winner with its noisy votes, and by how many it leads the second."""
        candidates = np.array(texts_of(facts.schema, self.column))
        groups = groups_of(facts.schema, self.by)
        votes = noisy.reshape(groups.count, len(candidates)) / weight
        order = np.argsort(votes, axis=1)
        rows = np.arange(groups.count)
        value, second = votes[rows, order[:, -1]], votes[rows, order[:, -2]]
        # The winner is the largest of so many: its interval holds for all of them at once.
        half = noise.half_width(cells=len(candidates)) / weight
        return {
            **groups.keys(),
            key_of(self.column): candidates[order[:, -1]],
            "lead": value - second,
            "value": value,
            "low": value - half,
            "high": value + half,
        }
