"""Checks before a party admits a run: the limits of one job, and the remaining budgets.

These checks only refuse and charge nothing, so no ε rests on them.
`parley.client.party.release_charge` charges a round, whatever was found here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from parley.client.contract.refusals import Declined, Reason, decline_errors
from parley.client.contract.release_plan import ReleasePlan
from parley.client.party.accepted_run import AcceptedRun
from parley.client.party.dataset_config import DatasetConfig
from parley.client.party.release_charge import build_entries, list_round_charges, register_dataset
from parley.privacy.accounting.account_admission import BUDGET_TOLERANCE
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import PrivacyEvent
from parley.privacy.accounting.rounding import format_exact, format_rounded_up
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import BudgetExceeded, LedgerConflict
from parley.privacy.ledger.recorded_entries import EntryState, RecordedEntry


def check_budget(ledger: Ledger, dataset: DatasetConfig, accepted: AcceptedRun, party: str) -> None:
    """Check that the owner's limits and the remaining budget cover the whole run.

    The data set is registered in the party's ledger.

    Raises:
        Declined: budget-exhausted, or data-unreadable.
    """
    agreement, plan = accepted.agreement, accepted.agreement.plan
    account = dataset.account or agreement.dataset
    spent = compose_earlier_charges(ledger, plan, account=account)
    check_job(dataset, plan, releases=agreement.rounds, spent=spent)
    register_dataset(ledger, dataset, account=account, data=accepted.data, plan=plan)
    rounds = agreement.rounds
    check_remaining_budget(ledger, dataset, plan, account, party, rounds)


def check_job(
    dataset: DatasetConfig, plan: ReleasePlan, *, releases: int, spent: Mapping[Unit, Composition]
) -> None:
    """Check that a job spends no more than one job may, for every unit.

    Raises:
        Declined: budget-exhausted.
    """
    for unit, total in dataset.totals.items():
        earlier = spent.get(unit, Composition())
        charged = earlier.add(plan.compute_event(unit), count=releases)
        _, epsilon = charged.compute_lowest_epsilon(total.delta)
        if not epsilon <= total.epsilon_per_job * (1 + BUDGET_TOLERANCE):
            expected = f"at most ε = {format_exact(total.epsilon_per_job)} of one job (unit {unit})"
            got = format_rounded_up(epsilon)
            raise Declined(Reason.BUDGET_EXHAUSTED, f"Expected {expected}, got {got}.")


def check_remaining_budget(
    ledger: Ledger, dataset: DatasetConfig, plan: ReleasePlan, account: str, party: str, rounds: int
) -> None:
    """Check before a job's first round that the budget covers the job to its end.

    The job is also refused if a record would be in more releases than the owner allows, however
    little each costs. No budget is set aside, because a server that never returns would hold it for
    ever. If two jobs run at once, the later one may therefore find in some round that the other has
    spent the budget.

    Raises:
        Declined: budget-exhausted.
    """
    entries = build_entries(plan, account, party)
    unpaid = count_unpaid_releases(ledger, plan, account=account, rounds=rounds)
    claims = {entry.key: ((entry.event, unpaid),) for entry in entries}
    # A conflict: the account is planned for another run, so nothing is left for this one.
    with decline_errors(Reason.BUDGET_EXHAUSTED, (BudgetExceeded, LedgerConflict)):
        ledger.check_hold(plan.run_id, claims, plan.blocks)
    accounts = [each for each in ledger.list_accounts() if each.key in claims]
    spent = [each.charged.get_compositions(()) for each in accounts]
    releases_made = max(block.releases for blocks in spent for block in blocks.values())
    if releases_made + unpaid > dataset.most_releases:
        raise Declined(
            Reason.BUDGET_EXHAUSTED,
            f"Expected at most {dataset.most_releases} releases of data set {account!r} "
            f"(most-releases), got {releases_made} before this job's {unpaid}.",
        )


def check_round(ledger: Ledger, dataset: DatasetConfig, plan: ReleasePlan, *, account: str) -> None:
    """Check a round that its run was not charged for yet: it must fit into the limits of one job.

    Raises:
        Declined: budget-exhausted.
    """
    if not list_round_charges(ledger, plan, account):
        spent = _compose_charges(ledger.count_charges(plan.run_id, account))
        check_job(dataset, plan, releases=1, spent=spent)


def count_unpaid_releases(ledger: Ledger, plan: ReleasePlan, *, account: str, rounds: int) -> int:
    """Return the number of a plan's releases that are not charged yet.

    Each release is charged to all of the data's budgets.
    """
    paid = {recorded.entry.index for recorded in _iterate_charges(ledger, plan.run_id, account)}
    return len(set(range(plan.round_number, plan.round_number + rounds)) - paid)


def compose_earlier_charges(
    ledger: Ledger, plan: ReleasePlan, *, account: str
) -> dict[Unit, Composition]:
    """Return a run's charges for the releases before those of a plan; often empty."""
    counts: dict[Unit, Counter[PrivacyEvent]] = {}
    for recorded in _iterate_charges(ledger, plan.run_id, account):
        if recorded.entry.index < plan.round_number:
            counts.setdefault(recorded.entry.key.unit, Counter())[recorded.entry.event] += 1
    return _compose_charges(counts)


def _iterate_charges(ledger: Ledger, run_id: str, account: str) -> Iterator[RecordedEntry]:
    """Yield all of a run's charges on a data set. In a round, use their counts."""
    for recorded in ledger.iterate_entries(run_id):
        if recorded.entry.dataset == account and recorded.state is not EntryState.VOIDED:
            yield recorded


def _compose_charges(counts: Mapping[Unit, Mapping[PrivacyEvent, int]]) -> dict[Unit, Composition]:
    spent: dict[Unit, Composition] = {}
    for unit, events in counts.items():
        for event, count in events.items():
            spent[unit] = spent.get(unit, Composition()).add(event, count=count)
    return spent
