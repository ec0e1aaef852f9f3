"""What a party charges itself: every release in its own ledger, before it computes anything.

A round is charged once, whatever the server does. The commit says which release the answer was for
(a digest of plan and model): the same round is answered again only for the same release, and a
computation that failed stays charged and stays failed, because that it failed was seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from parley.client.contract.plan import ReleasePlan
from parley.client.contract.protocol import Reason
from parley.client.party.consent import DataSet, Declined
from parley.client.party.dataset import Holding
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.rounding import as_written, shown_up
from parley.privacy.ledger.budget import BUDGET_TOLERANCE
from parley.privacy.ledger.ledger import (
    BudgetExceeded,
    EntryState,
    Ledger,
    LedgerConflict,
    RecordedEntry,
)

__all__ = ["Charge", "check_job", "check_ledger", "check_room", "register", "reserve", "settle"]
__all__ += ["spent_ahead", "void"]


@dataclass(frozen=True, kw_only=True)
class Charge:
    """A round's charge.

    Attributes:
        reservations: ids in the ledger: one, or one of each guarantee.
        answered: None where the round was not answered yet, else whether it gave a contribution.
    """

    reservations: tuple[int, ...]
    answered: bool | None


@contextmanager
def _opened(path: Path) -> Iterator[Ledger]:
    with Ledger.open(path) as ledger:
        path.chmod(0o600)
        yield ledger


def register(path: Path, dataset: DataSet, *, name: str, holding: Holding) -> None:
    """Fixes the data set's budget in the ledger, or finds it fixed to the same.

    Raises:
        Declined: data-unreadable, where its records, or its budget, changed since its first use;
            or they are those of another data set, saved in another way.
    """
    with _opened(path) as ledger:
        try:
            own = dataset.budgets(name, holding.fingerprint, holding.contents)
            known = ledger.register(*own)[0].name
        except LedgerConflict as error:
            raise Declined(Reason.DATA_UNREADABLE, str(error)) from error
    if known != name:
        raise Declined(
            Reason.DATA_UNREADABLE,
            f"Expected other records in data set {name!r} than in {known!r}, got the same, saved "
            f"in another way: they have one budget. Serve them as {known!r} alone.",
        )


def check_ledger(path: Path) -> None:
    """Verifies the ledger, once a run.

    Raises:
        LedgerCorrupt: it was edited.
    """
    with _opened(path) as ledger:
        ledger.check()


def check_job(dataset: DataSet, plan: ReleasePlan, *, releases: int, spent: Composition) -> None:
    """Refuses a job that would spend more than one job may.

    Raises:
        Declined: budget-exhausted.
    """
    _, epsilon = spent.add(plan.event(plan.primary.unit), count=releases).epsilon(dataset.delta)
    if not epsilon <= dataset.job_epsilon * (1 + BUDGET_TOLERANCE):
        raise Declined(
            Reason.BUDGET_EXHAUSTED,
            f"Expected at most ε = {as_written(dataset.job_epsilon)} of one job, got "
            f"{shown_up(epsilon)}.",
        )


def check_room(path: Path, plan: ReleasePlan, *, name: str, party: str, rounds: int) -> None:
    """Refuses a job that the budget can't bear to its end, before its first round.

    Nothing is set aside: a server that never comes back would hold it. So of two jobs at once the
    later one may still find the budget spent by the other, in a round.

    Args:
        path: the ledger.
        plan: of the first release that is asked for.
        name: the data set's.
        party: the party's own.
        rounds: how many releases are asked for.

    Raises:
        Declined: budget-exhausted.
    """
    try:
        entries = plan.entries(name, party=party)
    except ValueError as error:
        raise Declined(Reason.PROTOCOL, str(error)) from error
    with _opened(path) as ledger:
        charged = {(r.entry.dataset, r.entry.index) for r in _charged(ledger, plan.run_id)}
        ahead = range(plan.round_number, plan.round_number + rounds)
        claims = {
            entry.dataset: (
                (entry.event, sum((entry.dataset, index) not in charged for index in ahead)),
            )
            for entry in entries
        }
        try:
            ledger.check_room(plan.run_id, claims)
        except BudgetExceeded as error:
            raise Declined(Reason.BUDGET_EXHAUSTED, str(error)) from error
        except LedgerConflict as error:
            raise Declined(Reason.DATA_UNREADABLE, str(error)) from error


def spent_ahead(path: Path, *, run_id: str, name: str) -> Composition:
    """What a run's release ahead of its rounds was charged, that of components; often nothing."""
    spent = Composition.empty()
    if not path.exists():
        return spent
    with _opened(path) as ledger:
        for recorded in _of_run(ledger, run_id, name):
            if recorded.entry.index == 0:
                spent = spent.add(recorded.entry.event)
    return spent


def _of_run(ledger: Ledger, run_id: str, name: str) -> list[RecordedEntry]:
    return [each for each in _charged(ledger, run_id) if each.entry.dataset == name]


def _charged(ledger: Ledger, run_id: str) -> list[RecordedEntry]:
    return [each for each in ledger.entries(run_id) if each.state is not EntryState.VOIDED]


def reserve(
    path: Path,
    dataset: DataSet,
    plan: ReleasePlan,
    *,
    name: str,
    party: str,
    release: bytes,
) -> Charge:
    """Charges a round, in both its guarantees where it has two, or finds it charged.

    Args:
        path: the ledger.
        dataset: whose budget.
        plan: of the round.
        name: the data set's.
        party: the party's own.
        release: 32 bytes, the digest of plan and model.

    Raises:
        Declined: plan-changed, where this round was charged or answered for another release;
            budget-exhausted.
    """
    try:
        entries = plan.entries(name, party=party)
    except ValueError as error:
        raise Declined(Reason.PROTOCOL, str(error)) from error
    with _opened(path) as ledger:
        known = _of_run(ledger, plan.run_id, name)
        before = [r for r in known if r.entry.index == plan.round_number]
        if not before:
            spent = Composition.empty()
            for recorded in known:
                spent = spent.add(recorded.entry.event)
            check_job(dataset, plan, releases=1, spent=spent)
        try:
            reserved = ledger.reserve_together(entries)
        except BudgetExceeded as error:
            raise Declined(Reason.BUDGET_EXHAUSTED, str(error)) from error
        except LedgerConflict as error:
            raise Declined(Reason.PLAN_CHANGED, str(error)) from error
    return Charge(
        reservations=tuple(each.id for each in reserved),
        answered=_answered(before[0], release) if before else None,
    )


def _answered(recorded: RecordedEntry, release: bytes) -> bool | None:
    if recorded.outcome is None:
        return None
    if recorded.outcome.get("release") != release.hex():
        raise Declined(
            Reason.PLAN_CHANGED,
            f"Expected round {recorded.entry.index} of run {recorded.entry.run_id!r} to start "
            "from the model it was answered for, got another.",
        )
    return recorded.outcome.get("answered") is True


def settle(path: Path, charge: Charge, *, answered: bool, release: bytes) -> None:
    """Commits a charge, with what it was for."""
    outcome = {"answered": answered, "release": release.hex()}
    with _opened(path) as ledger:
        ledger.commit_together(charge.reservations, outcome=outcome)


def void(path: Path, charge: Charge, reason: str) -> None:
    """Gives a charge back; only where nothing was computed and so nothing can have been sent."""
    with _opened(path) as ledger:
        ledger.void_together(charge.reservations, reason)
