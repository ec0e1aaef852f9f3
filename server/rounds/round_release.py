"""Make one release: charge it, sum it, retry if too few parties survive, and only then show it.

The guarantee depends on this order. A release is reserved in the ledger before any party computes.
It is committed in one transaction with its result, and shown only once that is on disk. If it has
two guarantees, for a record and for a party, both budgets are charged in that same transaction: no
kill leaves only one of them charged. Rounds (`parley.server.rounds.round_loop`) and batches of
queries (`parley.server.rounds.query_session`) are releases alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parley.client.contract.model_state_encoding import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.own_code.own_code_errors import OwnCodeError
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.ledger.ledger_errors import BudgetExceeded, LedgerCorrupt
from parley.privacy.ledger.recorded_entries import EntryState
from parley.privacy.ledger.release_permit import ReleasePermit
from parley.secure_agg.interface import TooFewSurvivors
from parley.server.records.run_folder import RunFolder
from parley.server.rounds.cohort import Cohort, RoundSum

MAX_ATTEMPTS = 3
"""Maximum number of attempts at a sum if too few parties survive it."""

Update = Callable[[State, ReleasePlan, RoundSum], State]
"""The state, and a sum with its plan → the next state, with the noise that the server adds."""


class NotApproved(TooFewSurvivors):
    """Too few parties take part, and some owners did not approve."""


def reserve_release(ledger: Ledger, entries: Sequence[LedgerEntry]) -> tuple[ReleasePermit, ...]:
    """Charge a release before any request to a party.

    Raises:
        BudgetExceeded: it does not fit what is left; nothing was charged.
        LedgerCorrupt: it was already made. Its charge paid for one release, and the result is gone.
    """
    held = ledger.reserve(entries)
    made = next((each.entry for each in held if each.state is EntryState.COMMITTED), None)
    if made is not None:
        raise LedgerCorrupt(
            f"Expected the checkpoint of release {made.index} of run {made.run_id!r}, which the "
            "ledger committed, got none: it was removed. The run cannot resume without making "
            "the same release again."
        )
    return held


def run_release(
    plan: ReleasePlan,
    state: State,
    update: Update,
    *,
    cohort: Cohort,
    ledger: Ledger,
    reservations: Sequence[ReleasePermit],
    folder: RunFolder | None = None,
) -> tuple[State, RoundSum]:
    """Return the state after one release, of one secure sum or several.

    Args:
        folder: stores the state between two sums, for real parties, which answer each sum once;
            None if a release is repeated from its first sum.

    Raises:
        TooFewSurvivors: its charge is voided, unless earlier sums of it were unmasked.
        OwnCodeError: your own algorithm failed in a simulation; its charge is treated likewise.
        PartyFailed: a party has nothing it may release; the charge stays.
    """
    sums = list[RoundSum]()
    opened, number = 0, plan.round_number
    if folder is not None and plan.steps > 1:
        opened, kept = folder.load_step(number)
        state = kept or state
    try:
        for step in range(opened + 1, plan.steps + 1):
            at = plan.with_step(step)
            sums.append(_sum_with_retries(cohort, at, state))
            opened = step
            state = update(state, at, sums[-1])
            if folder is not None and step < plan.steps:
                folder.save_step(number, step, state)
    except (TooFewSurvivors, OwnCodeError) as error:
        if not opened:
            ledger.void([each.id for each in reservations], str(error))
        raise
    return state, RoundSum.combine(sums)


def _sum_with_retries(cohort: Cohort, plan: ReleasePlan, state: State) -> RoundSum:
    """Return a sum; retry if too few parties survive."""
    for attempt in range(MAX_ATTEMPTS):
        try:
            return cohort.aggregate(plan, state, attempt=attempt)
        except TooFewSurvivors as error:
            if attempt == MAX_ATTEMPTS - 1 or isinstance(error, NotApproved):
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def commit_release(
    ledger: Ledger,
    reservations: Sequence[ReleasePermit],
    *,
    outcome: Mapping[str, Any],
    checkpoint: bytes,
    following: Sequence[LedgerEntry] = (),
) -> tuple[tuple[ReleasePermit, ...], BudgetExceeded | None]:
    """Commit a release with its result, and reserve the `following` one, in one transaction.

    Returns:
        What is reserved, and the error if the next release is not; the commit stands.
    """
    ids = [each.id for each in reservations]
    try:
        return ledger.commit_and_reserve(
            ids, outcome=outcome, checkpoint=checkpoint, entries=following
        ), None
    except BudgetExceeded as error:
        return (), error
