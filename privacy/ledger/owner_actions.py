"""Actions of a data set's owner, and what the ledger shows the owner.

The owner can raise a budget, and approve or refuse proposals (`parley.privacy.ledger.approvals`).
The ledger shows the owner which data sets have records in common, and how many records changed
their block. No ε depends on these: they do not change what was spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from parley.privacy.ledger.approvals import OwnerDecision, list_decisions, map_latest_decisions
from parley.privacy.ledger.budget import BudgetKey, DatasetBudget
from parley.privacy.ledger.hash_chain import RecordKind, format_now
from parley.privacy.ledger.ledger_errors import LedgerConflict
from parley.privacy.ledger.record_digests import count_moved, find_known, load_row_key
from parley.privacy.ledger.registration import get_account
from parley.privacy.ledger.row_registration import list_charged_blocks
from parley.safe_io.error_translation import translate_errors

if TYPE_CHECKING:
    from parley.privacy.ledger.table_access import LedgerReader, LedgerWriter

_REPEAT_WINDOW = timedelta(hours=1)


def raise_budget(
    writer: LedgerWriter,
    key: BudgetKey,
    *,
    reason: str,
    epsilon: float | None = None,
    delta: float | None = None,
) -> DatasetBudget:
    """Raise a data set's budget deliberately; the chain records when, to what and why.

    What was promised under the old budget no longer holds for later releases.

    Raises:
        LedgerConflict: there is no such budget, neither value grows or one shrinks, or there is no
            reason.
    """
    if not reason.strip() or not reason.isprintable():
        raise LedgerConflict(f"Expected a reason in one line for a raised budget, got {reason!r}.")
    account = get_account(key, writer.accounts)
    budget = account.budget
    with translate_errors(ValueError, LedgerConflict):
        after = account.with_raised_budget(
            epsilon=budget.epsilon if epsilon is None else epsilon,
            delta=budget.delta if delta is None else delta,
        )
    terms = {"epsilon": after.budget.epsilon, "delta": after.budget.delta}
    body = {"at": format_now(), "reason": reason, **terms}
    writer.append(RecordKind.RAISE, key, body)
    return after.budget


def decide(
    writer: LedgerWriter,
    key: BudgetKey,
    *,
    run_id: str,
    proposals: Sequence[str],
    accepted: bool,
    reason: str = "",
) -> OwnerDecision:
    """Record an owner's decision; a repetition within an hour is not recorded again.

    Later it is, so that an expired approval can be renewed.

    Raises:
        LedgerConflict: there is no such budget, or the reason has several lines.
    """
    get_account(key, writer.accounts)
    with translate_errors(ValueError, LedgerConflict):
        made = OwnerDecision(
            dataset=key.dataset,
            unit=key.unit,
            run_id=run_id,
            proposals=tuple(sorted(proposals)),
            accepted=accepted,
            reason=reason,
            at=format_now(),
        )
    standing = map_latest_decisions(list_decisions(writer.iterate_decisions(run_id)))
    before = [standing[each] for each in made.proposals if each in standing]
    if len(before) == len(made.proposals) and all(_is_repeat(made, each) for each in before):
        return before[0]
    writer.append(RecordKind.DECIDE, key, made.to_body(), run_id=run_id)
    return made


def _is_repeat(decision: OwnerDecision, earlier: OwnerDecision) -> bool:
    apart = datetime.fromisoformat(decision.at) - datetime.fromisoformat(earlier.at)
    return decision.accepted is earlier.accepted and abs(apart) < _REPEAT_WINDOW


def count_shared_rows(
    reader: LedgerReader, key_path: Path, rows: NDArray[np.uint64]
) -> dict[str, int]:
    """Return how many of `[N, 3]` rows each data set of a ledger has had, by name; omit zeros.

    Raises:
        LedgerConflict: the key of its rows is missing or another.
    """
    known = {key.dataset: own.rows for key, own in reader.load_accounts().items() if own.rows}
    if not known:
        return {}
    digests = load_row_key(key_path, known.values()).digest_rows(rows)
    counts = {name: find_known(reader.iterate_pieces(name), digests).sum() for name in known}
    return {name: int(count) for name, count in counts.items() if count}


def count_moved_rows(
    reader: LedgerReader, key_path: Path, name: str, rows: NDArray[np.uint64]
) -> int:
    """Return how many of `[N, 3]` rows a data set charged in another block than the current one."""
    known = [own for key, own in reader.load_accounts().items() if key.dataset == name]
    blocks, told = list_charged_blocks(known), [own.rows for own in known if own.rows]
    if not blocks or not told:
        return 0
    key = load_row_key(key_path, told)
    return count_moved(reader.iterate_pieces(name), key.digest_by_block(rows), blocks)
