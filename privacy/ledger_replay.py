"""From the log alone: every entry with its fate, every total, every contradiction.

Nothing here reads a database. `replay` walks the records once and says which of them break the
chain or make no sense where they stand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from privacy.events import Composition, Event
from privacy.ledger_budget import PARTY_MARK, DatasetBudget
from privacy.ledger_chain import GENESIS, Head, Record, RecordKind
from privacy.ledger_entry import Entry
from privacy.ledger_errors import LedgerCorrupt

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
            elif record.kind != RecordKind.REGISTER:
                entries[record.reservation] = entries[record.reservation].settled(record)
        except (ValueError, KeyError, TypeError) as error:
            raise LedgerCorrupt(
                f"Expected an entry in record {record.position}, it can't be read: "
                "verify the ledger."
            ) from error
    return tuple(entries.values())


def composed(records: Iterable[Record]) -> Composition:
    """The composition of all charged releases among the records: reserved or committed."""
    charged: dict[int | None, Event] = {}
    for record in records:
        if record.kind == RecordKind.RESERVE:
            charged[record.position] = Event.from_json(record.content()["entry"]["event"])
        elif record.kind == RecordKind.VOID:
            charged.pop(record.reservation, None)
    total = Composition.empty()
    for event in charged.values():
        total = total.add(event)
    return total


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something in a ledger that can't be: at a record of the log, or (position 0) elsewhere."""

    position: int
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(kw_only=True)
class Replay:
    """What a walk over the log established."""

    head: Head = field(default_factory=lambda: Head(records=0, hash=GENESIS))
    problems: list[Problem] = field(default_factory=list)
    budgets: dict[str, DatasetBudget] = field(default_factory=dict)
    spent: dict[str, Composition] = field(default_factory=dict)
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
        try:
            sound = record.hash == record.expected_hash(self.head.hash)
        except (TypeError, ValueError):
            sound = False
        if not sound:
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
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._add(record.position, f"Record {record.position} makes no sense: {error}")

    def _apply(self, record: Record) -> None:
        key = (record.run_id, record.dataset, record.index)
        if record.kind == RecordKind.REGISTER:
            budget = DatasetBudget.from_json(record.content()["dataset"])
            if budget.name != record.dataset or budget.name in self.budgets:
                raise ValueError(f"Expected a new data set, got {budget.name!r}.")
            self.budgets[budget.name] = budget
            self.spent[budget.name] = Composition.empty()
        elif record.kind == RecordKind.RESERVE:
            reserved = reserved_entry(record)
            entry = reserved.entry
            if key != (entry.run_id, entry.dataset, entry.index):
                raise ValueError("its columns are another entry's.")
            if key in self._live:
                raise ValueError(f"release {entry.index} of {entry.run_id!r} was reserved before.")
            self._live[key] = reserved
            self.spent[record.dataset] = self.spent[record.dataset].add(entry.event)
        else:
            before = self._live[key]
            if (
                before.reservation_id != record.reservation
                or before.state is not EntryState.RESERVED
            ):
                raise ValueError(f"Expected an open reservation {record.reservation}.")
            after = before.settled(record)
            self._live[key] = after
            if after.state is EntryState.VOIDED:
                self._within_budget(record.dataset)
                del self._live[key]
                self.spent[record.dataset] = self._recomposed(record.dataset)
            elif after.checkpoint is not None:
                self.checkpoints[before.entry.run_id] = (before.entry.index, after.checkpoint)

    def _recomposed(self, dataset: str) -> Composition:
        total = Composition.empty()
        for live in self._live.values():
            if live.entry.dataset == dataset:
                total = total.add(live.entry.event)
        return total

    def _within_budget(self, dataset: str) -> None:
        budget, spent = self.budgets[dataset], self.spent[dataset]
        if not budget.admits(spent):
            _, epsilon = spent.epsilon(budget.delta)
            self._add(
                0,
                f"Expected data set {dataset!r} to stay within {budget.guarantee}, "
                f"the log adds up to ε = {epsilon:.9g}.",
            )

    def finish(self) -> None:
        """Checks the budgets; totals only grow between voids, so that here is enough."""
        for dataset in self.budgets:
            self._within_budget(dataset)
        for name, budget in self.budgets.items():
            for other in self.budgets.values():
                if other.fingerprint == budget.fingerprint + PARTY_MARK:
                    self._charged_in_both(name, other.name)

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
