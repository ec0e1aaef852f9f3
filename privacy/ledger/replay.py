"""From the log alone: every entry with its fate, every total, every contradiction.

Nothing here reads a database. `replay` walks the records once and says which of them break the
chain or make no sense where they stand; `problems` holds everything else that a ledger stores to
what the log comes to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from typing import Any, TypeAlias

from parley.privacy.accounting.rounding import shown_up
from parley.privacy.ledger.account import Account, KnownRows, claims_from_json, digest
from parley.privacy.ledger.blocks import checked_blocks
from parley.privacy.ledger.budget import BudgetKey, DatasetBudget
from parley.privacy.ledger.chain import GENESIS, Head, Record, RecordKind
from parley.privacy.ledger.deciding import Decision
from parley.privacy.ledger.entry import Entry
from parley.privacy.ledger.errors import LedgerCorrupt

_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a record's body raises, where somebody edited it."""


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
        reserved_at, settled_at: UTC, ISO 8601; when it was committed or voided.
        outcome, reason: the arguments of `commit` and of `void`.
        checkpoint: SHA-256 of the model committed with it.
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
        return replace(
            self,
            state=STATES[RecordKind(record.kind)],
            settled_at=body["at"],
            outcome=body.get("outcome"),
            checkpoint=body.get("checkpoint"),
            reason=body.get("reason"),
        )


@dataclass(frozen=True, kw_only=True)
class StoredCheckpoint:
    """A model as the run with `run_id` had it after its release `index`, with its SHA-256."""

    run_id: str
    index: int
    digest: str
    data: bytes

    @property
    def sound(self) -> bool:
        """Whether the bytes are those the digest was made of."""
        # SQLite stores what it is given: an edited row may hold text.
        return isinstance(self.data, bytes) and sha256(self.data).hexdigest() == self.digest


def entry_of(record: Record) -> Entry:
    """The entry of a reserve record."""
    entry = Entry.from_json(record.content()["entry"])
    if entry.key != record.key:
        raise ValueError(f"Expected an entry of {record.key}, got one of {entry.key}.")
    return entry


def reserved_entry(record: Record) -> RecordedEntry:
    """The entry of a reserve record; see `entry_of`."""
    return RecordedEntry(
        reservation_id=record.position,
        entry=entry_of(record),
        state=EntryState.RESERVED,
        reserved_at=record.content()["at"],
    )


def recorded_entries(
    records: Iterable[Record], before: Mapping[int | None, RecordedEntry] | None = None
) -> dict[int | None, RecordedEntry]:
    """All entries among the records, by reservation, in their order.

    Args:
        before: entries of the records that these follow.

    Raises:
        LedgerCorrupt: a record can't be read.
    """
    entries = dict(before or {})
    for record in records:
        try:
            if record.kind == RecordKind.RESERVE:
                entries[record.position] = reserved_entry(record)
            elif record.kind in (RecordKind.COMMIT, RecordKind.VOID):
                entries[record.reservation] = entries[record.reservation].settled(record)
        except _UNREADABLE as error:
            raise LedgerCorrupt(
                f"Expected an entry in record {record.position}, it can't be read: "
                "verify the ledger."
            ) from error
    return entries


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


_Release: TypeAlias = tuple[str | None, BudgetKey, int | None]


