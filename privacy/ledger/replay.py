"""From the log alone: every entry with its fate, every total, every contradiction.

Nothing here reads a database. `replay` walks the records once and says which of them break the
chain or make no sense where they stand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from parley.privacy.accounting.rounding import shown_up
from parley.privacy.ledger.account import Account, claims_from_json
from parley.privacy.ledger.budget import PARTY_MARK, DatasetBudget
from parley.privacy.ledger.chain import GENESIS, Head, Record, RecordKind
from parley.privacy.ledger.entry import Entry
from parley.privacy.ledger.errors import LedgerCorrupt

__all__ = ["EntryState", "Problem", "RecordedEntry", "Replay", "recorded_entries", "replay"]


class EntryState(StrEnum):
    """What became of an entry. Only `VOIDED` costs nothing."""

    RESERVED = "reserved"
    COMMITTED = "committed"
    VOIDED = "voided"


STATES = {
    RecordKind.RESERVE: EntryState.RESERVED,
    RecordKind.COMMIT: EntryState.COMMITTED,
    RecordKind.VOID: EntryState.VOIDED,
}


@dataclass(frozen=True, kw_only=True)
class RecordedEntry:
    """An entry as the ledger holds it.

    Attributes:
        reservation_id: what `reserve` returned.
        entry: the release.
        state: what became of it.
        reserved_at: UTC, ISO 8601.
        settled_at: when it was committed or voided.
        outcome: what `commit` was told.
        checkpoint: SHA-256 of the model committed with it.
        reason: what `void` was told.
    """

    reservation_id: int
    entry: Entry
    state: EntryState
    reserved_at: str
    settled_at: str | None = None
    outcome: dict[str, Any] | None = None
    checkpoint: str | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return vars(self) | {"entry": self.entry.to_json(), "state": str(self.state)}

    def settled(self, record: Record) -> RecordedEntry:
        """The entry after a commit or void record."""
        body = record.content()
        return RecordedEntry(
            reservation_id=self.reservation_id,
            entry=self.entry,
            state=STATES[RecordKind(record.kind)],
            reserved_at=self.reserved_at,
            settled_at=body["at"],
            outcome=body.get("outcome"),
            checkpoint=body.get("checkpoint"),
            reason=body.get("reason"),
        )


def reserved_entry(record: Record) -> RecordedEntry:
    """The entry of a reserve record."""
    body = record.content()
    return RecordedEntry(
        reservation_id=record.position,
        entry=Entry.from_json(body["entry"]),
        state=EntryState.RESERVED,
        reserved_at=body["at"],
    )


def recorded_entries(records: Iterable[Record]) -> tuple[RecordedEntry, ...]:
    """All entries among the records, in the order of their reservation.

    Raises:
        LedgerCorrupt: a record can't be read.
    """
    entries: dict[int | None, RecordedEntry] = {}
    for record in records:
        try:
            if record.kind == RecordKind.RESERVE:
                entries[record.position] = reserved_entry(record)
            elif record.kind in (RecordKind.COMMIT, RecordKind.VOID):
                entries[record.reservation] = entries[record.reservation].settled(record)
        except (ValueError, KeyError, TypeError) as error:
            raise LedgerCorrupt(
                f"Expected an entry in record {record.position}, it can't be read: "
                "verify the ledger."
            ) from error
    return tuple(entries.values())


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something in a ledger that can't be: at a record of the log, or (position 0) elsewhere.

    Attributes:
        of_checkpoint: a run's model is concerned, no budget.
    """

    position: int
    message: str
    of_checkpoint: bool = False

    def __str__(self) -> str:
        return self.message


