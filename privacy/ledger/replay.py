"""Recompute every total from only the log, and find every contradiction.

`replay` walks the records once and finds those that break the chain or are invalid at their
position. `find_problems` compares everything else that a ledger stores with the log's results. A
problem is refused or reported: no ε depends on this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import TYPE_CHECKING, TypeAlias

from parley.privacy.accounting.rounding import format_rounded_up
from parley.privacy.ledger.account import BudgetAccount, KnownRows, digest_accounts
from parley.privacy.ledger.account_transitions import apply_record
from parley.privacy.ledger.budget import BudgetKey
from parley.privacy.ledger.hash_chain import GENESIS, ChainHead, LedgerRecord, RecordKind
from parley.privacy.ledger.ledger_errors import LedgerCorrupt
from parley.privacy.ledger.recorded_entries import (
    UNREADABLE,
    EntryState,
    RecordedEntry,
    StoredCheckpoint,
    parse_reserved_entry,
)

if TYPE_CHECKING:
    from parley.privacy.ledger.table_access import LedgerReader


@dataclass(frozen=True, kw_only=True)
class LedgerProblem:
    """A contradiction in a ledger: at a record of the log, or (position 0) elsewhere.

    Attributes:
        of_checkpoint: whether it concerns a run's model, not a budget.
    """

    position: int
    message: str
    of_checkpoint: bool = False

    def __str__(self) -> str:
        return self.message


_Release: TypeAlias = tuple[str | None, BudgetKey, int | None]


@dataclass(kw_only=True)
class Replay:
    """Results of a walk over the log.

    Attributes:
        vouched: the digest of all accounts that the last record contains.
        checkpoints: run → release and digest of its last checkpoint.
    """

    head: ChainHead = field(default_factory=lambda: ChainHead(records=0, hash=GENESIS))
    problems: list[LedgerProblem] = field(default_factory=list)
    accounts: dict[BudgetKey, BudgetAccount] = field(default_factory=dict)
    vouched: object = digest_accounts(())
    checkpoints: dict[str, tuple[int, str]] = field(default_factory=dict)
    hashes: dict[int, str] = field(default_factory=dict)
    _live: dict[_Release, RecordedEntry] = field(default_factory=dict)

    def step(self, record: LedgerRecord) -> None:
        """Process the next record."""
        expected = self.head.records + 1
        if record.position != expected:
            last = record.position - 1
            gone = f"records {expected} to {last} are missing"
            if last == expected:
                gone = f"record {expected} is missing"
            self._add(f"Expected record {expected}, got {record.position}: {gone}.", expected)
        if not record.is_successor_of(replace(self.head, records=record.position - 1)):
            self._add(
                f"Record {record.position} doesn't match its hash and the record before it: "
                "one of the two was edited, removed or moved.",
                record.position,
            )
        # Continue from the stored hash, so that one edit is reported as one problem.
        self.head = ChainHead(records=record.position, hash=record.hash)
        self.hashes[record.position] = record.hash
        try:
            self.accounts[record.key] = self._apply_record(record)
            self.vouched = record.parse_body().get("accounts")
        except UNREADABLE as error:
            self._add(f"Record {record.position} is not valid here: {error}", record.position)

    def _apply_record(self, record: LedgerRecord) -> BudgetAccount:
        """Return the record's account after it."""
        before, name = self.accounts.get(record.key), (record.run_id, record.key, record.index)
        known = self._live.get(name)
        if record.kind in (RecordKind.VOID, RecordKind.RAISE) and before is not None:
            # Releases until now were bound by the budget before this record.
            self._check_within_budget(before)
        if record.kind == RecordKind.RESERVE:
            if known is not None:
                raise ValueError(f"release {record.index} of {record.run_id!r} was reserved.")
            found = apply_record(before, record)
            self._live[name] = parse_reserved_entry(record)
            return found
        if record.kind not in (RecordKind.COMMIT, RecordKind.VOID):
            return apply_record(before, record)
        if (
            known is None
            or known.state is not EntryState.RESERVED
            or known.reservation_id != record.reservation
        ):
            raise ValueError(f"Expected an open reservation {record.reservation}.")
        settled = known.with_settlement(record)
        if settled.state is EntryState.VOIDED:
            del self._live[name]
        else:
            self._live[name] = settled
            if settled.checkpoint is not None:
                self.checkpoints[known.entry.run_id] = (known.entry.index, settled.checkpoint)
        return apply_record(before, record, known.entry)

    def _check_within_budget(self, account: BudgetAccount) -> None:
        budget, spent = account.budget, account.spent
        if not budget.can_admit(spent):
            epsilon = budget.compute_epsilon(spent)
            self._add(
                f"Expected data set {budget.name!r} to stay within {budget.guarantee}, "
                f"the log adds up to ε = {format_rounded_up(epsilon, 9)}."
            )

    def finish(self) -> None:
        """Check the budgets. Totals only grow between voids, so checking here is enough."""
        for account in self.accounts.values():
            self._check_within_budget(account)
        for dataset in dict.fromkeys(key.dataset for key in self.accounts):
            self._check_charged_together([key for key in self.accounts if key.dataset == dataset])

    def _check_charged_together(self, keys: list[BudgetKey]) -> None:
        """Check that every release on data is charged to all of their budgets, or to none."""
        releases = {(run_id, index) for run_id, key, index in self._live if key in keys}
        for run_id, index in sorted(releases, key=str):
            missing = [str(key) for key in keys if (run_id, key, index) not in self._live]
            if missing:
                self._add(
                    f"Expected release {index} of run {run_id!r} to be charged to every budget of "
                    f"its data, it is not charged to {' and '.join(missing)}."
                )

    def _add(self, message: str, position: int = 0) -> None:
        self.problems.append(LedgerProblem(position=position, message=message))


