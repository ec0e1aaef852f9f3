"""Define what a job's plan and its run have in common: a plan is the summary before round 1."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from parley.server.records.guarantee_facts import DataAccount, GuaranteeSummary, RecordBounds
from parley.server.records.json_record import JsonRecord


class JobSummary(JsonRecord):
    """What a job costs, planned or spent.

    Attributes:
        data_accounts: accounts of the job's data in its ledger, by their name there.
    """

    format: Literal[2] = 2
    algorithm: str
    algorithm_title: str = ""
    model: str
    dimension: int | None = None
    parties: int
    min_records: int | None = None
    rounds: int
    guarantees: tuple[GuaranteeSummary, ...] = Field(min_length=1)
    class_weights: tuple[float, ...] | None = None
    record_bounds: RecordBounds | None = None
    data_accounts: tuple[DataAccount, ...] | None = None

    @property
    def primary(self) -> GuaranteeSummary:
        """The guarantee for the job's own ε and δ."""
        return self.guarantees[0]
