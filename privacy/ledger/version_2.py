"""What ledgers of version 2 called their budgets, and how those are named today.

Versions 1 and 2 knew a budget by one name. Where data had a budget for each unit, name and
fingerprints of the second, the parties', were those of the first with " (party)" behind them.
Version 3 knows a budget by data and unit. The records that are there stay as they are, so that the
hash chain stays whole; each account notes what they call it (`Account.formerly`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from parley.privacy.accounting.guarantee import Unit
from parley.privacy.ledger.account import Account, digest
from parley.privacy.ledger.budget import BudgetKey

__all__ = ["digest_of_version_2", "renamed"]

_SECOND = " (party)"


def digest_of_version_2(rows: Iterable[Mapping[str, str]]) -> str:
    """The digest of all accounts, as records of version 2 hold it."""
    columns = ("name", "fingerprint", "budget", "spent", "held", "known")
    return digest(rows, columns=columns)


def renamed(accounts: Mapping[str, Account]) -> dict[BudgetKey, Account]:
    """Today's accounts for those of version 2.

    Args:
        accounts: by the names that version 2 gave them.

    Raises:
        ValueError: a second budget without the first, or that knows other data than the first.
    """
    found = {}
    for name, account in accounts.items():
        budget = account.budget
        if budget.unit is not Unit.PARTY or not budget.fingerprint.endswith(_SECOND):
            found[account.key] = replace(account, formerly=name)
            continue
        first = accounts.get(name.removesuffix(_SECOND))
        if (
            first is None
            or first is account
            or first.budget.unit is not Unit.RECORD
            or budget.fingerprint != first.budget.fingerprint + _SECOND
            or not all(each.endswith(_SECOND) for each in account.known)
        ):
            raise ValueError(
                f"Expected budget {name!r} ({budget.fingerprint}) of unit party to stand beside "
                f"one of unit record of the same data, got {_shown(first)}. The ledger can't be "
                "brought to version 3."
            )
        same = replace(budget, name=first.budget.name, fingerprint=first.budget.fingerprint)
        second = replace(account, budget=same, formerly=name, known=())
        known = (each.removesuffix(_SECOND) for each in account.known)
        found[second.key] = second.recognising((*first.known, *known))
    return found


def _shown(account: Account | None) -> str:
    return "none" if account is None else account.budget.description
