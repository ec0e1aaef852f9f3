"""What a party charges itself: every release in its own ledger, before it computes anything.

A round is charged once, whatever the server does. The commit says which release the answer was for
(a digest of plan and model): the same round is answered again only for the same one. Once it is on
the disk there is a `Receipt`, and nothing that was computed leaves without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from typing import Final

from parley.client.contract.party_protocol import Declined, Reason
from parley.client.contract.release_plan import ReleasePlan
from parley.client.party.dataset_config import DatasetConfig
from parley.client.party.dataset_loader import LoadedDataset
from parley.privacy.accounting.account_certificates import (
    AccountCertificate,
    is_gaussian,
    is_planned,
)
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.ledger.ledger_errors import BudgetExceeded, LedgerConflict
from parley.privacy.ledger.recorded_entries import EntryState, RecordedEntry

_RECEIPT_KEY: Final = object()

QUERIES: Final = "query"
"""The algorithm of a release that answers queries, as a plan names it."""


@dataclass(frozen=True, kw_only=True)
class ReleaseCharge:
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
    """What may leave the party: a release whose charge is on the disk. `commit_charge` alone makes
    one.
    """

    release: bytes
    key: InitVar[object]

    def __post_init__(self, key: object) -> None:
        if key is not _RECEIPT_KEY:
            raise TypeError("Expected a receipt that the settling of a charge made, got another.")


def register_dataset(
    ledger: Ledger, dataset: DatasetConfig, *, account: str, data: LoadedDataset, plan: ReleasePlan
) -> None:
    """Fixes the data set's budget in the ledger, or finds it fixed to the same.

    Its table may change: the account of that name goes on with it. Whether its records are in
    another data set, too, is the owner's matter (`account`), before anybody asks.

    Raises:
        Declined: data-unreadable, where its budget changed since its first use; or its records are
            those of another data set, one and all, saved in another way.
    """
    try:
        rows, read_blocks = data.row_digests, data.blocks
        budgets = dataset.build_budgets(
            account,
            data.fingerprint,
            data.contents,
            rows,
            read_blocks,
            queries=plan.algorithm == QUERIES and not _adds_up_mu(plan),
            sampled=any(is_planned(each.event) for each in plan.guarantees),
        )
        registered = ledger.register(*budgets, among=False)[0].name
    except LedgerConflict as error:
        raise Declined(Reason.DATA_UNREADABLE, str(error)) from error
    if registered != account:
        raise Declined(
            Reason.DATA_UNREADABLE,
            f"Expected other records in data set {account!r} than in {registered!r}, got the same, "
            f"saved in another way: they have one budget. Serve them as {registered!r} alone, or "
            f"with account = {registered!r}.",
        )


def _adds_up_mu(plan: ReleasePlan) -> bool:
    """Return whether the noise of queries is that of a session whose account adds up μ²."""
    calibration, own = AccountCertificate.GAUSSIAN.calibration, plan.guarantees
    return all(each.calibration == calibration and is_gaussian(each.event) for each in own)


def build_entries(
    plan: ReleasePlan, account: str, party: str, assumptions: Sequence[str] = ()
) -> tuple[LedgerEntry, ...]:
    """What a round of a plan is charged as."""
    try:
        return plan.build_entries(account, party=party, assumptions=assumptions)
    except ValueError as error:
        raise Declined(Reason.PROTOCOL, str(error)) from error


def list_charged_entries(ledger: Ledger, run_id: str, account: str) -> list[RecordedEntry]:
    """What a run was charged on a data set, in all its budgets."""
    return [
        recorded
        for recorded in ledger.list_entries(run_id)
        if recorded.entry.dataset == account and recorded.state is not EntryState.VOIDED
    ]


def reserve_charge(
    ledger: Ledger,
    plan: ReleasePlan,
    *,
    account: str,
    party: str,
    charged: Sequence[RecordedEntry],
    release: bytes,
    rounds: int = 1,
    assumptions: Sequence[str] = (),
) -> ReleaseCharge:
    """Charges a round, for every unit that it guarantees something, or finds it charged.

    Args:
        charged: what its run was charged (`charged`).
        rounds: how many the plan has: sampled steps are charged for all of them with the first.
        assumptions: what its ε rests on beyond its proof.
        release: 32 bytes, the digest of plan and model.

    Raises:
        Declined: plan-changed, where this round was charged or answered for another release;
            budget-exhausted.
    """
    entries = build_entries(plan, account, party, assumptions)
    same_round = [recorded for recorded in charged if recorded.entry.index == plan.round_number]
    try:
        _plan_steps(ledger, entries, charged, rounds)
        reservations = ledger.reserve(entries)
    except BudgetExceeded as error:
        raise Declined(Reason.BUDGET_EXHAUSTED, str(error)) from error
    except LedgerConflict as error:
        raise Declined(Reason.PLAN_CHANGED, str(error)) from error
    return ReleaseCharge(
        reservations=tuple(entry.id for entry in reservations),
        release=release,
        answered=bool(same_round) and _is_answered(same_round[0], release),
    )


def _plan_steps(
    ledger: Ledger, entries: Sequence[LedgerEntry], charged: Sequence[RecordedEntry], rounds: int
) -> None:
    """Charge all rounds of a plan of sampled steps at once, when its first one is.

    The release's other entries are held in the same step: what one budget refuses stays charged
    to none.
    """
    accounts = {each.key: each for each in ledger.list_accounts()}
    planned = {e.key for e in entries if e.key in accounts and accounts[e.key].must_plan(e.event)}
    same_event = {each.entry.event for each in charged}
    if any(each.key in planned and each.event not in same_event for each in entries):
        ledger.hold(
            entries[0].run_id,
            {e.key: ((e.event, rounds if e.key in planned else 1),) for e in entries},
            entries[0].blocks,
        )


def _is_answered(recorded: RecordedEntry, release: bytes) -> bool:
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


def commit_charge(ledger: Ledger, charge: ReleaseCharge) -> Receipt:
    """Commits a charge, with what it was for; on the disk when this returns."""
    if not charge.answered:
        outcome = {"answered": True, "release": charge.release.hex()}
        ledger.commit(charge.reservations, outcome=outcome)
    return Receipt(release=charge.release, key=_RECEIPT_KEY)
