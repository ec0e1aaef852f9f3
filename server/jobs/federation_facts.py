"""Define `Federation`, the public facts about the parties that a plan needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import PublicFacts, Weights
from parley.server.jobs.section_base import JobError


@dataclass(frozen=True, kw_only=True)
class Federation:
    """The public facts about the parties that a plan needs.

    Attributes:
        max_records: largest n_j; with size weights it bounds a contribution.
        schema: text of the schema by which their records are read; empty: not known here.
        numbers: number of numeric columns; all columns if no more is known; 0 for rows that their
            owners prepared, and for arrays.
        columns: number of columns that are features, numeric or not.
    """

    parties: int
    min_records: int
    total_records: int
    max_records: int
    schema: str = ""
    numbers: int = 0
    columns: int = 0

    def count_records(self, *, private: bool) -> int:
        """Return N. If sizes are private, n₍₁₎·m stands for it, which is public."""
        return self.parties * self.min_records if private else self.total_records

    @classmethod
    def from_sizes(
        cls, sizes: NDArray[np.int64], min_records: int | None = None, names: Sequence[str] = ()
    ) -> Federation:
        """Build from every party's number of records, the job's public bound and, if known, names.

        Raises JobError.
        """
        least = int(sizes.min())
        if min_records is not None and least < min_records:
            smallest = int(sizes.argmin())
            party = names[smallest] if names else f"party {smallest}"
            raise JobError(
                f"Expected every party to hold at least parties.min-records = {min_records} "
                f"records, {party} holds {least}."
            )
        return cls(
            parties=len(sizes),
            min_records=least if min_records is None else min_records,
            total_records=int(sizes.sum()),
            max_records=int(sizes.max()),
        )

    def to_public_facts(self, weights: Weights) -> PublicFacts:
        """Return the facts that an algorithm's claim may depend on."""
        return PublicFacts(
            parties=self.parties,
            min_records=self.min_records,
            total_records=self.total_records,
            max_records=self.max_records,
            weights=weights,
        )
