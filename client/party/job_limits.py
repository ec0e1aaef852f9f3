"""Before a party takes a run in: what one job may spend, and what is left of the budgets.

All of it refuses, and charges nothing: no ε rests on it. A round is charged by
`parley.client.party.release_charge`, whatever was found here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from parley.client.contract.party_protocol import Declined, Reason
from parley.client.contract.release_plan import ReleasePlan
from parley.client.party.accepted_run import Accepted
from parley.client.party.dataset_config import DataSet
from parley.client.party.release_charge import charged, entries_of, register
from parley.privacy.accounting.account_certificates import BUDGET_TOLERANCE
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.rounding import as_written, shown_up
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import BudgetExceeded, LedgerConflict
from parley.privacy.ledger.recorded_entries import RecordedEntry


def check_budget(ledger: Ledger, dataset: DataSet, accepted: Accepted, *, party: str) -> None:
    """Whether the owner's limits and what is left of the budget hold the whole run.

    The data set is registered in the party's ledger.
    """
    agreed, plan = accepted.agreement, accepted.agreement.plan
    name = dataset.account or agreed.dataset
    spent = spent_before(ledger, plan, name=name)
    check_job(dataset, plan, releases=agreed.rounds, spent=spent)
    register(ledger, dataset, name=name, holding=accepted.holding, plan=plan)
    check_room(ledger, dataset, plan, name=name, party=party, rounds=agreed.rounds)


def check_job(
    dataset: DataSet, plan: ReleasePlan, *, releases: int, spent: Mapping[Unit, Composition]
) -> None:
    """Refuses a job that would spend more than one job may, for any unit."""
    for unit, total in dataset.totals.items():
        before = spent.get(unit, Composition.empty())
        _, epsilon = before.add(plan.event(unit), count=releases).epsilon(total.delta)
        if not epsilon <= total.epsilon_per_job * (1 + BUDGET_TOLERANCE):
            raise Declined(
                Reason.BUDGET_EXHAUSTED,
                f"Expected at most ε = {as_written(total.epsilon_per_job)} of one job (unit "
                f"{unit}), got {shown_up(epsilon)}.",
            )


def check_room(
    ledger: Ledger, dataset: DataSet, plan: ReleasePlan, *, name: str, party: str, rounds: int
) -> None:
    """Refuses a job that the budget does not cover to its end, before its first round; or with
    which a record would be in more releases than the owner allows, however little each costs.

    Nothing is set aside, since a server that never comes back would hold it for ever. Of two jobs
    at once, the later one may therefore find in a round that the other has spent the budget.
    """
    entries = entries_of(plan, name, party)
    left = unpaid(ledger, plan, name=name, rounds=rounds)
    claims = {entry.key: ((entry.event, left),) for entry in entries}
    try:
        ledger.check_room(plan.run_id, claims, plan.blocks)
    except BudgetExceeded as error:
        raise Declined(Reason.BUDGET_EXHAUSTED, str(error)) from error
    except LedgerConflict as error:
        raise Declined(Reason.DATA_UNREADABLE, str(error)) from error
    spent = [own.charged.of(()) for own in ledger.totals() if own.key in claims]
    made = max(each.releases for blocks in spent for each in blocks.values())
    if made + left > dataset.most_releases:
        raise Declined(
            Reason.BUDGET_EXHAUSTED,
            f"Expected at most {dataset.most_releases} releases of data set {name!r} "
            f"(most-releases), got {made} before this job's {left}.",
        )


def check_round(dataset: DataSet, plan: ReleasePlan, *, known: Sequence[RecordedEntry]) -> None:
    """Refuses a round that is not among what its run was charged, and would spend more than one
    job may."""
    if all(each.entry.index != plan.round_number for each in known):
        check_job(dataset, plan, releases=1, spent=_spent(known))


def unpaid(ledger: Ledger, plan: ReleasePlan, *, name: str, rounds: int) -> int:
    """How many of a plan's releases are not charged yet: each to all of the data's budgets."""
    paid = {each.entry.index for each in charged(ledger, plan.run_id, name)}
    return len(set(range(plan.round_number, plan.round_number + rounds)) - paid)


def spent_before(ledger: Ledger, plan: ReleasePlan, *, name: str) -> dict[Unit, Composition]:
    """What a run was charged for the releases before those of a plan; often nothing."""
    found = charged(ledger, plan.run_id, name)
    return _spent(each for each in found if each.entry.index < plan.round_number)


def _spent(found: Iterable[RecordedEntry]) -> dict[Unit, Composition]:
    spent: dict[Unit, Composition] = {}
    counts = Counter((each.entry.key.unit, each.entry.event) for each in found)
    for (unit, event), count in counts.items():
        spent[unit] = spent.get(unit, Composition.empty()).add(event, count=count)
    return spent