@dataclass(kw_only=True)
class Replay:
    """What a walk over the log established."""

    head: Head = field(default_factory=lambda: Head(records=0, hash=GENESIS))
    problems: list[Problem] = field(default_factory=list)
    accounts: dict[str, Account] = field(default_factory=dict)
    vouched: str | None = None
    checkpoints: dict[str, tuple[int, str]] = field(default_factory=dict)
    hashes: dict[int, str] = field(default_factory=dict)
    _live: dict[tuple[Any, ...], RecordedEntry] = field(default_factory=dict)

    def step(self, record: Record) -> None:
        """Takes the next record."""
        expected = self.head.records + 1
        if record.position != expected:
            last = record.position - 1
            gone = (
                f"record {expected} is" if last == expected else f"records {expected} to {last} are"
            )
            self._add(
                expected, f"Expected record {expected}, got {record.position}: {gone} missing."
            )
        if not record.follows(replace(self.head, records=record.position - 1)):
            self._add(
                record.position,
                f"Record {record.position} doesn't match its hash and the record before it: "
                "one of the two was edited, removed or moved.",
            )
        # Goes on from the hash as stored, so that one edit is one problem.
        self.head = Head(records=record.position, hash=record.hash)
        self.hashes[record.position] = record.hash
        try:
            self._apply(record)
            self.vouched = record.content().get("accounts")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self._add(record.position, f"Record {record.position} makes no sense: {error}")

    def _apply(self, record: Record) -> None:
        key, body = (record.run_id, record.dataset, record.index), record.content()
        if record.kind == RecordKind.REGISTER:
            budget = DatasetBudget.from_json(body["dataset"])
            if budget.name != record.dataset or budget.name in self.accounts:
                raise ValueError(f"Expected a new data set, got {budget.name!r}.")
            account = Account(budget=budget).recognising(body.get("known", ()))
        elif record.kind == RecordKind.RECOGNISE:
            account = self.accounts[record.dataset].recognising(body["known"])
        elif record.kind == RecordKind.HOLD:
            claims = claims_from_json(body["claims"])
            account = self.accounts[record.dataset].holding(str(record.run_id), claims)
        elif record.kind == RecordKind.SEAL:
            account = self.accounts[record.dataset]
        elif record.kind == RecordKind.RESERVE:
            account = self._reserved(record, key)
        else:
            account = self._settled(record, key)
        self.accounts[record.dataset] = account

    def _reserved(self, record: Record, key: tuple[Any, ...]) -> Account:
        reserved = reserved_entry(record)
        entry = reserved.entry
        if key != (entry.run_id, entry.dataset, entry.index):
            raise ValueError("its columns are another entry's.")
        if key in self._live:
            raise ValueError(f"release {entry.index} of {entry.run_id!r} was reserved before.")
        account = self.accounts[record.dataset]
        self._live[key] = reserved
        return account.reserving(entry.run_id, entry.event)

    def _settled(self, record: Record, key: tuple[Any, ...]) -> Account:
        before = self._live[key]
        if before.reservation_id != record.reservation or before.state is not EntryState.RESERVED:
            raise ValueError(f"Expected an open reservation {record.reservation}.")
        after = before.settled(record)
        account = self.accounts[record.dataset]
        self._live[key] = after
        if after.state is EntryState.VOIDED:
            self._within_budget(account)
            del self._live[key]
            return account.voiding(before.entry.event)
        if after.checkpoint is not None:
            self.checkpoints[before.entry.run_id] = (before.entry.index, after.checkpoint)
        return account

    def _within_budget(self, account: Account) -> None:
        budget, spent = account.budget, account.spent
        if not budget.admits(spent):
            _, epsilon = spent.epsilon(budget.delta)
            self._add(
                0,
                f"Expected data set {budget.name!r} to stay within {budget.guarantee}, "
                f"the log adds up to ε = {shown_up(epsilon, 9)}.",
            )

    def finish(self) -> None:
        """Checks the budgets; totals only grow between voids, so that here is enough."""
        for account in self.accounts.values():
            self._within_budget(account)
        for name, account in self.accounts.items():
            for other in self.accounts.values():
                if other.budget.fingerprint == account.budget.fingerprint + PARTY_MARK:
                    self._charged_in_both(name, other.budget.name)

    def _charged_in_both(self, records: str, parties: str) -> None:
        """Data with a budget for each unit: every release is charged in both, or in neither."""
        charged = [
            {(run_id, index) for run_id, dataset, index in self._live if dataset == name}
            for name in (records, parties)
        ]
        for run_id, index in sorted(charged[0] ^ charged[1]):
            alone, missing = (
                (records, parties) if (run_id, index) in charged[0] else (parties, records)
            )
            self._add(
                0,
                f"Expected release {index} of run {run_id!r} to be charged to {missing!r} as to "
                f"{alone!r}, it is not.",
            )

    def _add(self, position: int, message: str) -> None:
        self.problems.append(Problem(position=position, message=message))


def replay(records: Iterable[Record]) -> Replay:
    """Walks the log from its beginning."""
    walk = Replay()
    for record in records:
        walk.step(record)
    walk.finish()
    return walk
