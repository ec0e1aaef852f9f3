"""Compute the account that a record of the log leads to.

No step sets the spent part of a budget. A step decides which record comes next (`reservations`,
`registration`). The account after the record is computed here, when the record is written
(`LedgerWriter.append`) and again when the log is replayed (`replay`). So the total is always that
of the log, independent of the step.
"""

from __future__ import annotations

from parley.privacy.accounting.privacy_events import parse_planned
from parley.privacy.ledger.account import BudgetAccount, KnownRows, parse_claims
from parley.privacy.ledger.block_composition import parse_blocks
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.ledger.hash_chain import LedgerRecord, RecordKind
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.ledger.recorded_entries import parse_entry


def apply_record(
    account: BudgetAccount | None, record: LedgerRecord, settled_entry: LedgerEntry | None = None
) -> BudgetAccount:
    """Return the record's account after it.

    Args:
        account: None: no such budget was registered.
        settled_entry: the entry of the open reservation that the record commits or voids.

    Raises:
        ValueError, KeyError, TypeError: the record is not valid at this point.
    """
    body = record.parse_body()
    if record.kind == RecordKind.REGISTER:
        budget = DatasetBudget.from_json(body["dataset"])
        if budget.key != record.key or account is not None:
            raise ValueError(f"Expected a new budget, got {budget.key}.")
        rows = KnownRows.from_json(body.get("rows"))
        return BudgetAccount(budget=budget).with_fingerprints(body["known"], rows)
    if account is None:
        raise ValueError(f"Expected a registered budget, got {record.key}.")
    found = account
    _check_run(account, record)
    match record.kind:
        case RecordKind.RESERVE:
            entry = parse_entry(record)
            if (entry.run_id, entry.index) != (record.run_id, record.index):
                raise ValueError("its columns belong to another entry.")
            found = account.with_release(entry.run_id, entry.event, entry.blocks)
        case RecordKind.VOID if settled_entry is not None:
            entry = settled_entry
            found = account.with_voided(entry.run_id, entry.event, entry.blocks)
        case RecordKind.COMMIT if settled_entry is not None:
            pass
        case RecordKind.RECOGNISE:
            found = account.with_fingerprints(body["known"], KnownRows.from_json(body.get("rows")))
        case RecordKind.HOLD:
            claims, blocks = parse_claims(body["claims"]), parse_blocks(body["blocks"])
            planned = tuple(map(parse_planned, body.get("planned", ())))
            found = account.with_hold(str(record.run_id), claims, blocks, planned)
        case RecordKind.RAISE:
            found = account.with_raised_budget(epsilon=body["epsilon"], delta=body["delta"])
        case RecordKind.DECIDE:
            from parley.privacy.ledger.approvals import OwnerDecision  # noqa: PLC0415 - spares its code for a ledger without decisions

            OwnerDecision.from_record(record)
        case _:
            raise ValueError(f"Expected a kind of record that is valid here, got {record.kind!r}.")
    return found


def _check_run(account: BudgetAccount, record: LedgerRecord) -> None:
    charges = record.kind in (RecordKind.HOLD, RecordKind.RESERVE)
    if charges and account.is_closed_to(str(record.run_id)):
        raise ValueError(f"Expected the run that budget {record.key} is planned for, got another.")