def replay(records: Iterable[LedgerRecord]) -> Replay:
    """Walk the log from its beginning."""
    walk = Replay()
    for record in records:
        walk.step(record)
    walk.finish()
    return walk


def find_problems(stored: LedgerReader, anchor: ChainHead | None = None) -> list[LedgerProblem]:
    """Return all problems of a ledger; see `Ledger.verify`.

    Raises:
        LedgerCorrupt: it cannot be read to the end.
    """
    log = replay(stored.iterate_records())
    messages = [
        *_find_head_problems(stored.head, log),
        *_find_anchor_problems(anchor, log),
        *_find_account_problems(stored.load_accounts(verified=False), log),
        *_find_row_problems(stored.summarise_rows(), log),
    ]
    models = _find_checkpoint_problems(stored.iterate_checkpoints(), log)
    return [
        *log.problems,
        *(LedgerProblem(position=0, message=message) for message in messages),
        *(LedgerProblem(position=0, message=each, of_checkpoint=True) for each in models),
    ]


def check_sound(problems: Iterable[LedgerProblem], place: str) -> None:
    """Raise if one of the problems concerns a budget.

    Raises:
        LedgerCorrupt: the first of them.
    """
    wrong = [each for each in problems if not each.of_checkpoint]
    if wrong:
        raise LedgerCorrupt(
            f"Expected a sound ledger at {place}, got: {wrong[0]} Nothing was charged. "
            f"`parley ledger verify {quote(place)}` lists what is wrong within the ledger."
        )


def _find_head_problems(head: ChainHead, log: Replay) -> Iterator[str]:
    if head.records != log.head.records:
        yield (
            f"Expected {head.records} records, the number in the head, got {log.head.records}: the "
            "end of the log was cut off or extended."
        )
    elif head.hash != log.head.hash:
        yield "Expected the last record to have the head's hash, it has a different one."


def _find_anchor_problems(anchor: ChainHead | None, log: Replay) -> Iterator[str]:
    if anchor is not None and anchor.records and log.hashes.get(anchor.records) != anchor.hash:
        yield (
            f"Expected record {anchor.records} as it was at the given head, "
            f"{'it is different' if anchor.records in log.hashes else 'there is none'}: "
            "an older copy was put back, or the log was rewritten."
        )


def _find_account_problems(
    accounts: Mapping[BudgetKey, BudgetAccount], log: Replay
) -> Iterator[str]:
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
            (what, logged.budget.compute_epsilon(own), logged.budget.compute_epsilon(due))
            for what, own, due in (
                ("running total", stored.spent, logged.spent),
                ("total with what runs hold", stored.spent_or_held, logged.spent_or_held),
            )
            if own != due
        ]
        for what, found, expected in different[:1]:
            yield (
                f"Expected the {what} of data set {key} to be ε = {format_rounded_up(expected, 9)} "
                f"as in the log, got ε = {format_rounded_up(found, 9)}."
            )
        if not different and stored != replace(logged, budget=stored.budget):
            own_row, due_row = stored.to_row(), logged.to_row()
            parts = [name for name, text in due_row.items() if own_row[name] != text]
            yield (
                f"Expected {' and '.join(parts)} of data set {key} as in the log: "
                f"{', '.join(due_row[name] for name in parts)}; got "
                f"{', '.join(own_row[name] for name in parts)}."
            )
    if log.vouched != digest_accounts(each.to_row() for each in log.accounts.values()):
        yield "Expected the last record to contain the digest of the log's totals, it doesn't."


def _find_row_problems(stored: Mapping[str, KnownRows], log: Replay) -> Iterator[str]:
    logged = {key.dataset: each.rows for key, each in log.accounts.items() if each.rows}
    for name in sorted(stored.keys() | logged.keys()):
        if stored.get(name) != logged.get(name):
            yield f"Expected the digests of the rows of {name!r} as in the log, they are different."


def _find_checkpoint_problems(
    checkpoints: Iterable[StoredCheckpoint], log: Replay
) -> Iterator[str]:
    seen = set()
    for stored in checkpoints:
        seen.add(stored.run_id)
        committed = log.checkpoints.get(stored.run_id)
        if committed != (stored.index, stored.digest) or not stored.is_intact:
            yield f"Expected the checkpoint of run {stored.run_id!r} as last committed."
    for run_id in sorted(log.checkpoints.keys() - seen):
        yield f"Expected a checkpoint of run {run_id!r}, it is missing."
