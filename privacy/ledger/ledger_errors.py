"""Errors of a ledger, one class for each case that a caller may need to distinguish.

All are `LedgerError`s. No message ever contains a password: a ledger on a database server is named
only by user, host and database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.module_loading.plugin_table import load_attribute

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
        self.budget = budget
        self.spent = account.charged.find_largest(budget.compute_epsilon, blocks)
        self.left = budget.compute_remaining(others.compute_spent_or_held(blocks))
        self.fitting = others.count_fitting(claims, blocks, run_id=run_id)
        describe = load_attribute("parley.privacy.ledger.budget_excess:describe_excess")
        values = {"spent": self.spent, "left": self.left, "fitting": self.fitting}
        super().__init__(describe(others, claims, blocks, run_id=run_id or "this run", **values))
