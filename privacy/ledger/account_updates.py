"""The fold: which account a record of the log leads to.

Nobody sets what a budget has spent. A step says which record comes next (`reservations`,
`registration`); the account behind it is computed here, when the record is written
(`store.Writer.append`) and again when the log is replayed (`replay`): a total is that of the log,
whatever a step did.
"""

from __future__ import annotations

from parley.privacy.accounting.privacy_events import parse_planned
from parley.privacy.ledger.account import Account, KnownRows, claims_from_json
from parley.privacy.ledger.approvals import Decision
from parley.privacy.ledger.block_composition import checked_blocks
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.ledger.hash_chain import Record, RecordKind
from parley.privacy.ledger.ledger_entry import Entry
from parley.privacy.ledger.recorded_entries import entry_of


def after(before: Account | None, record: Record, settles: Entry | None = None) -> Account:
    """The record's account after it.

    Args:
        before: None: no such budget was registered.
        settles: the entry whose reservation it commits or voids, which is open.

    Raises:
        ValueError, KeyError, TypeError: the record makes no sense there.
    """
    body = record.content()
    if record.kind == RecordKind.REGISTER:
        budget = DatasetBudget.from_json(body["dataset"])
        if budget.key != record.key or before is not None:
            raise ValueError(f"Expected a new budget, got {budget.key}.")
        rows = KnownRows.from_json(body.get("rows"))
        return Account(budget=budget).recognising(body["known"], rows)
    if before is None:
        raise ValueError(f"Expected a registered budget, got {record.key}.")
    found = before
    _check_run(before, record)
    match record.kind:
        case RecordKind.RESERVE:
            entry = entry_of(record)
            if (entry.run_id, entry.index) != (record.run_id, record.index):
                raise ValueError("its columns are another entry's.")
            found = before.reserving(entry.run_id, entry.event, entry.blocks)
        case RecordKind.VOID if settles is not None:
            found = before.voiding(settles.run_id, settles.event, settles.blocks)
        case RecordKind.COMMIT if settles is not None:
            pass
        case RecordKind.RECOGNISE:
            found = before.recognising(body["known"], KnownRows.from_json(body.get("rows")))
        case RecordKind.HOLD:
            claims, blocks = claims_from_json(body["claims"]), checked_blocks(body["blocks"])
            planned = tuple(map(parse_planned, body.get("planned", ())))
            found = before.holding(str(record.run_id), claims, blocks, planned)
        case RecordKind.RAISE:
            found = before.raised(epsilon=body["epsilon"], delta=body["delta"])
        case RecordKind.DECIDE:
            Decision.of(record)
        case _:
            raise ValueError(f"Expected a kind of record that fits there, got {record.kind!r}.")
    return found


def _check_run(before: Account, record: Record) -> None:
    charges = record.kind in (RecordKind.HOLD, RecordKind.RESERVE)
    if charges and before.is_closed_to(str(record.run_id)):
        raise ValueError(f"Expected the run that budget {record.key} was planned for, got another.")