@dataclass(kw_only=True)
class Replay:
    """What a walk over the log established.

    Attributes:
        vouched: the digest of all accounts that the last record holds.
        checkpoints: run → release and digest of its last checkpoint.
    """

    head: Head = field(default_factory=lambda: Head(records=0, hash=GENESIS))
    problems: list[Problem] = field(default_factory=list)
    accounts: dict[BudgetKey, Account] = field(default_factory=dict)
    vouched: object = digest(())
    checkpoints: dict[str, tuple[int, str]] = field(default_factory=dict)
    hashes: dict[int, str] = field(default_factory=dict)
    _live: dict[_Release, RecordedEntry] = field(default_factory=dict)

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
            self.accounts[record.key] = self._after(record)
            self.vouched = record.content().get("accounts")
        except _UNREADABLE as error:
            self._add(record.position, f"Record {record.position} makes no sense: {error}")

    def _after(self, record: Record) -> Account:
        """The record's account after it."""
        body = record.content()
        match record.kind:
            case RecordKind.REGISTER:
                budget = DatasetBudget.from_json(body["dataset"])
                if budget.key != record.key or budget.key in self.accounts:
                    raise ValueError(f"Expected a new budget, got {budget.key}.")
                rows = KnownRows.from_json(body.get("rows"))
                return Account(budget=budget).recognising(body["known"], rows)
            case RecordKind.RESERVE | RecordKind.COMMIT | RecordKind.VOID:
                step = self._reserved if record.kind == RecordKind.RESERVE else self._settled
                return step(record)
        account = self.accounts[record.key]
        match record.kind:
            case RecordKind.RECOGNISE:
                return account.recognising(body["known"], KnownRows.from_json(body.get("rows")))
            case RecordKind.HOLD:
                claims, blocks = claims_from_json(body["claims"]), checked_blocks(body["blocks"])
                return account.holding(str(record.run_id), claims, blocks)
            case RecordKind.RAISE:
                # What was released until now was bound by the budget as it was.
                self._within_budget(account)
                return account.raised(epsilon=body["epsilon"], delta=body["delta"])
            case RecordKind.DECIDE:
                Decision.of(record)
                return account
        raise ValueError(f"Expected a kind of record, got {record.kind!r}.")

    def _reserved(self, record: Record) -> Account:
        reserved = reserved_entry(record)
        entry, key = reserved.entry, (record.run_id, record.key, record.index)
        if (entry.run_id, entry.index) != (record.run_id, record.index):
            raise ValueError("its columns are another entry's.")
        if key in self._live:
            raise ValueError(f"release {entry.index} of {entry.run_id!r} was reserved before.")
        self._live[key] = reserved
        return self.accounts[record.key].reserving(entry.run_id, entry.event, entry.blocks)

    def _settled(self, record: Record) -> Account:
        key, account = (record.run_id, record.key, record.index), self.accounts[record.key]
        before = self._live[key]
        if before.reservation_id != record.reservation or before.state is not EntryState.RESERVED:
            raise ValueError(f"Expected an open reservation {record.reservation}.")
        after = before.settled(record)
        self._live[key] = after
        if after.state is EntryState.VOIDED:
            self._within_budget(account)
            del self._live[key]
            return account.voiding(before.entry.event, before.entry.blocks)
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
        for dataset in dict.fromkeys(key.dataset for key in self.accounts):
            self._charged_together([key for key in self.accounts if key.dataset == dataset])

    def _charged_together(self, keys: list[BudgetKey]) -> None:
        """Every release on data is charged to all of their budgets, or to none."""
        charged = {
            key: {(run_id, index) for run_id, own, index in self._live if own == key}
            for key in keys
        }
        for run_id, index in sorted(set().union(*charged.values()), key=str):
            missing = [str(key) for key in keys if (run_id, index) not in charged[key]]
            if missing:
                self._add(
                    0,
                    f"Expected release {index} of run {run_id!r} to be charged to every budget of "
                    f"its data, it is not charged to {' and '.join(missing)}.",
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


def problems(
    records: Iterable[Record],
    *,
    head: Head,
    accounts: Mapping[BudgetKey, Account],
    rows: Mapping[str, KnownRows],
    checkpoints: Iterable[StoredCheckpoint],
    anchor: Head | None,
) -> list[Problem]:
    """Everything that is wrong with a ledger that stores these; see `Ledger.verify`."""
    log = replay(records)
    messages = [
        *_head_problems(head, log),
        *_anchor_problems(anchor, log),
        *_account_problems(accounts, log),
        *_row_problems(rows, log),
    ]
    return [
        *log.problems,
        *(Problem(position=0, message=message) for message in messages),
        *(
            Problem(position=0, message=message, of_checkpoint=True)
            for message in _checkpoint_problems(checkpoints, log)
        ),
    ]


def _head_problems(head: Head, log: Replay) -> Iterator[str]:
    if head.records != log.head.records:
        yield (
            f"Expected {head.records} records, as the head says, the log ends with "
            f"{log.head.records}: its end was cut off or added to."
        )
    elif head.hash != log.head.hash:
        yield "Expected the last record to have the head's hash, it has another."


def _anchor_problems(anchor: Head | None, log: Replay) -> Iterator[str]:
    if anchor is not None and anchor.records and log.hashes.get(anchor.records) != anchor.hash:
        yield (
            f"Expected record {anchor.records} as it was at the given head, "
            f"{'it is another' if anchor.records in log.hashes else 'there is none'}: "
            "the log was rewritten."
        )


def _account_problems(accounts: Mapping[BudgetKey, Account], log: Replay) -> Iterator[str]:
    for key in sorted(accounts.keys() | log.accounts.keys()):
        if key not in accounts or key not in log.accounts:
            where = "log" if key not in log.accounts else "table of accounts"
            yield f"Expected data set {key} in the {where}, it is missing."
            continue
        stored, logged = accounts[key], log.accounts[key]
        if stored.budget != logged.budget:
            yield (
                f"Expected the budget {logged.budget.description} as in the log, "
                f"got {stored.budget.description}."
            )
        different = [
            (what, own.epsilon(logged.budget.delta)[1], due.epsilon(logged.budget.delta)[1])
            for what, own, due in (
                ("running total", stored.spent, logged.spent),
                ("total with what runs hold", stored.taken, logged.taken),
            )
            if own != due
        ]
        for what, found, expected in different[:1]:
            yield (
                f"Expected the {what} of data set {key} to be ε = {shown_up(expected, 9)} as in "
                f"the log, got ε = {shown_up(found, 9)}."
            )
        if not different and stored != replace(logged, budget=stored.budget):
            own_row, due_row = stored.row(), logged.row()
            parts = [name for name, text in due_row.items() if own_row[name] != text]
            yield (
                f"Expected {' and '.join(parts)} of data set {key} as in the log: "
                f"{', '.join(due_row[name] for name in parts)}; got "
                f"{', '.join(own_row[name] for name in parts)}."
            )
    if log.vouched != digest(each.row() for each in log.accounts.values()):
        yield "Expected the last record to vouch for the totals of the log, it doesn't."


def _row_problems(stored: Mapping[str, KnownRows], log: Replay) -> Iterator[str]:
    logged = {key.dataset: each.rows for key, each in log.accounts.items() if each.rows}
    for name in sorted(stored.keys() | logged.keys()):
        if stored.get(name) != logged.get(name):
            yield f"Expected the digests of the rows of {name!r} as in the log, they are others."


def _checkpoint_problems(checkpoints: Iterable[StoredCheckpoint], log: Replay) -> Iterator[str]:
    seen = set()
    for stored in checkpoints:
        seen.add(stored.run_id)
        committed = log.checkpoints.get(stored.run_id)
        if committed != (stored.index, stored.digest) or not stored.sound:
            yield f"Expected the checkpoint of run {stored.run_id!r} as last committed."
    for run_id in sorted(log.checkpoints.keys() - seen):
        yield f"Expected a checkpoint of run {run_id!r}, it is missing."
