"""What the owner of data says, and is told.

Says: that a budget is larger from now on; yes or no to what was proposed
(`parley.privacy.ledger.approvals`). Is told: which data sets have records in common, and how many
records changed their block. No ε rests on it: what was spent is what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from parley.privacy.ledger.account import Account
from parley.privacy.ledger.approvals import Decision, decided, latest
from parley.privacy.ledger.budget import BudgetKey, DatasetBudget
from parley.privacy.ledger.hash_chain import RecordKind, now
from parley.privacy.ledger.ledger_errors import LedgerConflict
from parley.privacy.ledger.registration import charged_blocks, found
from parley.privacy.ledger.row_digests import Piece, common, moved, row_key

if TYPE_CHECKING:
    from parley.privacy.ledger.table_access import Writer

_SAME = timedelta(hours=1)


def raise_budget(
    writer: Writer,
    key: BudgetKey,
    *,
    reason: str,
    epsilon: float | None = None,
    delta: float | None = None,
) -> DatasetBudget:
    """Raises a data set's budget on purpose; the chain says when, to what and why.

    What was promised under the old budget no longer holds of releases to come.

    Raises:
        LedgerConflict: no such budget, none of both grows or one shrinks, or no reason.
    """
    if not reason.strip() or not reason.isprintable():
        raise LedgerConflict(f"Expected a reason in one line for a raised budget, got {reason!r}.")
    account = found(key, writer.stored)
    budget = account.budget
    try:
        after = account.raised(
            epsilon=budget.epsilon if epsilon is None else epsilon,
            delta=budget.delta if delta is None else delta,
        )
    except ValueError as error:
        raise LedgerConflict(str(error)) from error
    terms = {"epsilon": after.budget.epsilon, "delta": after.budget.delta}
    body = {"at": now(), "reason": reason, **terms}
    writer.append(RecordKind.RAISE, key, body)
    return after.budget


def decide(
    writer: Writer,
    key: BudgetKey,
    *,
    run_id: str,
    proposals: Sequence[str],
    accepted: bool,
    reason: str = "",
) -> Decision:
    """Write down what an owner decided; the same again within an hour is not written twice.

    Later it is: a yes that ran out is then given anew.

    Raises:
        LedgerConflict: no such budget; a reason of several lines.
    """
    found(key, writer.stored)
    try:
        made = Decision(
            dataset=key.dataset,
            unit=key.unit,
            run_id=run_id,
            proposals=tuple(sorted(proposals)),
            accepted=accepted,
            reason=reason,
            at=now(),
        )
    except ValueError as error:
        raise LedgerConflict(str(error)) from error
    standing = latest(decided(writer.records_of(run_id)))
    before = [standing[each] for each in made.proposals if each in standing]
    if len(before) == len(made.proposals) and all(_repeats(made, each) for each in before):
        return before[0]
    writer.append(RecordKind.DECIDE, key, made.body(), run_id=run_id)
    return made


def _repeats(made: Decision, standing: Decision) -> bool:
    apart = datetime.fromisoformat(made.at) - datetime.fromisoformat(standing.at)
    return made.accepted is standing.accepted and abs(apart) < _SAME


def sharing(
    accounts: Mapping[BudgetKey, Account],
    stored: Callable[[str], Iterable[Piece]],
    key_path: Path,
    rows: NDArray[np.uint64],
) -> dict[str, int]:
    """How many of `[N, 3]` rows every data set of a ledger has had, by name; none of none.

    Raises:
        LedgerConflict: the key of its rows is gone, or another.
    """
    known = {key.dataset: own.rows for key, own in sorted(accounts.items()) if own.rows}
    if not known:
        return {}
    digests = row_key(key_path, known.values()).of(rows)
    return {name: n for name in known if (n := int(common(stored(name), digests).sum()))}


def moved_in(
    accounts: Mapping[BudgetKey, Account],
    stored: Callable[[str], Iterable[Piece]],
    key_path: Path,
    name: str,
    rows: NDArray[np.uint64],
) -> int:
    """How many of `[N, 3]` rows a data set charged in another block than they are in now."""
    known = [own for key, own in accounts.items() if key.dataset == name]
    blocks, told = charged_blocks(known), [own.rows for own in known if own.rows]
    if not blocks or not told:
        return 0
    key = row_key(key_path, told)
    return moved(stored(name), key.by_block(rows), blocks)
