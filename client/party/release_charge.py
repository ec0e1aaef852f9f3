"""A party's charges: every release enters its own ledger before anything is computed.

A round is charged once, whatever the server does. The commit states which release the answer was
for (a digest of plan and model). The same round is answered again only for the same release. Once
the charge is on disk there is a `Receipt`. No computed value leaves without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from typing import Final

from parley.client.contract.refusals import Declined, Reason, decline_errors
from parley.client.contract.release_plan import ReleasePlan
from parley.client.party.dataset_config import DatasetConfig
from parley.client.party.loaded_dataset import LoadedDataset
from parley.privacy.accounting.account_admission import (
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
"""Name of the algorithm of a release that answers queries, as in a plan."""


@dataclass(frozen=True, kw_only=True)
class ReleaseCharge:
    """The charge of a round.

    Attributes:
        release: 32-byte name of the release it is for.
        answered: whether the round was answered before, so that the charge is committed already.
    """

    reservations: tuple[int, ...]
    release: bytes
    answered: bool


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """Proof that the charge of a release is on disk, so that it may leave the party.

    Only `commit_charge` creates one.
    """

    release: bytes
    key: InitVar[object]

    def __post_init__(self, key: object) -> None:
        if key is not _RECEIPT_KEY:
            raise TypeError("Expected a receipt that commit_charge created, got another.")


def register_dataset(
    ledger: Ledger, dataset: DatasetConfig, *, account: str, data: LoadedDataset, plan: ReleasePlan
) -> None:
    """Fix the data set's budget in the ledger, or check that it is fixed to the same.

    Its table may change: the account of that name continues with it. Whether its records are also
    in another data set is for the owner to declare (`account`), before any request.

    Raises:
        Declined: data-unreadable, if its budget changed since its first use, or its records are all
            those of another data set.
    """
    with decline_errors(Reason.DATA_UNREADABLE, LedgerConflict):
        budgets = dataset.build_budgets(
            name=account,
            fingerprint=data.fingerprint,
            contents=data.contents,
            rows=data.row_digests,
            reads=data.blocks,
            queries=plan.algorithm == QUERIES and not _adds_up_mu(plan),
            sampled=any(is_planned(each.event) for each in plan.guarantees),
        )
        registered = ledger.register(*budgets, among=False)[0].name
    if registered != account:
        expected = f"Expected other records in data set {account!r} than in {registered!r}"
        remedy = f"Serve them only as {registered!r}, or set account = {registered!r}."
        what = f"{expected}, got the same"
        raise Declined(Reason.DATA_UNREADABLE, f"{what}: they have one budget. {remedy}")


def _adds_up_mu(plan: ReleasePlan) -> bool:
    """Return whether the noise of queries is that of a session whose account adds up μ²."""
    calibration, own = AccountCertificate.GAUSSIAN.calibration, plan.guarantees
    return all(each.calibration == calibration and is_gaussian(each.event) for each in own)


def build_entries(
    plan: ReleasePlan, account: str, party: str, assumptions: Sequence[str] = ()
) -> tuple[LedgerEntry, ...]:
    """Return the ledger entries that a round of a plan is charged as.

    Raises:
        Declined: protocol, if the plan has no valid entries.
    """
    with decline_errors(Reason.PROTOCOL, ValueError):
        return plan.build_entries(account, party=party, assumptions=assumptions)


def list_round_charges(ledger: Ledger, plan: ReleasePlan, account: str) -> list[RecordedEntry]:
    """Return the charges of the plan's round on a data set, in all its budgets."""
    recorded_entries = ledger.list_release(plan.run_id, account, plan.round_number)
    return [each for each in recorded_entries if each.state is not EntryState.VOIDED]


def reserve_charge(
    ledger: Ledger,
    plan: ReleasePlan,
    *,
    account: str,
    party: str,
    release: bytes,
    rounds: int = 1,
    assumptions: Sequence[str] = (),
) -> ReleaseCharge:
    """Charge a round for every unit with a guarantee, or find it charged already.

    Args:
        rounds: number of the plan's rounds. Sampled steps are charged for all of them with the
            first.
        assumptions: the assumptions of its ε beyond its proof.
        release: 32 bytes, the digest of plan and model.

    Raises:
        Declined: plan-changed, if this round was charged or answered for another release;
            budget-exhausted.
    """
    entries = build_entries(plan, account, party, assumptions)
    same_round = list_round_charges(ledger, plan, account)
    conflict = decline_errors(Reason.PLAN_CHANGED, LedgerConflict)
    with conflict, decline_errors(Reason.BUDGET_EXHAUSTED, BudgetExceeded):
        _plan_steps(ledger, entries, account, rounds)
        reservations = ledger.reserve(entries)
    return ReleaseCharge(
        reservations=tuple(entry.id for entry in reservations),
        release=release,
        answered=bool(same_round) and _is_answered(same_round[0], release),
    )


def _plan_steps(ledger: Ledger, entries: Sequence[LedgerEntry], account: str, rounds: int) -> None:
    """Charge all rounds of a plan of sampled steps at once, when its first one is charged.

    The release's other entries are held in the same step. If one budget refuses, none is charged.
    """
    accounts = {each.key: each for each in ledger.list_accounts()}
    planned = {e.key for e in entries if e.key in accounts and accounts[e.key].must_plan(e.event)}
    charged = ledger.count_charges(entries[0].run_id, account)
    same_event = {event for counts in charged.values() for event in counts}
    if any(each.key in planned and each.event not in same_event for each in entries):
        claims = {e.key: ((e.event, rounds if e.key in planned else 1),) for e in entries}
        ledger.hold(entries[0].run_id, claims, entries[0].blocks)


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
    """Commit a charge with the release it was for. It is on disk on return."""
    if not charge.answered:
        outcome = {"answered": True, "release": charge.release.hex()}
        ledger.commit(charge.reservations, outcome=outcome)
    return Receipt(release=charge.release, key=_RECEIPT_KEY)
