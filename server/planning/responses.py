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
from parley.privacy.mechanisms.randomised_response import RandomisedResponse
from parley.privacy.sampling.stream import NoiseStream

__all__ = ["Responses", "responses_of"]


@dataclass(frozen=True, kw_only=True)
class Responses:
    """How records answer one question.

    Attributes:
        query: which.
        response: the mechanism.
        records: N.
    """

    query: Response
    response: RandomisedResponse
    records: int

    refusal: ClassVar[str] = (
        "records of real parties cannot answer by randomised response yet: histogram "
        "has noise in shares, with less error, and nobody sees its bare sum"
    )

    @property
    def law(self) -> str:
        """Its name."""
        return self.response.law

    @property
    def scale(self) -> float:
        """Standard deviation of a category that half of the records have."""
        return float(self.response.deviation(self.records / 2, records=self.records))

    def event(self) -> Event:
        """The local ε."""
        return self.response.event()

    def charged(self, entry: Entry) -> Entry:
        """A ledger's entry of the reports, from that of a release of the sum."""
        told = {
            "norm": "of one record's report",
            "sensitivity": 1.0,
            "noise_law": self.law,
            "noise_parameter": self.response.truth,
            "noise_point": "party",
        }
        kept = {k: v for k, v in entry.facts.items() if k not in {"sensitivity_l1", "accounts"}}
        return replace(entry, event=self.event(), facts={**kept, **told})

    @property
    def column(self) -> str:
        """In which records answer for themselves."""
        return self.query.column

    def reports(self, codes: Integers, stream: NoiseStream) -> Integers:
        """What one party's records say, whose own categories are `codes`."""
        return self.response.reports(codes, stream)

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
    """The reports of a batch's one query.

    Raises:
        QueryError: several queries, or another; another unit than a record, or by party.
    """
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
    answers = query.cells(facts.schema)
    response = RandomisedResponse(epsilon=epsilon, answers=answers)
    return Responses(query=query, response=response, records=facts.records)
