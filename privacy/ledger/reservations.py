"""The steps that charge releases, each a function of a writer that holds the lock.

A step reads all it needs and refuses before it appends anything, so a refusal leaves no trace even
inside a larger transaction. No ε depends on a step: `account_transitions` computes the effect of
its records, and `release_permit` derives permits from the chain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from parley.privacy.ledger.account import BudgetAccount, Claims, encode_claims
from parley.privacy.ledger.block_composition import Blocks, parse_blocks
from parley.privacy.ledger.budget import BudgetKey, check_name
from parley.privacy.ledger.hash_chain import (
    LedgerRecord,
    RecordKind,
    check_json,
    encode_canonical_json,
    format_now,
)
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.ledger.ledger_errors import BudgetExceeded, LedgerConflict
from parley.privacy.ledger.recorded_entries import STATES
from parley.privacy.ledger.registration import get_account
from parley.privacy.ledger.release_permit import check_units, grant_permit

if TYPE_CHECKING:
    from parley.privacy.ledger.table_access import LedgerWriter


class Checkpoint(NamedTuple):
    """The model of a run after a release, as bytes."""

    release: int
    data: bytes


def hold(
    writer: LedgerWriter, run_id: str, claims: Mapping[BudgetKey, Claims], blocks: Blocks = ()
) -> None:
    """Set aside what all releases of a run will need, or refuse the run at once.

    The run's releases are charged against the hold when they are reserved; no other run can use it.
    Another call replaces the run's hold: a run that was killed and is resumed requests what is
    left.

    Args:
        claims: budget → events and the number of each; () ends the hold.
        blocks: the blocks that all of them read; empty: all records.

    Raises:
        BudgetExceeded: not all of it fits; nothing was set aside.
    """
    check_name(run_id, "run_id")
    blocks = parse_blocks(blocks)
    check_hold(writer.accounts, run_id, claims, blocks)
    for key, own in claims.items():
        before = writer.accounts[key]
        if before.with_hold(run_id, own, blocks) != before:
            left = tuple((event, count) for event, count in own if count)
            body = {"at": format_now(), "claims": encode_claims(left), "blocks": list(blocks)}
            if planned := before.compute_planned_charges(run_id, left, blocks):
                body["planned"] = [each.to_json() for each in planned]
            writer.append(RecordKind.HOLD, key, body, run_id=run_id)


def check_hold(
    accounts: Mapping[BudgetKey, BudgetAccount],
    run_id: str,
    claims: Mapping[BudgetKey, Claims],
    blocks: Blocks = (),
) -> None:
    """Raise what `hold` would raise."""
    of = {key: get_account(key, accounts) for key in claims}
    for account in of.values():
        _check_run(account, run_id)
    for key, own in claims.items():
        if any(count for _, count in own) and not of[key].can_hold(own, blocks, run_id=run_id):
            raise BudgetExceeded(of[key], own, blocks, run_id=run_id)


def _check_run(account: BudgetAccount, run_id: str) -> None:
    """Raise LedgerConflict if the account was planned for another run."""
    if account.is_closed_to(run_id):
        raise LedgerConflict(
            f"Expected run {next(iter(account.held))!r}, got {run_id!r}: the budget of data set "
            f"{account.key} holds only for the plan of that run (certificate plan). Runs that "
            "share data need a separate ledger with certificate gaussian, zcdp or pure."
        )


def end_hold(writer: LedgerWriter, run_id: str) -> None:
    """End a run's hold. Its reservations stay charged; further ones must fit the budget again."""
    held = [key for key, account in writer.accounts.items() if run_id in account.held]
    hold(writer, run_id, dict.fromkeys(held, ()))


def reserve(writer: LedgerWriter, entries: Sequence[LedgerEntry]) -> tuple[int, ...]:
    """Charge a release before it is made, to each of its budgets: to all, or to none.

    Reserving the same entry again returns its reservation and charges nothing. A resumed
    reservation may be used only if nothing of the earlier attempt was released.

    Args:
        entries: of the release, one for each unit.

    Returns:
        Ids, from which `release_permit.grant_permits` makes permits.

    Raises:
        BudgetExceeded: a data set's total would exceed its budget; nothing was recorded.
        LedgerConflict: another entry has the name of the release, the data set is unknown, its unit
            or neighbouring relation is not the entry's, or it also has budgets of other units.
    """
    # All entries are examined before the first record is appended.
    known = [_find_reservation(writer, entry) for entry in entries]
    keys = {entry.key for entry in entries}
    if len(keys) < len(entries):
        raise LedgerConflict(f"Expected one entry per budget, got {len(entries)} for {len(keys)}.")
    for name in {key.dataset for key in keys}:
        charged = {key.unit for key in keys if key.dataset == name}
        check_units(name, charged=charged, registered=writer.get_accounts(name).keys())
    return tuple(
        _append_reservation(writer, entry) if number is None else number
        for entry, number in zip(entries, known, strict=True)
    )


