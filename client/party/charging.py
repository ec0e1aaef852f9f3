"""What a party charges itself: every release in its own ledger, before it computes anything.

A round is charged once, whatever the server does. The commit says which release the answer was for
(a digest of plan and model): the same round is answered again only for the same one. Once it is on
the disk there is a `Receipt`, and nothing that was computed leaves without one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import Final

from parley.client.contract.plan import ReleasePlan
from parley.client.contract.protocol import Declined, Reason
from parley.client.party.data_set import DataSet
from parley.client.party.dataset import Holding
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.guarantee import Unit
from parley.privacy.accounting.rounding import as_written, shown_up
from parley.privacy.ledger.blocks import Blocks
from parley.privacy.ledger.budget import BUDGET_TOLERANCE
from parley.privacy.ledger.entry import Entry
from parley.privacy.ledger.errors import BudgetExceeded, LedgerConflict
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.recorded import EntryState, RecordedEntry

_MINT: Final = object()


@dataclass(frozen=True, kw_only=True)
class Charge:
    """A round's charge.

    Attributes:
        release: 32 bytes that name what it is for.
        answered: whether the round was answered, which is committed already.
    """

    reservations: tuple[int, ...]
    release: bytes
    answered: bool


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What may leave the party: a release whose charge is on the disk. `settle` alone makes one."""

    release: bytes
    mint: InitVar[object]

    def __post_init__(self, mint: object) -> None:
        if mint is not _MINT:
            raise TypeError("Expected a receipt that the settling of a charge made, got another.")


def register(
    ledger: Ledger, dataset: DataSet, *, name: str, holding: Holding, blocks: Blocks
) -> None:
    """Fixes the data set's budget in the ledger, or finds it fixed to the same.

    Its table may change: the account of that name goes on with it. Whether its records are in
    another data set, too, is the owner's matter (`account`), before anybody asks.

    Raises:
        Declined: data-unreadable, where its budget changed since its first use; or its records are
            those of another data set, one and all, saved in another way.
    """
    try:
        rows = holding.row_digests
        own = dataset.budgets(name, holding.fingerprint, holding.contents, rows, blocks)
        known = ledger.register(*own, among=False)[0].name
    except LedgerConflict as error:
        raise Declined(Reason.DATA_UNREADABLE, str(error)) from error
    if known != name:
        raise Declined(
            Reason.DATA_UNREADABLE,
            f"Expected other records in data set {name!r} than in {known!r}, got the same, saved "
            f"in another way: they have one budget. Serve them as {known!r} alone, or with "
            f"account = {known!r}.",
        )


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


def check_room(ledger: Ledger, plan: ReleasePlan, *, name: str, party: str, rounds: int) -> None:
    """Refuses a job that the budget does not cover to its end, before its first round.

    Nothing is set aside, since a server that never comes back would hold it for ever. Of two jobs
    at once, the later one may therefore find in a round that the other has spent the budget.
    """
    entries = _entries(plan, name, party)
    left = unpaid(ledger, plan, name=name, rounds=rounds)
    claims = {entry.key: ((entry.event, left),) for entry in entries}
    try:
        ledger.check_room(plan.run_id, claims, plan.blocks)
    except BudgetExceeded as error:
        raise Declined(Reason.BUDGET_EXHAUSTED, str(error)) from error
    except LedgerConflict as error:
        raise Declined(Reason.DATA_UNREADABLE, str(error)) from error


def unpaid(ledger: Ledger, plan: ReleasePlan, *, name: str, rounds: int) -> int:
    """How many of a plan's releases are not charged yet: each to all of the data's budgets."""
    paid = {each.entry.index for each in _charged(ledger, plan.run_id, name)}
    return len(set(range(plan.round_number, plan.round_number + rounds)) - paid)


def _entries(
    plan: ReleasePlan, name: str, party: str, assumed: Sequence[str] = ()
) -> tuple[Entry, ...]:
    try:
        return plan.entries(name, party=party, assumed=assumed)
    except ValueError as error:
        raise Declined(Reason.PROTOCOL, str(error)) from error


def spent_before(ledger: Ledger, plan: ReleasePlan, *, name: str) -> dict[Unit, Composition]:
    """What a run was charged for the releases before those of a plan; often nothing."""
    charged = _charged(ledger, plan.run_id, name)
    return _spent(each for each in charged if each.entry.index < plan.round_number)


def _charged(ledger: Ledger, run_id: str, name: str) -> list[RecordedEntry]:
    """What a run was charged on a data set, in all its budgets."""
    return [
        each
        for each in ledger.entries(run_id)
        if each.entry.dataset == name and each.state is not EntryState.VOIDED
    ]


def _spent(charged: Iterable[RecordedEntry]) -> dict[Unit, Composition]:
    spent: dict[Unit, Composition] = {}
    counts = Counter((each.entry.key.unit, each.entry.event) for each in charged)
    for (unit, event), count in counts.items():
        spent[unit] = spent.get(unit, Composition.empty()).add(event, count=count)
    return spent


def reserve(
    ledger: Ledger,
    dataset: DataSet,
    plan: ReleasePlan,
    *,
    name: str,
    party: str,
    release: bytes,
    assumed: Sequence[str] = (),
) -> Charge:
    """Charges a round, for every unit that it guarantees something, or finds it charged.

    Args:
        assumed: what its ε rests on beyond its proof.
        release: 32 bytes, the digest of plan and model.

    Raises:
        Declined: plan-changed, where this round was charged or answered for another release;
            budget-exhausted.
    """
    entries = _entries(plan, name, party, assumed)
    known = _charged(ledger, plan.run_id, name)
    before = [r for r in known if r.entry.index == plan.round_number]
    if not before:
        check_job(dataset, plan, releases=1, spent=_spent(known))
    try:
        reserved = ledger.reserve(entries)
    except BudgetExceeded as error:
        raise Declined(Reason.BUDGET_EXHAUSTED, str(error)) from error
    except LedgerConflict as error:
        raise Declined(Reason.PLAN_CHANGED, str(error)) from error
    return Charge(
        reservations=tuple(each.id for each in reserved),
        release=release,
        answered=bool(before) and _answered(before[0], release),
    )


def _answered(recorded: RecordedEntry, release: bytes) -> bool:
    if recorded.outcome is None:
        return False
    if recorded.outcome.get("release") != release.hex():
        raise Declined(
            Reason.PLAN_CHANGED,
            f"Expected round {recorded.entry.index} of run {recorded.entry.run_id!r} to start "
            f"from the model it was answered for, release {recorded.outcome.get('release')}; got "
            f"release {release.hex()}.",
        )
    return True


def settle(ledger: Ledger, charge: Charge) -> Receipt:
    """Commits a charge, with what it was for; on the disk when this returns."""
    if not charge.answered:
        outcome = {"answered": True, "release": charge.release.hex()}
        ledger.commit(charge.reservations, outcome=outcome)
    return Receipt(release=charge.release, mint=_MINT)
