"""One winner that a trusted server chooses by exact scores, in the place of noise on the sum.

The secure sum is that of any query; what the server then shows is the place of the winner, by the
exponential mechanism or permute-and-flip, and that is what is charged. It needs a server that may
see the bare sum: a simulation's. Real parties are asked with noise on the scores instead.

Reports that the records randomised themselves, in the place of noise on their sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from parley.client.queries.base import Facts, Integers, QueryError
from parley.client.queries.query_batch import Batch, Counting
from parley.client.queries.randomised_response import Response
from parley.client.queries.sums import Choosable
from parley.privacy.accounting.privacy_events import Event
from parley.privacy.ledger.ledger_entry import Entry
from parley.privacy.mechanisms.randomised_response import Reports
from parley.privacy.mechanisms.selection import SELECTIONS, Selection
from parley.privacy.sampling.random_stream import NoiseStream
from parley.privacy.sensitivity.bounded_sets import moved_by


@dataclass(frozen=True, kw_only=True)
class Choice:
    """How one winner is chosen."""

    query: Choosable
    weight: int
    selection: Selection

    @property
    def law(self) -> str:
        """Its name."""
        return self.selection.law

    @property
    def scale(self) -> float:
        """2Δ/ε times the weight: a candidate that is worse by so much is e times less likely."""
        return self.weight / self.query.score_unit(self.weight) / float(self.selection.rate)

    def event(self) -> Event:
        """What it costs."""
        return self.selection.event()

    def charged(self, entry: Entry) -> Entry:
        """A ledger's entry of the choice, from that of a release of the sum."""
        facts = {
            "norm": "of one score",
            "sensitivity": float(self.selection.sensitivity),
            "noise_law": self.law,
            "noise_parameter": self.scale,
        }
        kept = {key: value for key, value in entry.facts.items() if key not in _OF_NOISE}
        return replace(entry, event=self.event(), facts={**kept, **facts})

    trusted: ClassVar[bool] = True
    """The server sees the bare sum."""
    refusal: ClassVar[str] = (
        "a server that chooses would see the exact scores. With noise on the scores nobody does: "
        "choose, choose-best and quantiles have it"
    )

    def shown(self, total: Integers, facts: Facts, stream: NoiseStream) -> list[int]:
        """The winner's place alone."""
        return [self.place(total, facts, stream)]

    def place(self, total: Integers, facts: Facts, stream: NoiseStream) -> int:
        """The winner's, from 0."""
        scores = self.query.scores(total, self.weight, facts)
        return self.selection.choose(scores, stream)

    def expected_error(self, facts: Facts) -> float:
        """At most so much worse than the best, on average: 2Δ/ε·ln k, in the query's units."""
        return self.scale / self.weight * math.log(self.query.candidates(facts.schema))


_OF_NOISE = {"sensitivity_l1", "accounts"}
"""Facts of noise on the sum, which is not drawn."""


def choice_of(
    batch: Batch, facts: Facts, law: str, epsilon: float, counting: Counting, shared: bool
) -> Choice:
    """The choice of a batch's winner. Raises QueryError."""
    if shared:
        raise QueryError(
            f"Expected noise of laplace or gaussian in shares, got {law}: {Choice.refusal}."
        )
    if counting.clip or counting.parties:
        raise QueryError(
            f"Expected unit record or person, and all parties together, with {law}, got unit "
            f"{counting.unit}{' by party' if counting.parties else ''}: laplace and gaussian have "
            "noise for it."
        )
    query = batch.queries[0]
    if len(batch.queries) > 1 or not isinstance(query, Choosable):
        raise QueryError(
            f"Expected one query of candidates, choose-best or quantiles, with {law}, got "
            f"{', '.join(each.kind for each in batch.queries[:8])}. choose reads its winner off "
            "noisy votes, which costs no more."
        )
    query.check_choice(facts.schema)
    weight = batch.weights[0]
    # A person's records move a score one after the other.
    own = query.score_set(weight)
    sensitivity = moved_by(own, facts.neighbouring, records=counting.most).l1
    selection = SELECTIONS[law](epsilon=epsilon, sensitivity=sensitivity)
    return Choice(query=query, weight=weight, selection=selection)


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
