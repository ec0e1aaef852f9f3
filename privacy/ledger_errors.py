"""What can go wrong with a ledger, one class for each thing a caller may want to tell apart.

All are `LedgerError`s; their names say the state of things, as `StopIteration` does. No message
ever holds a password: a ledger on a database server is named by
user, host and database only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from privacy.events import Composition, Event
    from privacy.ledger_budget import DatasetBudget, Remaining

__all__ = [
    "BudgetExceeded",
    "LedgerConflict",
    "LedgerCorrupt",
    "LedgerError",
    "LedgerUnavailable",
    "NotALedger",
]


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
    """The release would overspend its data set's budget. It must not be made.

    Attributes:
        requested: the event that was refused.
        spent: what was composed on the data set before it; this is unchanged.
        left: the budget less `spent`, at the budget's δ.
        budget: the data set's budget, with unit and neighbouring relation.
    """

    def __init__(
        self, *, requested: Event, spent: Composition, left: Remaining, budget: DatasetBudget
    ) -> None:
        self.requested = requested
        self.spent = spent
        self.left = left
        self.budget = budget
        _, would_be = spent.add(requested).epsilon(budget.delta)
        _, now = spent.epsilon(budget.delta)
        super().__init__(
            f"Expected the releases on data set {budget.name!r} to stay within {budget.guarantee}, "
            f"got ε = {would_be:.9g} with this {requested.law} release: "
            f"ε = {now:.6g} is spent, {left.epsilon:.6g} left."
        )
