"""`RunCharges`: how often a run was charged, counted from the log without keeping its entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from parley.privacy.accounting.privacy_events import PrivacyEvent
from parley.privacy.ledger.budget import BudgetKey
from parley.privacy.ledger.hash_chain import ChainHead, LedgerRecord, RecordKind
from parley.privacy.ledger.recorded_entries import parse_entry, report_unreadable


@dataclass(frozen=True, kw_only=True)
class RunCharges:
    """How often a run was charged, as in the log that ends with `head`.

    A party looks at its charges in every round. Counts stay small, while entries would accumulate.

    Attributes:
        counts: budget and event → number of releases that were not voided.
        unsettled: reservation → budget and event, if it was neither committed nor voided.
    """

    run_id: str
    head: ChainHead
    counts: Mapping[tuple[BudgetKey, PrivacyEvent], int] = field(default_factory=dict)
    unsettled: Mapping[int | None, tuple[BudgetKey, PrivacyEvent]] = field(default_factory=dict)

    def with_records(self, records: Iterable[LedgerRecord], head: ChainHead) -> RunCharges:
        """Return the charges after the run's further records, in a log that ends with `head`.

        Raises:
            LedgerCorrupt: a record cannot be read.
        """
        counts, unsettled = dict(self.counts), dict(self.unsettled)
        for record in records:
            with report_unreadable(record):
                if record.kind == RecordKind.RESERVE:
                    entry = parse_entry(record)
                    charge = unsettled[record.position] = entry.key, entry.event
                    counts[charge] = counts.get(charge, 0) + 1
                elif record.kind in (RecordKind.COMMIT, RecordKind.VOID):
                    charge = unsettled.pop(record.reservation)
                    counts[charge] -= record.kind == RecordKind.VOID
        counts = {charge: count for charge, count in counts.items() if count}
        return RunCharges(run_id=self.run_id, head=head, counts=counts, unsettled=unsettled)
