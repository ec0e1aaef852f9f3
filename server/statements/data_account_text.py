"""Word what all runs spent of a data set's budget, and what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.privacy.accounting.account_admission import AccountCertificate
from parley.privacy.accounting.rounding import format_rounded_down
from parley.server.statements.number_format import format_epsilon

if TYPE_CHECKING:
    from parley.server.records.guarantee_facts import DataAccount
from parley.server.statements.guarantee_text import format_allowed, format_scope


def format_data_account(account: DataAccount) -> str:
    """Format what all runs spent of a data set's budget, what is left, and how many jobs fit."""
    held = f"; {account.held} future releases are reserved" if account.held else ""
    more = f"{account.jobs:,}{' or more' if account.jobs >= _MAX_JOBS else ''} more such job"
    return (
        f"{account.name!r} has spent ε = {format_epsilon(account.spent)} of "
        f"{format_allowed(account.epsilon, account.delta)} in "
        f"{account.releases} releases of all runs, {format_scope(account)}{held}; left ε = "
        f"{format_rounded_down(account.left)}: "
        f"{more}{'' if account.jobs == 1 else 's'} "
        f"fit{'s' if account.jobs == 1 else ''}{_format_blocks(account)}"
        f"{_format_budget_scope(account)}"
    )


def _format_budget_scope(account: DataAccount) -> str:
    """Return for which analysts the budget holds; empty if a run's record lacks it."""
    if not account.certificate:
        return ""
    return f"; the budget holds {AccountCertificate(account.certificate).description}"


def _format_blocks(account: DataAccount) -> str:
    """Format the remaining budget by block, and after one such job for the blocks that it reads."""
    said = [
        f"{format_block(each.name)} {format_rounded_down(each.left)}"
        + (
            f" ({format_rounded_down(each.after)} after one such job)"
            if each.after < each.left
            else ""
        )
        for each in account.blocks
    ]
    return f"; left by block: {', '.join(said)}" if said else ""


def format_block(name: str) -> str:
    """Format a block's name."""
    return repr(name) if name else "every other block"


_MAX_JOBS = 1000
