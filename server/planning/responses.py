"""Reports that the records randomised themselves, in the place of noise on their sum.

What is charged is the local ε of one report; that the server sees many of them together makes
nothing cheaper here. Asked again it has fresh coins, and is paid for again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from parley.client.queries.base import Facts, Integers, QueryError
from parley.client.queries.batch import Batch
from parley.client.queries.counting import Counting
from parley.client.queries.response import Response
from parley.privacy.accounting.events import Event
from parley.privacy.ledger.entry import Entry
from parley.privacy.mechanisms.randomised_response import Reports
from parley.privacy.sampling.stream import NoiseStream


@dataclass(frozen=True, kw_only=True)
class Responses:
    """How records answer one question."""

    query: Response
    facts: Facts

    trusted: ClassVar[bool] = False
    """Whoever sees the sum of the reports sees what they tell."""
    refusal: ClassVar[str] = ""

    @property
    def law(self) -> str:
        """Its name."""
        return self.mechanism.law

    @property
    def scale(self) -> float:
        """Standard deviation of a category that half of the records have."""
        return float(self.mechanism.response.deviation(self._records / 2, records=self._records))

    def event(self) -> Event:
        """The local ε."""
        return self.mechanism.event()

    def charged(self, entry: Entry) -> Entry:
        """The plan's own entry: it is of the reports."""
        return entry

    @property
    def _records(self) -> int:
        return self.facts.records or 1

    @property
    def mechanism(self) -> Reports:
        """What the reports are to a plan."""
        return self.query.mechanism(self.facts.schema)

    def shown(self, total: Integers, facts: Facts, stream: NoiseStream) -> list[int]:
        """The sum of the reports as it is."""
        del facts, stream
        reports: list[int] = total.tolist()
        return reports

    def expected_error(self, facts: Facts) -> float:
        """As `scale`."""
        del facts
        return self.scale


def responses_of(
    batch: Batch, facts: Facts, law: str, epsilon: float, counting: Counting, shared: bool
) -> Responses:
    """The reports of a batch's one query. Raises QueryError."""
    del shared  # no noise is added to the reports, by nobody
    if counting != Counting():
        raise QueryError(
            f"Expected unit record, and all parties together, with {law}, got unit "
            f"{counting.unit}{' by party' if counting.parties else ''}: every record answers for "
            "itself. histogram has noise for it."
        )
    query = batch.queries[0]
    if len(batch.queries) > 1 or not isinstance(query, Response) or facts.records is None:
        raise QueryError(
            f"Expected one query of randomised response with {law}, got "
            f"{', '.join(each.kind for each in batch.queries[:8])}."
        )
    own = replace(query, local=epsilon)
    own.mechanism(facts.schema)
    return Responses(query=own, facts=facts)
