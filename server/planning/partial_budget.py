"""Reduce a run with `run.partial` to the rounds that the data's budgets still cover."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from parley.privacy.ledger.account import Claims
from parley.privacy.ledger.block_composition import Blocks
from parley.privacy.ledger.budget import BudgetKey
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import BudgetExceeded

_log = logging.getLogger("parley.budgets")


def reduce_to_fit(
    ledger: Ledger, run_id: str, claims: Mapping[BudgetKey, Claims], blocks: Blocks
) -> Mapping[BudgetKey, Claims]:
    """Return as many of the last releases of every claim as fit each of the budgets."""
    while True:
        try:
            ledger.check_hold(run_id, claims, blocks)
        except BudgetExceeded as error:
            if not error.fitting:
                raise
            _log.warning(
                "The budget of %r covers %d of the rounds; the run ends after them.",
                error.budget.name,
                error.fitting,
            )
            claims = {
                key: (*own[:-1], (own[-1][0], min(own[-1][1], error.fitting)))
                for key, own in claims.items()
            }
        else:
            return claims
