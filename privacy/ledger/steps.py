"""The steps that charge releases, each a function of a writer that holds the lock.

A step reads all it needs and refuses before it appends anything, so that a refusal leaves no
trace even inside a larger transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from parley.privacy.accounting.composition import Composition
from parley.privacy.ledger.account import Account, Claims, claims_to_json
from parley.privacy.ledger.blocks import Blocks, checked_blocks
from parley.privacy.ledger.budget import BudgetKey, checked_name
from parley.privacy.ledger.chain import Record, RecordKind, canonical_json, checked_json, now
from parley.privacy.ledger.entry import Entry
from parley.privacy.ledger.errors import BudgetExceeded, LedgerConflict, LedgerCorrupt
from parley.privacy.ledger.registering import check_units, found
from parley.privacy.ledger.replay import STATES, EntryState, entry_of

if TYPE_CHECKING:
    from parley.privacy.ledger.store import Writer


class Checkpoint(NamedTuple):
    """The model of a run after a release, as bytes."""

    release: int
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """Leave to make one release.

    Attributes:
        state: RESERVED, or COMMITTED where this very release was made and recorded before.
        resumed: whether it was reserved before, so that nothing was charged now.
        account: of the budget, this release included.
    """

    id: int
    entry: Entry
    state: EntryState
    resumed: bool
    account: Account

    @property
    def spent(self) -> Composition:
        """The budget's composition, this release included."""
        return self.account.spent


def hold(
    writer: Writer, run_id: str, claims: Mapping[BudgetKey, Claims], blocks: Blocks = ()
) -> None:
    """Sets aside what all releases of a run will need, or refuses the run at once.

    Its releases are drawn from that as they are reserved; nobody else can have it. Another call
    replaces what the run held: a run that was killed and goes on asks for what is left.

    Args:
        claims: budget → events and how many of each; () gives the hold back.
        blocks: that all of them read; none: all records.

    Raises:
        BudgetExceeded: not all of it fits; nothing was set aside.
    """
    checked_name(run_id, "run_id")
    blocks = checked_blocks(blocks)
    check_room(writer.stored, run_id, claims, blocks)
    for key, own in claims.items():
        before = writer.stored[key]
        after = before.holding(run_id, own, blocks)
        if after != before:
            left = tuple((event, count) for event, count in own if count)
            body = {"at": now(), "claims": claims_to_json(left), "blocks": list(blocks)}
            writer.append(RecordKind.HOLD, account=after, run_id=run_id, body=body)


def check_room(
    accounts: Mapping[BudgetKey, Account],
    run_id: str,
    claims: Mapping[BudgetKey, Claims],
    blocks: Blocks = (),
) -> None:
    """Raises what `hold` would raise."""
    of = {key: found(key, accounts) for key in claims}
    for key, own in claims.items():
        if any(count for _, count in own) and not of[key].admits(own, blocks, run_id=run_id):
            raise BudgetExceeded(of[key], own, blocks, run_id=run_id)


def give_back(writer: Writer, run_id: str) -> None:
    """Ends what a run holds. What it reserved stays charged; more must fit the budget again."""
    held = [key for key, account in writer.stored.items() if run_id in account.held]
    hold(writer, run_id, dict.fromkeys(held, ()))


def reserve(writer: Writer, entries: Sequence[Entry]) -> tuple[Reservation, ...]:
    """Charges a release before it is made, to each of its budgets: to all, or to none.

    The same entry again gives its reservation back and charges nothing. A resumed reservation
    may be used only if nothing of the earlier attempt got out.

    Args:
        entries: of the release, one for each unit.

    Raises:
        BudgetExceeded: a data set's total would exceed its budget; nothing was recorded.
        LedgerConflict: the name of the release is taken by another entry, the data set is
            unknown, its unit or neighbouring relation is not the entry's, or it has budgets
            of other units too.
    """
    # All entries are examined before the first is appended.
    examined = [_examined(writer, entry) for entry in entries]
    keys = {entry.key for entry in entries}
    if len(keys) < len(entries):
        raise LedgerConflict(
            f"Expected one entry a budget in one step, got {len(entries)} for {len(keys)}."
        )
    for name in {key.dataset for key in keys}:
        charged = {key.unit for key in keys if key.dataset == name}
        check_units(name, charged=charged, registered=writer.of_dataset(name).keys())
    return tuple(
        known if isinstance(known, Reservation) else _charged(writer, known, entry)
        for entry, known in zip(entries, examined, strict=True)
    )


def _examined(writer: Writer, entry: Entry) -> Account | Reservation:
    """The account with the release, or its reservation where it was made before; refuses else."""
    account = found(entry.key, writer.stored)
    expected = str(account.budget.neighbouring)
    if entry.facts["neighbouring"] != expected:
        raise LedgerConflict(
            f"Expected neighbouring {expected!r}, which the budget of data set {entry.key} is "
            f"stated in, got {entry.facts['neighbouring']!r}."
        )
    latest = writer.latest(entry.key, entry.run_id, entry.index)
    if latest is not None and latest.kind != RecordKind.VOID:
        return _resumed(writer, account, latest, entry)
    # What is drawn from the run's hold was found to fit when that was made: the sum of what is
    # spent and held stays the same. Another release has only what nobody holds.
    after = account.reserving(entry.run_id, entry.event, entry.blocks)
    held = account.draws(entry.run_id, entry.event, entry.blocks)
    if not held and not after.has_room(entry.blocks):
        raise BudgetExceeded(account, ((entry.event, 1),), entry.blocks)
    return after


