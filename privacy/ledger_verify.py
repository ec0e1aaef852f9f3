"""Whether a ledger is sound: its log in itself, and its other tables against the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privacy.ledger_chain import Head
from privacy.ledger_replay import Problem, Replay, replay

if TYPE_CHECKING:
    from privacy.ledger_store import Reader

__all__ = ["problems"]


def problems(reader: Reader, anchor: Head | None) -> list[Problem]:
    """Everything that is wrong; see `Ledger.verify`."""
    log = replay(reader.records())
    messages = [
        *_head_problems(reader, log),
        *_anchor_problems(anchor, log),
        *_account_problems(reader, log),
        *_checkpoint_problems(reader, log),
    ]
    return log.problems + [Problem(position=0, message=message) for message in messages]


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
    accounts = {account.budget.name: account for account in reader.accounts()}
    found = []
    for name in sorted(accounts.keys() | log.budgets.keys()):
        if name not in accounts or name not in log.budgets:
            where = "log" if name not in log.budgets else "table of data sets"
            found.append(f"Expected data set {name!r} in the {where}, it is missing.")
            continue
        if accounts[name].budget != log.budgets[name]:
            found.append(
                f"Expected the budget {log.budgets[name].description} as in the log, "
                f"got {accounts[name].budget.description}."
            )
        if accounts[name].spent != log.spent[name]:
            delta = log.budgets[name].delta
            found.append(
                f"Expected the running total of data set {name!r} to be "
                f"ε = {log.spent[name].epsilon(delta)[1]:.9g} as in the log, "
                f"got ε = {accounts[name].spent.epsilon(delta)[1]:.9g}."
            )
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
