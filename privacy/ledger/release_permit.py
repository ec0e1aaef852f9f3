"""Permits to make a release, derived from the chain and not from the step that charged it.

Only this module creates a `ReleasePermit`. It requires that the record is in the log with exactly
this entry, that no later record voided it, and that every budget of the data is charged. This does
not depend on what `reservations` did before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.account import BudgetAccount
from parley.privacy.ledger.hash_chain import RecordKind, encode_canonical_json
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.ledger.ledger_errors import LedgerConflict, LedgerCorrupt
from parley.privacy.ledger.recorded_entries import STATES, EntryState, parse_entry

if TYPE_CHECKING:
    from parley.privacy.ledger.table_access import LedgerWriter


@dataclass(frozen=True, kw_only=True)
class ReleasePermit:
    """Permit to make one release.

    Attributes:
        state: RESERVED, or COMMITTED if exactly this release was made and recorded before.
        resumed: whether it was reserved before, so that nothing was charged now.
        account: of the budget, including this release.
    """

    id: int
    entry: LedgerEntry
    state: EntryState
    resumed: bool
    account: BudgetAccount

    @property
    def spent(self) -> Composition:
        """The budget's composition, including this release."""
        return self.account.spent


def grant_permits(
    writer: LedgerWriter, entries: Sequence[LedgerEntry], reserved: Sequence[int]
) -> tuple[ReleasePermit, ...]:
    """Return permits for the release of these entries, by the ids of their reservations.

    Raises:
        LedgerConflict: one was reserved as another entry, or another budget of the data is not
            charged.
        LedgerCorrupt: it was voided.
    """
    for name in {entry.dataset for entry in entries}:
        charged = {entry.key.unit for entry in entries if entry.dataset == name}
        check_units(name, charged=charged, registered=writer.get_accounts(name).keys())
    return tuple(grant_permit(writer, e, i) for e, i in zip(entries, reserved, strict=True))


def grant_permit(writer: LedgerWriter, entry: LedgerEntry, number: int | None) -> ReleasePermit:
    """Return the permit for one entry; raises as `grant_permits`."""
    first, settled = writer.load_reservation(number)
    if settled is not None and settled.kind == RecordKind.VOID:
        raise LedgerCorrupt(f"Expected reservation {number} to be open, it was voided.")
    held, asked = parse_entry(first).to_json(), entry.to_json()
    # The message names the parts that differ; their values stay in the ledger.
    parts = [
        name
        for name in asked
        if encode_canonical_json(held.get(name)) != encode_canonical_json(asked[name])
    ]
    if parts:
        raise LedgerConflict(
            f"Expected release {entry.index} of run {entry.run_id!r} on data set "
            f"{entry.key} as it was reserved, got a change of {' and '.join(parts)}."
        )
    return ReleasePermit(
        id=first.position,
        entry=entry,
        state=STATES[RecordKind((settled or first).kind)],
        resumed=first.position <= writer.initial_head.records,
        account=writer.accounts[entry.key],
    )


def check_units(name: str, *, charged: Collection[Unit], registered: Collection[Unit]) -> None:
    """Check that data with a budget per unit are charged in all of them, or not at all.

    A release that only the records' budget contains has no party-level bound, and would make the
    parties' ε untrue. One that only the parties' budget contains also costs the records something.
    """
    if not set(registered) <= set(charged):
        raise LedgerConflict(
            f"Expected every release on data set {name!r} to be charged to its budgets of unit "
            f"{' and '.join(sorted(registered))}, got one only for unit "
            f"{' and '.join(sorted(charged))}: a job on these data needs privacy.unit = 'both'."
        )