def _charged(writer: Writer, after: Account, entry: Entry) -> Reservation:
    record = writer.append(
        RecordKind.RESERVE,
        account=after,
        run_id=entry.run_id,
        index=entry.index,
        body={"at": now(), "entry": entry.to_json()},
    )
    return Reservation(
        id=record.position, entry=entry, state=EntryState.RESERVED, resumed=False, account=after
    )


def _resumed(writer: Writer, account: Account, latest: Record, entry: Entry) -> Reservation:
    reservation_id = latest.reservation
    if not isinstance(reservation_id, int) or reservation_id < 1:
        raise LedgerCorrupt(f"Expected a reservation behind record {latest.position}, got none.")
    # Nothing is charged for what is found here, so the chain must vouch for it: for the
    # reservation, and that nothing after it gave it back.
    first, settled = _reserved(writer, reservation_id)
    names = ("dataset", "unit", "run_id", "index")
    same = all(getattr(first, name) == getattr(latest, name) for name in names)
    if first.kind != RecordKind.RESERVE or not same:
        raise LedgerCorrupt(
            f"Expected a reservation behind record {latest.position}, got a record {first.kind!r} "
            f"of release {first.index} of run {first.run_id!r}."
        )
    if settled is not None and settled.kind == RecordKind.VOID:
        raise LedgerCorrupt(f"Expected reservation {reservation_id} to be open, it was given back.")
    held, asked = entry_of(first).to_json(), entry.to_json()
    # Which parts differ is said, their values are in the ledger.
    parts = [
        name for name in asked if canonical_json(held.get(name)) != canonical_json(asked[name])
    ]
    if parts:
        raise LedgerConflict(
            f"Expected release {entry.index} of run {entry.run_id!r} on data set "
            f"{entry.key} as it was reserved, got a change of {' and '.join(parts)}."
        )
    return Reservation(
        id=reservation_id,
        entry=entry,
        state=STATES[RecordKind(first.kind if settled is None else settled.kind)],
        resumed=True,
        account=account,
    )


def _reserved(writer: Writer, reservation_id: int) -> tuple[Record, Record | None]:
    """The record of a reservation, and what committed or voided it."""
    first, *later = writer.since(reservation_id)
    return first, next((each for each in later if each.reservation == first.position), None)


def commit(
    writer: Writer,
    reservation_ids: Sequence[int],
    *,
    outcome: Mapping[str, Any],
    checkpoint: bytes | None = None,
) -> None:
    """Records that a reserved release was made, together with the model it led to.

    In one transaction for every budget it was charged to. The same commit again changes nothing.

    Args:
        outcome: plain JSON values, such as `{"survivors": 17}`.
        checkpoint: replaces the run's checkpoint, and is noted with the first reservation; `None`
            leaves it.

    Raises:
        LedgerConflict: unknown, voided, or committed with another outcome.
    """
    checked_json(outcome, "outcome")
    first, *others = reservation_ids
    # The transaction ends only if this returns: all of them are settled, or none.
    for each in others:
        _settle(writer, each, RecordKind.COMMIT, {"outcome": dict(outcome), "checkpoint": None})
    digest = None if checkpoint is None else hashlib.sha256(checkpoint).hexdigest()
    body = {"outcome": dict(outcome), "checkpoint": digest}
    reserved = _settle(writer, first, RecordKind.COMMIT, body)
    if reserved is not None and checkpoint is not None:
        writer.set_checkpoint(
            run_id=reserved.run_id, index=reserved.index, digest=digest, data=checkpoint
        )


def void(writer: Writer, reservation_ids: Sequence[int], reason: str) -> None:
    """Gives a release's charges back. Only for what certainly was never released.

    The records stay; the same release may be reserved again.

    Raises:
        LedgerConflict: unknown, committed, or voided for another reason.
    """
    if not reason.strip():
        raise ValueError(f"Expected a reason for voiding a reservation, got {reason!r}.")
    for each in reservation_ids:
        _settle(writer, each, RecordKind.VOID, {"reason": reason})


def _settle(
    writer: Writer, reservation_id: int, kind: RecordKind, body: Mapping[str, Any]
) -> Record | None:
    """Appends what became of a reservation; `None` if the same was recorded before."""
    if not 1 <= reservation_id <= writer.head.records:
        raise LedgerConflict(f"Expected the id of a reservation, got {reservation_id}.")
    reserved, settled = _reserved(writer, reservation_id)
    if reserved.kind != RecordKind.RESERVE:
        raise LedgerConflict(f"Expected the id of a reservation, got {reservation_id}.")
    if settled is None:
        account = found(reserved.key, writer.stored)
        if kind is RecordKind.VOID:
            entry = entry_of(reserved)
            account = account.voiding(entry.event, entry.blocks)
        writer.append(
            kind,
            account=account,
            run_id=reserved.run_id,
            index=reserved.index,
            reservation=reservation_id,
            body={"at": now(), **body},
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
