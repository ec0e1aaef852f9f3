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

from parley.client.queries.base import Integers, QueryError, QueryFacts
from parley.client.queries.query_batch import Counting, QueryBatch
from parley.client.queries.randomised_response import ResponseQuery
from parley.client.queries.sums import SelectionQuery
from parley.privacy.accounting.privacy_events import PrivacyEvent
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.mechanisms.randomised_response import Reports
from parley.privacy.mechanisms.selection import SELECTIONS, Selection
from parley.privacy.sampling.random_stream import NoiseStream
from parley.privacy.sensitivity.bounded_sets import compute_sensitivity


@dataclass(frozen=True, kw_only=True)
class PrivateSelection:
    """How one winner is chosen."""

    query: SelectionQuery
    weight: int
    selection: Selection

    @property
    def law(self) -> str:
        """Its name."""
        return self.selection.law

    @property
    def scale(self) -> float:
        """2Δ/ε times the weight: a candidate that is worse by so much is e times less likely."""
        return self.weight / self.query.get_score_unit(self.weight) / float(self.selection.rate)

    def compute_event(self) -> PrivacyEvent:
        """What it costs."""
        return self.selection.event()

    def to_ledger_entry(self, entry: LedgerEntry) -> LedgerEntry:
        """A ledger's entry of the choice, from that of a release of the sum."""
        facts = {
            "norm": "of one score",
            "sensitivity": float(self.selection.sensitivity),
            "noise_law": self.law,
            "noise_parameter": self.scale,
        }
        kept = {key: value for key, value in entry.facts.items() if key not in _NOISE_FACTS}
        return replace(entry, event=self.compute_event(), facts={**kept, **facts})

    trusted: ClassVar[bool] = True
    """The server sees the bare sum."""
    refusal: ClassVar[str] = (
        "a server that chooses would see the exact scores. With noise on the scores nobody does: "
        "choose, choose-best and quantiles have it"
    )

    def compute_output(self, total: Integers, facts: QueryFacts, stream: NoiseStream) -> list[int]:
        """The winner's place alone."""
        return [self.choose_winner(total, facts, stream)]

    def choose_winner(self, total: Integers, facts: QueryFacts, stream: NoiseStream) -> int:
        """The winner's, from 0."""
        scores = self.query.compute_scores(total, self.weight, facts)
        return self.selection.choose(scores, stream)

    def compute_expected_error(self, facts: QueryFacts) -> float:
        """At most so much worse than the best, on average: 2Δ/ε·ln k, in the query's units."""
        return self.scale / self.weight * math.log(self.query.count_candidates(facts.schema))


_NOISE_FACTS = {"sensitivity_l1", "accounts"}
"""Facts of noise on the sum, which is not drawn."""


def build_selection(
    batch: QueryBatch, facts: QueryFacts, law: str, epsilon: float, counting: Counting, shared: bool
) -> PrivateSelection:
    """The choice of a batch's winner. Raises QueryError."""
    if shared:
        raise QueryError(
            f"Expected noise of laplace or gaussian in shares, got {law}: "
            f"{PrivateSelection.refusal}."
        )
    if counting.clip or counting.parties:
        raise QueryError(
            f"Expected unit record or person, and all parties together, with {law}, got unit "
            f"{counting.unit}{' by party' if counting.parties else ''}: laplace and gaussian have "
            "noise for it."
        )
    query = batch.queries[0]
    if len(batch.queries) > 1 or not isinstance(query, SelectionQuery):
        raise QueryError(
            f"Expected one query of candidates, choose-best or quantiles, with {law}, got "
            f"{', '.join(each.kind for each in batch.queries[:8])}. choose reads its winner off "
            "noisy votes, which costs no more."
        )
    query.check_choice(facts.schema)
    weight = batch.weights[0]
    # A person's records move a score one after the other.
    own = query.build_score_set(weight)
    sensitivity = compute_sensitivity(own, facts.neighbouring, records=counting.most).l1
    selection = SELECTIONS[law](epsilon=epsilon, sensitivity=sensitivity)
    return PrivateSelection(query=query, weight=weight, selection=selection)


@dataclass(frozen=True, kw_only=True)
class RandomisedReports:
    """How records answer one question."""

    query: ResponseQuery
    facts: QueryFacts

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
        return float(
            self.mechanism.response.compute_deviation(self._records / 2, records=self._records)
        )

    def compute_event(self) -> PrivacyEvent:
        """The local ε."""
        return self.mechanism.event()

    def to_ledger_entry(self, entry: LedgerEntry) -> LedgerEntry:
        """The plan's own entry: it is of the reports."""
        return entry

    @property
    def _records(self) -> int:
        return self.facts.records or 1

    @property
    def mechanism(self) -> Reports:
        """What the reports are to a plan."""
        return self.query.build_mechanism(self.facts.schema)

    def compute_output(self, total: Integers, facts: QueryFacts, stream: NoiseStream) -> list[int]:
        """The sum of the reports as it is."""
        del facts, stream
        reports: list[int] = total.tolist()
        return reports

    def compute_expected_error(self, facts: QueryFacts) -> float:
        """As `scale`."""
        del facts
        return self.scale


def build_reports(
    batch: QueryBatch, facts: QueryFacts, law: str, epsilon: float, counting: Counting, shared: bool
) -> RandomisedReports:
    """The reports of a batch's one query. Raises QueryError."""
    del shared  # no noise is added to the reports, by nobody
    if counting != Counting():
        raise QueryError(
            f"Expected unit record, and all parties together, with {law}, got unit "
            f"{counting.unit}{' by party' if counting.parties else ''}: every record answers for "
            "itself. histogram has noise for it."
        )
    query = batch.queries[0]
    if len(batch.queries) > 1 or not isinstance(query, ResponseQuery) or facts.records is None:
        raise QueryError(
            f"Expected one query of randomised response with {law}, got "
            f"{', '.join(each.kind for each in batch.queries[:8])}."
        )
    own = replace(query, local=epsilon)
    own.build_mechanism(facts.schema)
    return RandomisedReports(query=own, facts=facts)
