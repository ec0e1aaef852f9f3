"""What becomes of a reservation: committed with its outcome, or given back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parley.privacy.ledger.chain import Record, RecordKind, canonical_json, checked_json
from parley.privacy.ledger.errors import LedgerConflict
from parley.privacy.ledger.replay import STATES, entry_of
from parley.privacy.ledger.steps import account_of, now, settlement

if TYPE_CHECKING:
    from parley.privacy.ledger.writer import Writer


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
        raise ValueError(f"Expected a reason for voiding a reservation, got {reason!r}.")
    _settle(writer, reservation_id, RecordKind.VOID, {"reason": reason})


def _settle(
    writer: Writer, reservation_id: int, kind: RecordKind, body: Mapping[str, Any]
) -> Record | None:
    """Appends what became of a reservation; `None` if the same was recorded before."""
    if not 1 <= reservation_id <= writer.head.records:
        raise LedgerConflict(f"Expected the id of a reservation, got {reservation_id}.")
    reserved, *later = writer.since(reservation_id)
    if reserved.kind != RecordKind.RESERVE:
        raise LedgerConflict(f"Expected the id of a reservation, got {reservation_id}.")
    settled = settlement(reserved, later)
    if settled is None:
        account = account_of(writer, reserved.key)
        if kind is RecordKind.VOID:
            account = account.voiding(entry_of(reserved).event)
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
