"""Whether a ledger is sound: its log in itself, and its other tables against the log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from parley.privacy.accounting.rounding import shown_up
from parley.privacy.ledger.chain import Head
from parley.privacy.ledger.replay import Problem, Replay, replay

if TYPE_CHECKING:
    from parley.privacy.ledger.store import Reader


def problems(reader: Reader, anchor: Head | None) -> list[Problem]:
    """Everything that is wrong; see `Ledger.verify`."""
    log = replay(reader.records())
    messages = [
        *_head_problems(reader, log),
        *_anchor_problems(anchor, log),
        *_account_problems(reader, log),
    ]
    return [
        *log.problems,
        *(Problem(position=0, message=message) for message in messages),
        *(
            Problem(position=0, message=message, of_checkpoint=True)
            for message in _checkpoint_problems(reader, log)
        ),
    ]


def _head_problems(reader: Reader, log: Replay) -> list[str]:
    if reader.head.records != log.head.records:
        return [
            f"Expected {reader.head.records} records, as the head says, the log ends with "
            f"{log.head.records}: its end was cut off or added to."
        ]
    if reader.head.hash != log.head.hash:
        return ["Expected the last record to have the head's hash, it has another."]
    return []


def _anchor_problems(anchor: Head | None, log: Replay) -> list[str]:
    if anchor is None or anchor.records == 0 or log.hashes.get(anchor.records) == anchor.hash:
        return []
    return [
        f"Expected record {anchor.records} as it was at the given head, "
        f"{'it is another' if anchor.records in log.hashes else 'there is none'}: "
        "the log was rewritten."
    ]


def _account_problems(reader: Reader, log: Replay) -> list[str]:
    accounts = reader.stored_accounts()
    found = []
    for key in sorted(accounts.keys() | log.accounts.keys()):
        if key not in accounts or key not in log.accounts:
            where = "log" if key not in log.accounts else "table of accounts"
            found.append(f"Expected data set {key} in the {where}, it is missing.")
            continue
        stored, logged = accounts[key], log.accounts[key]
        if stored.budget != logged.budget:
            found.append(
                f"Expected the budget {logged.budget.description} as in the log, "
                f"got {stored.budget.description}."
            )
        for what, own, due in (
            ("running total", stored.spent, logged.spent),
            ("total with what runs hold", stored.taken, logged.taken),
        ):
            if own != due:
                delta = logged.budget.delta
                found.append(
                    f"Expected the {what} of data set {key} to be "
                    f"ε = {shown_up(due.epsilon(delta)[1], 9)} as in the log, "
                    f"got ε = {shown_up(own.epsilon(delta)[1], 9)}."
                )
                break
        else:
            if stored != replace(logged, budget=stored.budget):
                own_row, due_row = stored.row(), logged.row()
                parts = [name for name, text in due_row.items() if own_row[name] != text]
                found.append(
                    f"Expected {' and '.join(parts)} of data set {key} as in the log: "
                    f"{', '.join(due_row[name] for name in parts)}; got "
                    f"{', '.join(own_row[name] for name in parts)}."
                )
    if log.vouched != log.digest:
        found.append("Expected the last record to vouch for the totals of the log, it doesn't.")
    return found


def _checkpoint_problems(reader: Reader, log: Replay) -> list[str]:
    found, seen = [], set()
    for stored in reader.checkpoints():
        seen.add(stored.run_id)
        committed = log.checkpoints.get(stored.run_id)
        if committed != (stored.index, stored.digest) or not stored.sound:
            found.append(f"Expected the checkpoint of run {stored.run_id!r} as last committed.")
    for run_id in sorted(log.checkpoints.keys() - seen):
        found.append(f"Expected a checkpoint of run {run_id!r}, it is missing.")
    return found
