"""The steps that change a ledger, each a function of a writer that holds the lock.

A step reads all it needs and refuses before it appends anything, so that a refusal leaves no
trace even inside a larger transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.events import parse_event
from parley.privacy.accounting.guarantee import Unit
from parley.privacy.ledger.account import Account, Claims, claims_to_json
from parley.privacy.ledger.budget import PARTY_MARK, DatasetBudget, checked_name
from parley.privacy.ledger.chain import Record, RecordKind, canonical_json, checked_json
from parley.privacy.ledger.entry import Entry
from parley.privacy.ledger.errors import BudgetExceeded, LedgerConflict, LedgerCorrupt
from parley.privacy.ledger.replay import STATES, EntryState

if TYPE_CHECKING:
    from parley.privacy.ledger.store import Writer

__all__ = ["Checkpoint", "Reservation", "account_of", "check_room", "commit", "give_back"]
__all__ += ["hold", "register", "reserve", "void"]


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


def register(writer: Writer, *datasets: DatasetBudget) -> tuple[DatasetBudget, ...]:
    """See `Ledger.register`."""
    found = [_same_data(writer, each) for each in datasets]
    known = {
        dataset.fingerprint: account.budget
        for account, dataset in zip(found, datasets, strict=True)
        if account is not None
    }
    budgets = tuple(
        account.budget if account is not None else _beside(dataset, known)
        for account, dataset in zip(found, datasets, strict=True)
    )
    for budget in budgets:
        _check_both(writer, budget, {each.fingerprint for each in budgets})
    for dataset, budget, account in zip(datasets, budgets, found, strict=True):
        if account is None:
            new = Account(budget=budget).recognising((dataset.fingerprint, dataset.contents))
            body = {"at": _now(), "dataset": budget.to_json(), "known": list(new.known)}
            writer.append(RecordKind.REGISTER, account=new, body=body)
            continue
        more = account.recognising((dataset.fingerprint, dataset.contents))
        if more != account:
            body = {"at": _now(), "known": list(more.known)}
            writer.append(RecordKind.RECOGNISE, account=more, body=body)
    return budgets


def _beside(dataset: DatasetBudget, known: Mapping[str, DatasetBudget]) -> DatasetBudget:
    """A new budget of parties under its records' name, from whichever file the records came.

    Else the same records, saved in another way, would have a party's budget that nothing binds to
    their own: what was released before would not be seen, nor what is released without it.
    """
    records = known.get(dataset.fingerprint.removesuffix(PARTY_MARK))
    if records is None or records.fingerprint + PARTY_MARK == dataset.fingerprint:
        return dataset
    return records.of_parties(epsilon=dataset.epsilon, delta=dataset.delta)


def _same_data(writer: Writer, dataset: DatasetBudget) -> Account | None:
    """The account of the same data: the same bytes, or the same records saved in another way.

    Raises:
        LedgerConflict: name or bytes are registered as something else; or the data are, with
            another budget.
    """
    named = writer.account(dataset.name)
    account = writer.account_of_fingerprint(dataset.fingerprint, dataset.contents)
    if named is not None and account is not None and named is not account:
        _conflict(named, dataset)
    account = account or named
    if account is None:
        return None
    budget, hint = account.budget, ""
    # The same file under another name is refused: it is a slip, the first name is right.
    same = dataset.fingerprint == budget.fingerprint
    recognised = account.fingerprints & {dataset.fingerprint, dataset.contents}
    if (same and dataset.name != budget.name) or not recognised:
        _conflict(account, dataset)
    terms = ("unit", "neighbouring", "epsilon", "delta")
    if any(getattr(dataset, term) != getattr(budget, term) for term in terms):
        hint = "" if same else " The records are the same, saved in another way."
        _conflict(account, dataset, hint)
    return account


def _conflict(account: Account, dataset: DatasetBudget, hint: str = "") -> NoReturn:
    raise LedgerConflict(
        f"Expected the data set as it was registered, {account.budget.description}; "
        f"got {dataset.description}.{hint} A budget is fixed when its data set is first "
        "registered."
    )


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


def hold(writer: Writer, run_id: str, claims: Mapping[str, Claims]) -> None:
    """See `Ledger.hold`. All data sets are examined before anything is appended."""
    checked_name(run_id, "run_id")
    accounts = {name: account_of(writer, name) for name in claims}
    check_room(accounts, run_id, claims)
    for name, own in claims.items():
        after = accounts[name].holding(run_id, own)
        if after != accounts[name]:
            body = {"at": _now(), "claims": claims_to_json(after.held.get(run_id, ()))}
            writer.append(RecordKind.HOLD, account=after, run_id=run_id, body=body)


def check_room(accounts: Mapping[str, Account], run_id: str, claims: Mapping[str, Claims]) -> None:
    """See `Ledger.check_room`."""
    for name, own in claims.items():
        if any(count for _, count in own) and not accounts[name].admits(own, run_id=run_id):
            raise BudgetExceeded.of_run(accounts[name], own, run_id=run_id)


def give_back(writer: Writer, run_id: str) -> None:
    """See `Ledger.give_back`."""
    hold(writer, run_id, dict.fromkeys(writer.held_by(run_id), ()))


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
    # What is drawn from the run's hold was found to fit when that was made: the sum of what is
    # spent and held stays the same. Another release has only what nobody holds.
    held = account.draws(entry.run_id, entry.event)
    after = account.reserving(entry.run_id, entry.event)
    if not held and not account.budget.admits(after.taken):
        raise BudgetExceeded(requested=entry.event, account=account)
    return account, None


def _charged(writer: Writer, account: Account, entry: Entry) -> Reservation:
    after = account.reserving(entry.run_id, entry.event)
    record = writer.append(
        RecordKind.RESERVE,
        account=after,
        run_id=entry.run_id,
        index=entry.index,
        body={"at": _now(), "entry": entry.to_json()},
    )
    return Reservation(
        id=record.position,
        entry=entry,
        state=EntryState.RESERVED,
        resumed=False,
        spent=after.spent,
    )


def _resumed(writer: Writer, account: Account, latest: Record, entry: Entry) -> Reservation:
    reservation_id = latest.reservation
    if not isinstance(reservation_id, int) or reservation_id < 1:
        raise LedgerCorrupt(f"Expected a reservation behind record {latest.position}, got none.")
    # Nothing is charged for what is found here, so the chain must vouch for it: for the
    # reservation, and that nothing after it gave it back.
    first, *later = writer.since(reservation_id)
    release = (entry.run_id, entry.dataset, entry.index)
    if first.kind != RecordKind.RESERVE or (first.run_id, first.dataset, first.index) != release:
        raise LedgerCorrupt(f"Expected a reservation behind record {latest.position}, got another.")
    settled = _settlement(first, later)
    if settled is not None and settled.kind == RecordKind.VOID:
        raise LedgerCorrupt(f"Expected reservation {reservation_id} to be open, it was given back.")
    # Through `Entry`, so that an event as 0.1.0 wrote it is the event it was.
    held = Entry.from_json(first.content()["entry"]).to_json()
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
        state=STATES[RecordKind(first.kind if settled is None else settled.kind)],
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
    _settle(writer, reservation_id, RecordKind.VOID, {"reason": reason})


def _settlement(reserved: Record, later: Iterable[Record]) -> Record | None:
    """The record that committed or voided a reservation, among those behind it."""
    return next((each for each in later if each.reservation == reserved.position), None)


def _settle(
    writer: Writer, reservation_id: int, kind: RecordKind, body: Mapping[str, Any]
) -> Record | None:
    """Appends what became of a reservation; `None` if the same was recorded before."""
    if not 1 <= reservation_id <= writer.head.records:
        raise LedgerConflict(f"Expected the id of a reservation, got {reservation_id}.")
    reserved, *later = writer.since(reservation_id)
    if reserved.kind != RecordKind.RESERVE:
        raise LedgerConflict(f"Expected the id of a reservation, got {reservation_id}.")
    settled = _settlement(reserved, later)
    if settled is None:
        account = account_of(writer, reserved.dataset)
        if kind is RecordKind.VOID:
            account = account.voiding(parse_event(reserved.content()["entry"]["event"]))
        writer.append(
            kind,
            account=account,
            run_id=reserved.run_id,
            index=reserved.index,
            reservation=reservation_id,
            body={"at": _now(), **body},
        )
        return reserved
    before = settled.content()
    del before["at"]
    before.pop("accounts", None)
    if settled.kind != kind or canonical_json(before) != canonical_json(body):
        raise LedgerConflict(
            f"Expected reservation {reservation_id} to be open, it is "
            f"{STATES[RecordKind(settled.kind)]}: {canonical_json(before)}."
        )
    return None


def account_of(writer: Writer, dataset: str) -> Account:
    """A registered data set's account; `LedgerConflict` if it is unknown."""
    account = writer.account(dataset)
    if account is None:
        raise LedgerConflict(f"Expected a registered data set, got {dataset!r}.")
    return account


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
