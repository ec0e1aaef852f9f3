"""Describe why releases would exceed a budget, for the message of `BudgetExceeded`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.privacy.accounting.rounding import format_rounded_down, format_rounded_up
from parley.privacy.ledger.block_composition import OTHER_BLOCKS

if TYPE_CHECKING:
    from parley.privacy.accounting.composition import Composition
    from parley.privacy.ledger.account import BudgetAccount, Claims
    from parley.privacy.ledger.block_composition import Blocks


def describe_excess(
    others: BudgetAccount,
    claims: Claims,
    blocks: Blocks,
    *,
    run_id: str,
    spent: Composition,
    left: float,
    fitting: int,
) -> str:
    """Return what the releases would cost, what is left, and which blocks have room.

    Args:
        others: the account without what the run itself holds.
        spent, left, fitting: as the attributes of `BudgetExceeded`.
    """
    budget, count = others.budget, claims[-1][1]
    total = others.with_hold(run_id, claims, blocks).compute_spent_or_held(blocks)
    what = "this release" if count == 1 else f"{count} releases"
    if len(claims) > 1 and count == 1:
        what = f"these {sum(each for _, each in claims)} releases"
    elif len(claims) > 1:
        what = f"the releases before the rounds and {what}"
    message = (
        f"Expected the releases on data set {budget.name!r} to stay within {budget.guarantee}, "
        f"got ε = {format_rounded_up(budget.compute_epsilon(total), 9)} with {what}: "
        f"ε = {format_rounded_up(budget.compute_epsilon(spent))} is spent, "
    )
    holders = ", ".join(f"{run!r} ({n} releases)" for run, n in others.held_counts.items())
    if holders:
        message += (
            f"more is held for the next rounds of {holders} (`parley ledger free LEDGER "
            "RUN` frees what an abandoned run holds), "
        )
    message += f"{format_rounded_down(left)} left."
    if count > 1:
        message += f" {fitting} of the {count} would fit. Nothing was released."
    return message + _format_remedy(others, claims, blocks)


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
