"""Errors of a ledger, one class for each case that a caller may need to distinguish.

All are `LedgerError`s. No message ever contains a password: a ledger on a database server is named
only by user, host and database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.privacy.accounting.rounding import format_rounded_down, format_rounded_up
from parley.privacy.ledger.block_composition import OTHER_BLOCKS

if TYPE_CHECKING:
    from parley.privacy.ledger.account import BudgetAccount, Claims
    from parley.privacy.ledger.block_composition import Blocks


class LedgerError(Exception):
    """A ledger could not do what was requested; nothing was recorded unless the message says so."""


class NotALedger(LedgerError):
    """There is something else, nothing at all, or a ledger of another schema version."""


class LedgerUnavailable(LedgerError):
    """The database can't be reached, read or written: disk full, read only, locked, server gone."""


class LedgerConflict(LedgerError):
    """The request contradicts existing records."""


class LedgerCorrupt(LedgerError):
    """The records contradict each other: they were damaged or edited."""


class BudgetExceeded(LedgerError):
    """The releases would exceed their data set's budget. They must not be made.

    Args:
        claims: the releases; the last of them are a run's rounds.
        blocks: the blocks that they read; empty: all records.
        run_id: the run that cannot be completed; "": a single release was refused.

    Attributes:
        requested: the refused event, `count` times, of which `fitting` would have fitted.
        spent: the data set's composition before the request, which is unchanged.
        left: ε minus what is spent and what other runs hold, at the budget's δ.

    With blocks, `spent` and `left` are those of the block with the least left.
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
        if len(claims) > 1 and count == 1:
            what = f"these {sum(each for _, each in claims)} releases"
        elif len(claims) > 1:
            what = f"the releases before the rounds and {what}"
        message = (
            f"Expected the releases on data set {budget.name!r} to stay within {budget.guarantee}, "
            f"got ε = {format_rounded_up(budget.compute_epsilon(total), 9)} with {what}: "
            f"ε = {format_rounded_up(budget.compute_epsilon(self.spent))} is spent, "
        )
        holders = ", ".join(f"{run!r} ({n} releases)" for run, n in others.held_counts.items())
        if holders:
            message += (
                f"more is held for the next rounds of {holders} (`parley ledger free LEDGER "
                "RUN` frees what an abandoned run holds), "
            )
        message += f"{format_rounded_down(self.left)} left."
        if count > 1:
            message += f" {self.fitting} of the {count} would fit. Nothing was released."
        super().__init__(message + _format_remedy(others, claims, blocks))


def _format_remedy(others: BudgetAccount, claims: Claims, blocks: Blocks) -> str:
    """Return which blocks have no room for the releases, and which have."""
    known = {*others.charged.blocks, *blocks}
    if not known:
        return ""
    room = {
        name: others.can_hold(claims, (name,), run_id="this run")
        for name in (*sorted(known), OTHER_BLOCKS)
    }
    full = ", ".join(repr(name) for name in room if name and not room[name]) or "no single block"
    fits = ", ".join(repr(name) for name in room if name and room[name]) or "no named block"
    others_fit = " and in every block that no job has named yet" if room[OTHER_BLOCKS] else ""
    return f" By block: no room in {full}; room in {fits}{others_fit} (data.blocks selects them)."