def _unplanned(account: BudgetAccount, entry: LedgerEntry) -> Claims:
    """Return what a run must hold for a step of DP-SGD that no planned job contains.

    It is charged as a job of one release. The result is empty for every other release.
    """
    if not account.must_plan(entry.event):
        return ()
    if account.has_held(entry.run_id, entry.event, entry.blocks):
        return ()
    own = account.held.get(entry.run_id)
    return (*(own.claims if own else ()), (entry.event, 1))


def _find_reservation(writer: LedgerWriter, entry: LedgerEntry) -> int | None:
    """Return the reservation of a release that was charged before; refuse one that may not be."""
    account = get_account(entry.key, writer.accounts)
    expected = str(account.budget.neighbouring)
    if entry.facts["neighbouring"] != expected:
        raise LedgerConflict(
            f"Expected neighbouring {expected!r} as in the budget of data set {entry.key}, got "
            f"{entry.facts['neighbouring']!r}."
        )
    latest = writer.find_latest(entry.key, entry.run_id, entry.index)
    if latest is not None and latest.kind != RecordKind.VOID:
        return grant_permit(writer, entry, latest.reservation).id
    if claims := _unplanned(account, entry):
        check_hold(writer.accounts, entry.run_id, {entry.key: claims}, entry.blocks)
        return None
    _check_run(account, entry.run_id)
    # A release from the run's hold was checked when the hold was made: the sum of spent and held
    # stays the same. Any other release can only use what no run holds.
    after = account.with_release(entry.run_id, entry.event, entry.blocks)
    held = account.has_held(entry.run_id, entry.event, entry.blocks)
    if not held and not after.is_within_budget(entry.blocks):
        raise BudgetExceeded(account, ((entry.event, 1),), entry.blocks)
    return None


def _append_reservation(writer: LedgerWriter, entry: LedgerEntry) -> int:
    if claims := _unplanned(writer.accounts[entry.key], entry):
        hold(writer, entry.run_id, {entry.key: claims}, entry.blocks)
    body = {"at": format_now(), "entry": entry.to_json()}
    run_id, index = entry.run_id, entry.index
    return writer.append(RecordKind.RESERVE, entry.key, body, run_id=run_id, index=index).position


def commit(
    writer: LedgerWriter,
    reservation_ids: Sequence[int],
    *,
    outcome: Mapping[str, Any],
    checkpoint: bytes | None = None,
) -> None:
    """Record that a reserved release was made, together with the resulting model.

    One transaction covers every budget it was charged to. Repeating the same commit changes
    nothing.

    Args:
        outcome: plain JSON values, such as `{"survivors": 17}`.
        checkpoint: replaces the run's checkpoint, and is noted with the first reservation; `None`
            keeps the old one.

    Raises:
        LedgerConflict: unknown, voided, or committed with another outcome.
    """
    check_json(outcome, "outcome")
    first, *others = reservation_ids
    # The transaction commits only if this returns, so all of them are settled, or none.
    for each in others:
        _settle(writer, each, RecordKind.COMMIT, {"outcome": dict(outcome), "checkpoint": None})
    digest = None if checkpoint is None else hashlib.sha256(checkpoint).hexdigest()
    body = {"outcome": dict(outcome), "checkpoint": digest}
    reserved = _settle(writer, first, RecordKind.COMMIT, body)
    if reserved is not None and checkpoint is not None:
        row = {"run_id": reserved.run_id, "index": reserved.index, "digest": digest}
        writer.set_checkpoint(**row, data=checkpoint)


def void(writer: LedgerWriter, reservation_ids: Sequence[int], reason: str) -> None:
    """Void a release's charges. Use it only for what was certainly never released.

    The records stay; the same release may be reserved again.

    Raises:
        LedgerConflict: unknown, committed, or voided for another reason.
    """
    if not reason.strip():
        raise ValueError(f"Expected a reason for voiding a reservation, got {reason!r}.")
    for each in reservation_ids:
        _settle(writer, each, RecordKind.VOID, {"reason": reason})


def _settle(
    writer: LedgerWriter, reservation_id: int, kind: RecordKind, body: Mapping[str, Any]
) -> LedgerRecord | None:
    """Record a reservation's settlement; return `None` if the same was recorded before."""
    reserved, settled = writer.settle(reservation_id, kind, {"at": format_now(), **body})
    if settled is None:
        return reserved
    before = settled.parse_body()
    del before["at"]
    before.pop("accounts", None)
    if settled.kind != kind or encode_canonical_json(before) != encode_canonical_json(body):
        raise LedgerConflict(
            f"Expected reservation {reservation_id} to be open, it is "
            f"{STATES[RecordKind(settled.kind)]}: {encode_canonical_json(before)}."
        )
    return None
