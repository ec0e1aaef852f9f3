"""The steps that change a ledger, each a function of a writer that holds the lock.

A step reads all it needs and refuses before it appends anything, so that a refusal leaves no
trace even inside a larger transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from privacy.events import Composition
from privacy.guarantee import Unit
from privacy.ledger_budget import PARTY_MARK, DatasetBudget
from privacy.ledger_chain import Record, RecordKind, canonical_json, checked_json
from privacy.ledger_entry import Entry
from privacy.ledger_errors import BudgetExceeded, LedgerConflict, LedgerCorrupt
from privacy.ledger_replay import STATES, EntryState, composed

if TYPE_CHECKING:
    from privacy.ledger_store import Account, Reader, Writer

__all__ = ["Checkpoint", "Reservation", "account_of", "commit", "register", "reserve", "void"]


class Checkpoint(NamedTuple):
    """The model of a run after a release, as bytes."""

    release: int
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """Leave to make one release.

    Attributes:
        id: for `commit` and `void`.
        entry: the release.
        state: RESERVED, or COMMITTED where this very release was made and recorded before.
        resumed: whether it was reserved before, so that nothing was charged now.
        spent: the data set's composition, this release included.
    """

    id: int
    entry: Entry
    state: EntryState
    resumed: bool
    spent: Composition


def register(writer: Writer, *datasets: DatasetBudget) -> None:
    """See `Ledger.register`."""
    known = [
        writer.account(each.name) or writer.account_of_fingerprint(each.fingerprint)
        for each in datasets
    ]
    for dataset, account in zip(datasets, known, strict=True):
        if account is not None and account.budget != dataset:
            raise LedgerConflict(
                f"Expected the data set as it was registered, {account.budget.description}; "
                f"got {dataset.description}. A budget is fixed when its data set is first "
                "registered."
            )
        _check_both(writer, dataset, {each.fingerprint for each in datasets})
    for dataset, account in zip(datasets, known, strict=True):
        if account is None:
            body = {"at": _now(), "dataset": dataset.to_json()}
            writer.append(RecordKind.REGISTER, dataset=dataset.name, body=body)
            writer.add_account(dataset)


def _check_both(writer: Writer, dataset: DatasetBudget, charged: set[str]) -> None:
    """Data with a budget for each unit are charged in both, or not at all.

    A release that only the records' budget knows has no party-level bound, and would make the
    parties' ε untrue; one that only the parties' budget knows costs the records something too.

    Raises:
        LedgerConflict: the other budget is not among those charged; or it is to be opened on
            data of which something was released already, under the record's budget alone.
    """
    if dataset.unit is Unit.PARTY and dataset.fingerprint.endswith(PARTY_MARK):
        records = writer.account_of_fingerprint(dataset.fingerprint.removesuffix(PARTY_MARK))
        if records is None:
            return
        missing = records.budget.fingerprint not in charged
        opened = writer.account_of_fingerprint(dataset.fingerprint) is not None
        if not opened and records.spent.releases:
            raise LedgerConflict(
                f"Expected data of which nothing was released yet, to open {dataset.guarantee} "
                f"for it, got {records.spent.releases} releases on {records.budget.name!r} that "
                "no party-level bound covers."
            )
        other = records.budget
    else:
        parties = writer.account_of_fingerprint(dataset.fingerprint + PARTY_MARK)
        if parties is None or parties.budget.unit is not Unit.PARTY:
            return
        missing, other = parties.budget.fingerprint not in charged, parties.budget
    if missing:
        raise LedgerConflict(
            f"Expected every release on data set {dataset.name!r} to be charged to {other.name!r} "
            "too, got one for a single unit: these data have a budget for each "
            "(privacy.unit = 'both')."
        )


def reserve(writer: Writer, *entries: Entry) -> tuple[Reservation, ...]:
    """See `Ledger.reserve_together`. All entries are examined before the first is appended."""
    examined = [_examined(writer, entry) for entry in entries]
    budgets = [account.budget for account, _ in examined]
    names = {budget.name for budget in budgets}
    if len(names) < len(entries):
        raise LedgerConflict(
            f"Expected one entry a data set in one step, got {len(entries)} for {len(names)}."
        )
    for budget in budgets:
        _check_both(writer, budget, {each.fingerprint for each in budgets})
    return tuple(
        _resumed(writer, account, latest, entry)
        if latest is not None
        else _charged(writer, account, entry)
        for entry, (account, latest) in zip(entries, examined, strict=True)
    )


def _examined(writer: Writer, entry: Entry) -> tuple[Account, Record | None]:
    """The account, and the record of the same release where it is held; refuses else."""
    account = account_of(writer, entry.dataset)
    for fact in ("unit", "neighbouring"):
        expected = str(getattr(account.budget, fact))
        if entry.facts[fact] != expected:
            raise LedgerConflict(
                f"Expected {fact} {expected!r}, which the budget of data set {entry.dataset!r} "
                f"is stated in, got {entry.facts[fact]!r}."
            )
    latest = writer.latest(entry.run_id, entry.dataset, entry.index)
    if latest is not None and latest.kind != RecordKind.VOID:
        _resumed(writer, account, latest, entry)  # Raises where it is another entry.
        return account, latest
    if not account.budget.admits(account.spent.add(entry.event)):
        raise BudgetExceeded(
            requested=entry.event,
            spent=account.spent,
            left=account.budget.left(account.spent),
            budget=account.budget,
        )
    return account, None


def _charged(writer: Writer, account: Account, entry: Entry) -> Reservation:
    spent = account.spent.add(entry.event)
    record = writer.append(
        RecordKind.RESERVE,
        dataset=entry.dataset,
        run_id=entry.run_id,
        index=entry.index,
        body={"at": _now(), "entry": entry.to_json()},
    )
    writer.set_spent(entry.dataset, spent)
    return Reservation(
        id=record.position, entry=entry, state=EntryState.RESERVED, resumed=False, spent=spent
    )


def _resumed(writer: Writer, account: Account, latest: Record, entry: Entry) -> Reservation:
    reservation_id = latest.reservation
    if reservation_id is None or (first := writer.record(reservation_id)) is None:
        raise LedgerCorrupt(f"Expected a reservation behind record {latest.position}, got none.")
    held = first.content()["entry"]
    asked = entry.to_json()
    if canonical_json(held) != canonical_json(asked):
        # Which parts differ is said, their values are in the ledger.
        parts = [
            name for name in asked if canonical_json(held.get(name)) != canonical_json(asked[name])
        ]
        raise LedgerConflict(
            f"Expected release {entry.index} of run {entry.run_id!r} on data set "
            f"{entry.dataset!r} as it was reserved, got another {' and '.join(parts)}."
        )
    return Reservation(
        id=reservation_id,
        entry=entry,
        state=STATES[RecordKind(latest.kind)],
        resumed=True,
        spent=account.spent,
    )


def commit(
    writer: Writer,
    reservation_ids: Sequence[int],
    outcome: Mapping[str, Any],
    checkpoint: bytes | None,
) -> None:
    """See `Ledger.commit`; the checkpoint is noted with the first reservation."""
    checked_json(outcome, "outcome")
    first, *others = reservation_ids
    # The caller's transaction ends only if this returns: all of them are settled, or none.
    for reservation_id in others:
        _settle(
            writer,
            reservation_id,
            RecordKind.COMMIT,
            {"outcome": dict(outcome), "checkpoint": None},
        )
    digest = None if checkpoint is None else hashlib.sha256(checkpoint).hexdigest()
    body = {"outcome": dict(outcome), "checkpoint": digest}
    reserved = _settle(writer, first, RecordKind.COMMIT, body)
    if reserved is not None and checkpoint is not None:
        writer.set_checkpoint(
            {
                "run_id": reserved.run_id,
                "index": reserved.index,
                "digest": digest,
                "data": checkpoint,
            }
        )


def void(writer: Writer, reservation_id: int, reason: str) -> None:
    """See `Ledger.void`."""
    if not reason.strip():
        raise ValueError("Expected a reason for voiding a reservation, got none.")
    reserved = _settle(writer, reservation_id, RecordKind.VOID, {"reason": reason})
    if reserved is not None:
        spent = composed(writer.records(dataset=reserved.dataset))
        writer.set_spent(reserved.dataset, spent)


def _settle(
    writer: Writer, reservation_id: int, kind: RecordKind, body: Mapping[str, Any]
) -> Record | None:
    """Appends what became of a reservation; `None` if the same was recorded before."""
    reserved = writer.record(reservation_id)
    if reserved is None or reserved.kind != RecordKind.RESERVE:
        raise LedgerConflict(f"Expected the id of a reservation, got {reservation_id}.")
    settled = writer.settlement(reserved)
    if settled is None:
        writer.append(
            kind,
            dataset=reserved.dataset,
            run_id=reserved.run_id,
            index=reserved.index,
            reservation=reservation_id,
            body={"at": _now(), **body},
        )
        return reserved
    before = settled.content()
    del before["at"]
    if settled.kind != kind or canonical_json(before) != canonical_json(body):
        raise LedgerConflict(
            f"Expected reservation {reservation_id} to be open, it is "
            f"{STATES[RecordKind(settled.kind)]}: {canonical_json(before)}."
        )
    return None


def account_of(reader: Reader, dataset: str) -> Account:
    """A registered data set's account; `LedgerConflict` if it is unknown."""
    account = reader.account(dataset)
    if account is None:
        raise LedgerConflict(f"Expected a registered data set, got {dataset!r}.")
    return account


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
