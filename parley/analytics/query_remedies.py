"""Settings with which a refused query can be released: printed only after they were planned.

Noise of another kind, or a smaller ε, is planned as the query would be, and compared with what is
left of the budget. What a message names works as typed, as long as nothing else is asked meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from parley.privacy.accounting.rounding import format_exact, format_rounded_down
from parley.privacy.ledger.account import BudgetAccount
from parley.privacy.ledger.ledger_errors import BudgetExceeded
from parley.server.planning.query_planner import PlannedBatch
from parley.server.planning.session_terms import QUERY_LAWS

_PARTS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
"""Parts of the requested ε, and of what is left, to try."""
_DIGITS = 2
_SHOWN = 5
"""Maximum number of batches of a file that advice lists."""


def find_query_advice(
    plan: Callable[..., PlannedBatch], account: BudgetAccount, *, epsilon: float, law: str
) -> str:
    """Return a sentence with an ε, and a law if need be, that fit what is left; empty if none do.

    Args:
        plan: plans the refused queries for `epsilon` and `law`.
        law: the requested one.
    """
    left = account.budget.compute_remaining(account.compute_spent_or_held(()))
    for tried in (law, *(other for other in QUERY_LAWS if other != law)):
        for smaller in _list_smaller(epsilon, left):
            if _fits(plan, account, epsilon=smaller, law=tried):
                kind = "" if tried == law else f"law = '{tried}' and "
                return f"It fits with {kind}epsilon = {format_exact(smaller)}."
    return ""


def find_batches_advice(
    plan: Callable[[Sequence[float]], Sequence[PlannedBatch]],
    check: Callable[[Sequence[PlannedBatch]], None],
    prices: Mapping[str, float],
) -> str:
    """Return a sentence with an ε for each batch of a file that fit together; empty if none do.

    Args:
        plan: Plans all batches for their values of ε.
        check: Raises if the budget does not cover these plans.
        prices: Name of each batch's first query → its requested ε.
    """
    for part in _PARTS[1:]:
        smaller = [float(format_rounded_down(part * price, _DIGITS)) for price in prices.values()]
        try:
            check(plan(smaller))
        except (ValueError, BudgetExceeded):  # ValueError: it cannot be planned
            continue
        shown = [
            f"{format_exact(price)} for {name!r}"
            for name, price in zip(prices, smaller, strict=True)
        ]
        left = len(shown) - _SHOWN
        more = f", and {left} more" if left > 0 else ""
        listed = ", ".join(shown[:_SHOWN]) + more
        return f"It fits with epsilon = {listed} ({part} of each, rounded down)."
    return ""


def _list_smaller(epsilon: float, left: float) -> Iterator[float]:
    """Yield values of ε to try, the largest first."""
    tried = {
        float(format_rounded_down(part * whole, _DIGITS))
        for whole in (epsilon, left)
        for part in _PARTS
        if 0 < part * whole <= epsilon
    }
    yield from sorted((value for value in tried if value > 0), reverse=True)


def _fits(
    plan: Callable[..., PlannedBatch], account: BudgetAccount, *, epsilon: float, law: str
) -> bool:
    try:
        planned = plan(epsilon=epsilon, law=law)
    except ValueError:  # includes QueryError, CalibrationError and RingTooSmall
        return False
    return account.can_hold(((planned.event, 1),), run_id="a query that is tried")
