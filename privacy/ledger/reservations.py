"""The steps that charge releases, each a function of a writer that holds the lock.

A step reads all it needs and refuses before it appends anything, so that a refusal leaves no
trace even inside a larger transaction. No ε rests on a step: what its records lead to is folded
(`account_updates`), and leave to make a release is read off the chain (`release_permit`).
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
    """Sets aside what all releases of a run will need, or refuses the run at once.

    Its releases are drawn from that as they are reserved; nobody else can have it. Another call
    replaces what the run held: a run that was killed and goes on asks for what is left.

    Args:
        claims: budget → events and how many of each; () gives the hold back.
        blocks: that all of them read; none: all records.

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
    """Raises what `hold` would raise."""
    of = {key: get_account(key, accounts) for key in claims}
    for account in of.values():
        _check_run(account, run_id)
    for key, own in claims.items():
        if any(count for _, count in own) and not of[key].can_hold(own, blocks, run_id=run_id):
            raise BudgetExceeded(of[key], own, blocks, run_id=run_id)


def _check_run(account: BudgetAccount, run_id: str) -> None:
    """Raise LedgerConflict for another run than the one that an account was planned for."""
    if account.is_closed_to(run_id):
        raise LedgerConflict(
            f"Expected run {next(iter(account.held))!r}, for whose plan alone the budget of data "
            f"set {account.key} holds (certificate plan), got {run_id!r}: runs that share data "
            "need a ledger of their own, with certificate gaussian, zcdp or pure."
        )


def end_hold(writer: LedgerWriter, run_id: str) -> None:
    """Ends what a run holds. What it reserved stays charged; more must fit the budget again."""
    held = [key for key, account in writer.accounts.items() if run_id in account.held]
    hold(writer, run_id, dict.fromkeys(held, ()))


def reserve(writer: LedgerWriter, entries: Sequence[LedgerEntry]) -> tuple[int, ...]:
    """Charges a release before it is made, to each of its budgets: to all, or to none.

    The same entry again gives its reservation back and charges nothing. A resumed reservation
    may be used only if nothing of the earlier attempt got out.

    Args:
        entries: of the release, one for each unit.

    Returns:
        Ids, of which `release_permit.grant_permits` makes reservations.

    Raises:
        BudgetExceeded: a data set's total would exceed its budget; nothing was recorded.
        LedgerConflict: the name of the release is taken by another entry, the data set is
            unknown, its unit or neighbouring relation is not the entry's, or it has budgets
            of other units too.
    """
    # All entries are examined before the first record is appended.
    known = [_find_reservation(writer, entry) for entry in entries]
    keys = {entry.key for entry in entries}
    if len(keys) < len(entries):
        raise LedgerConflict(
            f"Expected one entry a budget in one step, got {len(entries)} for {len(keys)}."
        )
    for name in {key.dataset for key in keys}:
        charged = {key.unit for key in keys if key.dataset == name}
        check_units(name, charged=charged, registered=writer.get_accounts(name).keys())
    return tuple(
        _append_reservation(writer, entry) if number is None else number
        for entry, number in zip(entries, known, strict=True)
    )


def _unplanned(account: BudgetAccount, entry: LedgerEntry) -> Claims:
    """Return what a run has to hold for a step of DP-SGD that no planned job contains.

    It is charged as a job of one release. Empty for every other release.
    """
    if not account.must_plan(entry.event):
        return ()
    if account.has_held(entry.run_id, entry.event, entry.blocks):
        return ()
    own = account.held.get(entry.run_id)
    return (*(own.claims if own else ()), (entry.event, 1))


def _find_reservation(writer: LedgerWriter, entry: LedgerEntry) -> int | None:
    """The reservation of a release that was charged before; refuses one that may not be."""
    account = get_account(entry.key, writer.accounts)
    expected = str(account.budget.neighbouring)
    if entry.facts["neighbouring"] != expected:
        raise LedgerConflict(
            f"Expected neighbouring {expected!r}, which the budget of data set {entry.key} is "
            f"stated in, got {entry.facts['neighbouring']!r}."
        )
    latest = writer.find_latest(entry.key, entry.run_id, entry.index)
    if latest is not None and latest.kind != RecordKind.VOID:
        return grant_permit(writer, entry, latest.reservation).id
    if claims := _unplanned(account, entry):
        check_hold(writer.accounts, entry.run_id, {entry.key: claims}, entry.blocks)
        return None
    _check_run(account, entry.run_id)
    # What is drawn from the run's hold was found to fit when that was made: the sum of what is
    # spent and held stays the same. Another release has only what nobody holds.
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
    """Records that a reserved release was made, together with the model it led to.

    In one transaction for every budget it was charged to. The same commit again changes nothing.

    Args:
        outcome: plain JSON values, such as `{"survivors": 17}`.
        checkpoint: replaces the run's checkpoint, and is noted with the first reservation; `None`
            leaves it.

    Raises:
        LedgerConflict: unknown, voided, or committed with another outcome.
    """
    check_json(outcome, "outcome")
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


def void(writer: LedgerWriter, reservation_ids: Sequence[int], reason: str) -> None:
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
    writer: LedgerWriter, reservation_id: int, kind: RecordKind, body: Mapping[str, Any]
) -> LedgerRecord | None:
    """Appends what became of a reservation; `None` if the same was recorded before."""
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
