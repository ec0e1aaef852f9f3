"""What can go wrong with a ledger, one class for each thing a caller may want to tell apart.

All are `LedgerError`s. No message ever holds a password: a ledger on a database server is named by
user, host and database only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.privacy.accounting.rounding import format_rounded_down, format_rounded_up
from parley.privacy.ledger.block_composition import OTHER_BLOCKS

if TYPE_CHECKING:
    from parley.privacy.ledger.account import BudgetAccount, Claims
    from parley.privacy.ledger.block_composition import Blocks


class LedgerError(Exception):
    """A ledger could not do what was asked; nothing was recorded unless the message says so."""


class NotALedger(LedgerError):
    """The place holds something else, nothing at all, or a ledger of another schema version."""


class LedgerUnavailable(LedgerError):
    """The place can't be reached, read or written: disk full, read only, locked, server gone."""


class LedgerConflict(LedgerError):
    """The request contradicts what is already recorded."""


class LedgerCorrupt(LedgerError):
    """What is recorded contradicts itself: it was damaged or edited."""


class BudgetExceeded(LedgerError):
    """The releases would overspend their data set's budget. They must not be made.

    Args:
        claims: the releases; the last of them are a run's rounds.
        blocks: that they read; none: all records.
        run_id: of a run that can't be brought to its end; "": one release was refused.

    Attributes:
        requested: the event that was refused; `count` of it, of which `fitting` would have fitted.
        spent: what was composed on the data set before it; this is unchanged.
        left: the budget less what is spent and what other runs hold, at the budget's δ.

    Of blocks both are those of the one that has least.
    """

    def __init__(
        self, account: BudgetAccount, claims: Claims, blocks: Blocks = (), *, run_id: str = ""
    ) -> None:
        budget = account.budget
        others = account.with_hold(run_id, ()) if run_id else account
        self.requested, self.count = claims[-1]
        count = self.count
        after = others.with_hold(run_id or "this run", claims, blocks)
        self.budget = budget
        self.spent = account.charged.find_largest(budget.compute_epsilon, blocks)
        self.left = budget.compute_remaining(others.compute_spent_or_held(blocks))
        self.fitting = others.count_fitting(claims, blocks, run_id=run_id)
        total = after.compute_spent_or_held(blocks)
        what = "this release" if count == 1 else f"{count} releases"
        if len(claims) > 1:
            what = f"what is released ahead of them and {what}"
        message = (
            f"Expected the releases on data set {budget.name!r} to stay within {budget.guarantee}, "
            f"got ε = {format_rounded_up(budget.compute_epsilon(total), 9)} with {what}: "
            f"ε = {format_rounded_up(budget.compute_epsilon(self.spent))} is spent, "
        )
        holders = ", ".join(f"{run!r} ({n} releases)" for run, n in others.held_counts.items())
        if holders:
            message += (
                f"more is held for the rounds to come of {holders} (what a run that is gone still "
                "holds is freed by `parley ledger free`), "
            )
        message += f"{format_rounded_down(self.left.epsilon)} left."
        if count > 1:
            message += f" {self.fitting} of the {count} would fit. Nothing was released."
        super().__init__(message + _format_remedy(others, claims, blocks))


def _format_remedy(others: BudgetAccount, claims: Claims, blocks: Blocks) -> str:
    """Which blocks have no room for the releases, and which have."""
    known = {*others.charged.blocks, *blocks}
    if not known:
        return ""
    room = {
        name: others.can_hold(claims, (name,), run_id="this run")
        for name in (*sorted(known), OTHER_BLOCKS)
    }
    full = ", ".join(repr(name) for name in room if name and not room[name]) or "none by itself"
    fits = ", ".join(repr(name) for name in room if name and room[name]) or "none of those named"
    others_fit = " and in every block that no job named yet" if room[OTHER_BLOCKS] else ""
    return f" By block: no room in {full}; room in {fits}{others_fit} (data.blocks names them)."
