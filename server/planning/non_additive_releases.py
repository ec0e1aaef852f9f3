"""Plan releases that replace noise on the sum: private selection and randomised response.

`PrivateSelection`: a trusted server chooses one winner from exact scores. The secure sum is that of
any query. The server then reveals the winner's position, by the exponential mechanism or
permute-and-flip, and that is charged. It needs a server that may see the sum without noise, so a
simulation. Real parties get noise on the scores instead.

`RandomisedReports`: the records randomise their own reports, and their sum gets no noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from parley.client.queries.base import Integers, QueryError, QueryFacts
from parley.client.queries.query_batch import Counting, QueryBatch
from parley.client.queries.randomised_response import ResponseQuery
from parley.client.queries.selection_queries import SelectionQuery
from parley.privacy.accounting.privacy_events import PrivacyEvent
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.mechanisms.private_selection import SELECTIONS, Selection
from parley.privacy.mechanisms.randomised_response import Reports
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
        """Name of the selection mechanism."""
        return self.selection.law

    @property
    def scale(self) -> float:
        """2Δ/ε times the weight: a candidate that is worse by this much is e times less likely."""
        return self.weight / self.query.get_score_unit(self.weight) / float(self.selection.rate)

    def compute_event(self) -> PrivacyEvent:
        """Return what the selection costs."""
        return self.selection.event()

    def to_ledger_entry(self, entry: LedgerEntry) -> LedgerEntry:
        """Return the ledger's entry of the selection, from that of a release of the sum."""
        facts = {
            "norm": "of one score",
            "sensitivity": float(self.selection.sensitivity),
            "noise_law": self.law,
            "noise_parameter": self.scale,
        }
        kept = {key: value for key, value in entry.facts.items() if key not in _NOISE_FACTS}
        return replace(entry, event=self.compute_event(), facts={**kept, **facts})

    trusted: ClassVar[bool] = True
    """Whether the server sees the sum without noise."""
    refusal: ClassVar[str] = (
        "a server that chooses would see the exact scores. With noise on the scores no one sees "
        "them: use choose, choose-best or quantiles with it"
    )

    def compute_output(self, total: Integers, facts: QueryFacts, stream: NoiseStream) -> list[int]:
        """Return only the winner's position."""
        return [self.choose_winner(total, facts, stream)]

    def choose_winner(self, total: Integers, facts: QueryFacts, stream: NoiseStream) -> int:
        """Return the winner's position, from 0."""
        scores = self.query.compute_scores(total, self.weight, facts)
        return self.selection.choose(scores, stream)

    def compute_expected_error(self, facts: QueryFacts) -> float:
        """Return 2Δ/ε·ln k in the query's units: on average, the winner is no worse than that."""
        return self.scale / self.weight * math.log(self.query.count_candidates(facts.schema))


_NOISE_FACTS = {"sensitivity_l1", "accounts"}
"""Facts about noise on the sum, which is not drawn."""


def build_selection(
    batch: QueryBatch, facts: QueryFacts, law: str, epsilon: float, counting: Counting, shared: bool
) -> PrivateSelection:
    """Return the selection of a batch's winner. Raises QueryError."""
    if shared:
        raise QueryError(
            f"Expected noise of laplace or gaussian in shares, got {law}: "
            f"{PrivateSelection.refusal}."
        )
    if counting.clip or counting.parties:
        raise QueryError(
            f"Expected unit record or person, and all parties together, with {law}, got unit "
            f"{counting.unit}{' by party' if counting.parties else ''}. Use laplace or gaussian."
        )
    query = batch.queries[0]
    if len(batch.queries) > 1 or not isinstance(query, SelectionQuery):
        raise QueryError(
            f"Expected one query of candidates, choose-best or quantiles, with {law}, got "
            f"{', '.join(each.kind for each in batch.queries[:8])}. choose finds its winner from "
            "noisy votes, at no higher cost."
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
    """How records answer one question by randomised response."""

    query: ResponseQuery
    facts: QueryFacts

    trusted: ClassVar[bool] = False
    """False, because the sum of the reports shows only what the reports contain."""
    refusal: ClassVar[str] = ""

    @property
    def law(self) -> str:
        """Name of the mechanism."""
        return self.mechanism.law

    @property
    def scale(self) -> float:
        """Standard deviation of a category that half of the records have."""
        records, response = self._records, self.mechanism.response
        return float(response.compute_deviation(records / 2, records=records))

    def compute_event(self) -> PrivacyEvent:
        """Return the local ε."""
        return self.mechanism.event()

    def to_ledger_entry(self, entry: LedgerEntry) -> LedgerEntry:
        """Return the plan's own entry, which describes the reports already."""
        return entry

    @property
    def _records(self) -> int:
        return self.facts.records or 1

    @property
    def mechanism(self) -> Reports:
        """The mechanism that the reports are in a plan."""
        return self.query.build_mechanism(self.facts.schema)

    def compute_output(self, total: Integers, facts: QueryFacts, stream: NoiseStream) -> list[int]:
        """Return the sum of the reports unchanged."""
        reports: list[int] = total.tolist()
        return reports

    def compute_expected_error(self, facts: QueryFacts) -> float:
        """Return `scale`."""
        return self.scale


def build_reports(
    batch: QueryBatch, facts: QueryFacts, law: str, epsilon: float, counting: Counting, shared: bool
) -> RandomisedReports:
    """Return the reports of a batch's one query. Raises QueryError."""
    del shared  # No noise is added to the reports.
    if counting != Counting():
        raise QueryError(
            f"Expected unit record, and all parties together, with {law}, got unit "
            f"{counting.unit}{' by party' if counting.parties else ''}: every record answers for "
            "itself. Use histogram, which adds noise."
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
