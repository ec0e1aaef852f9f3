"""An owner's approval of jobs: which proposals are pending, and what a decision covers.

A job that policy leaves to a person (`approval-above`) is stored as proposed, in
`state/proposal-<digest>`. This happens only after the checks of policy, task and budget have
passed. An owner is therefore never asked about a job that would be declined anyway. An approval or
refusal is a line of the party's ledger (`parley.privacy.ledger.approvals`). It names the digests of
all that was shown. It therefore covers exactly the rounds of that run under that plan. A proposal
that differs in any field needs another decision.

A server learns only that a decision is pending, or the decision. No ε rests on an approval: a
release is charged its cost, approved or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from parley.client.contract.agreement import Agreement
from parley.client.contract.party_messages import MessageFrame
from parley.client.contract.refusals import Declined, Reason
from parley.client.party.budget_checks import count_unpaid_releases
from parley.client.party.dataset_config import DatasetConfig
from parley.client.party.owner_policy import OwnerPolicy
from parley.client.party.party_folder import PartyFolder
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.account import Claims
from parley.privacy.ledger.approvals import OwnerDecision, map_latest_decisions
from parley.privacy.ledger.block_composition import Blocks
from parley.privacy.ledger.ledger import Ledger
from parley.secure_agg.primitives import digest

MAX_PENDING_PROPOSALS = 32
"""Maximum number of stored proposals of a server. For one more, the party answers busy."""
_DAY_S = 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class JobProposal:
    """A server's proposal to an owner: all stages of one run on one data set.

    Attributes:
        stages: one agreement per plan of the run, in the order of their releases.
        proposed_at: time of the first of them, in seconds since 1970.
    """

    stages: tuple[Agreement, ...]
    proposed_at: float

    @property
    def digests(self) -> tuple[str, ...]:
        """The digests in hex that a decision names."""
        return tuple(sorted(stage.compute_proposal_digest().hex() for stage in self.stages))

    @property
    def id(self) -> str:
        """A short name of the digests. It changes if the proposal grows."""
        return compute_proposal_id(self.digests)

    @property
    def run_id(self) -> str:
        """The run's name, as the server chose it."""
        return self.stages[0].run_id

    @property
    def dataset(self) -> str:
        """The data set's name."""
        return self.stages[0].dataset

    @property
    def blocks(self) -> Blocks:
        """The blocks of records that it reads; empty: all, or its stages differ."""
        distinct_blocks = {stage.plan.blocks for stage in self.stages}
        return distinct_blocks.pop() if len(distinct_blocks) == 1 else ()

    @property
    def key(self) -> tuple[str, str]:
        """Run and data set."""
        return self.run_id, self.dataset

    def build_claims(self, ledger: Ledger, account: str, unit: Unit) -> Claims:
        """Return what it would still charge to a privacy unit: events, and the number of each."""
        counts = (
            count_unpaid_releases(ledger, stage.plan, account=account, rounds=stage.rounds)
            for stage in self.stages
        )
        stage_counts = zip(self.stages, counts, strict=True)
        return tuple(
            (stage.plan.compute_event(unit), count) for stage, count in stage_counts if count
        )


def compute_proposal_id(digests: Sequence[str]) -> str:
    """Return 32 hex digits that name a set of proposals: too many to find a collision."""
    return digest(b"parley/asked", *map(bytes.fromhex, sorted(digests))).hex()[:32]


def require_approval(
    party_folder: PartyFolder,
    ledger: Ledger,
    policy: OwnerPolicy,
    agreement: Agreement,
    *,
    clock: float,
) -> None:
    """Require the owner's approval of exactly this proposal, if policy asks for one.

    It is called before a run and before each of its rounds, because runs that began at the same
    time may have spent meanwhile. The data set is registered in the ledger, and policy, task and
    budget have been checked.

    Raises:
        Declined: waiting-for-approval, refused-by-owner, approval-lapsed; busy, if too many
            proposals are pending.
    """
    dataset = policy.get_dataset(agreement.dataset)
    if dataset.approval_above is None:
        return
    now = get_latest_time(ledger, clock)
    own_digest = agreement.compute_proposal_digest().hex()
    decisions = load_decisions(ledger, policy, now, agreement.run_id)
    if own_digest in decisions:
        if not decisions[own_digest].accepted:
            decided_at = decisions[own_digest].at
            raise Declined(
                Reason.REFUSED, f"Expected the owner's approval, got a refusal at {decided_at}."
            )
        return
    run_proposals = [
        stage
        for stage in load_proposals(party_folder, agreement.identities)
        if stage.key == (agreement.run_id, agreement.dataset)
    ]
    stages = {
        stage.compute_proposal_digest(): stage
        for proposal in run_proposals
        for stage in (*proposal.stages, agreement)
    }
    if not _is_above_threshold(
        ledger, dataset, JobProposal(stages=tuple(stages.values() or [agreement]), proposed_at=now)
    ):
        return
    recorded = party_folder.load_proposals().get(own_digest)
    before = map_latest_decisions(ledger.list_decisions(agreement.run_id)).get(own_digest)
    # An approval that expired is requested again, from now on.
    if recorded is None or (
        before is not None and recorded.head["asked"] <= _parse_decision_time(before)
    ):
        _discard_old_proposals(party_folder, ledger, policy, now)
        head = {**agreement.build_head(), "asked": now}
        party_folder.save_proposal(
            own_digest, MessageFrame(kind="propose", head=head, blobs=(b"",))
        )
    elif has_lapsed(party_folder, policy, own_digest, recorded, now):
        raise Declined(
            Reason.LAPSED, f"Expected an approval within {policy.approval_days:g} days, got none."
        )
    raise Declined(
        Reason.WAITING,
        (
            "Expected the owner's approval, got none yet: `parley owner pending "
            "DIR` shows the proposal."
        ),
    )


def get_latest_time(ledger: Ledger, clock: float) -> float:
    """Return the later of the clock's time and the last one that the ledger saw.

    A clock that is set back or stopped therefore does not renew a proposal or an approval.
    """
    return max(clock, ledger.get_last_write_time())


def _parse_decision_time(decision: OwnerDecision) -> float:
    return datetime.fromisoformat(decision.at).timestamp()


def has_lapsed(
    party_folder: PartyFolder,
    policy: OwnerPolicy,
    own_digest: str,
    recorded: MessageFrame,
    now: float,
) -> bool:
    """Return whether a proposal has been pending for too long, by any clock."""
    age = max(now - float(recorded.head["asked"]), party_folder.compute_proposal_age_s(own_digest))
    return age > policy.approval_days * _DAY_S


def load_decisions(
    ledger: Ledger, policy: OwnerPolicy, now: float, run_id: str | None = None
) -> dict[str, OwnerDecision]:
    """Return the valid decisions; an approval unused for `approval_days` is not valid."""
    found = map_latest_decisions(
        ledger.list_decisions() if run_id is None else ledger.list_decisions(run_id)
    )
    since = now - policy.approval_days * _DAY_S
    return {
        own_digest: decision
        for own_digest, decision in found.items()
        if not decision.accepted
        or _parse_decision_time(decision) >= since
        or ledger.has_entries(decision.run_id)
    }


def _is_above_threshold(ledger: Ledger, dataset: DatasetConfig, proposal: JobProposal) -> bool:
    """Return whether the job would raise a unit's spent total above `approval-above`."""
    name, blocks = dataset.account or proposal.dataset, proposal.blocks
    for account in ledger.list_accounts():
        if account.key.dataset == name:
            charged = account.with_hold(
                proposal.run_id, proposal.build_claims(ledger, *account.key), blocks
            )
            epsilon = account.budget.compute_epsilon(charged.compute_spent_or_held(blocks))
            if not epsilon <= (dataset.approval_above or 0.0):
                return True
    return False


def _discard_old_proposals(
    party_folder: PartyFolder, ledger: Ledger, policy: OwnerPolicy, now: float
) -> None:
    """Discard the proposals decided or lapsed the longest ago, but never a pending one.

    Raises:
        Declined: busy, if too many are pending.
    """
    proposals = party_folder.load_proposals()
    excess = len(proposals) - MAX_PENDING_PROPOSALS + 1
    if excess <= 0:
        return
    decisions = map_latest_decisions(ledger.list_decisions())
    discardable = [
        own_digest
        for own_digest, frame in proposals.items()
        if own_digest in decisions or has_lapsed(party_folder, policy, own_digest, frame, now)
    ]
    for own_digest in discardable[:excess]:
        party_folder.erase_proposal(own_digest)
    if len(discardable) < excess:
        raise Declined(Reason.BUSY, f"Expected at most {MAX_PENDING_PROPOSALS} pending proposals.")


def load_proposals(
    party_folder: PartyFolder,
    identities: tuple[bytes, ...],
    *,
    lapsed: Callable[[str, MessageFrame], bool] = lambda own, frame: False,
) -> tuple[JobProposal, ...]:
    """Return all proposals stored in the folder: one per run and data set."""
    found: dict[tuple[str, str], list[tuple[Agreement, float]]] = {}
    for own_digest, frame in party_folder.load_proposals().items():
        with suppress(Declined, LookupError, TypeError):  # of a version before this one
            agreement = Agreement.from_head(frame.head, components=b"", identities=identities)
            if agreement.compute_proposal_digest().hex() == own_digest and not lapsed(
                own_digest, frame
            ):  # it is of this roster
                stages = found.setdefault((agreement.run_id, agreement.dataset), [])
                stages.append((agreement, frame.head["asked"]))
    return tuple(_build_proposal(stages) for stages in found.values())


def _build_proposal(stages: Sequence[tuple[Agreement, float]]) -> JobProposal:
    agreements = sorted(
        (agreement for agreement, _ in stages), key=lambda agreement: agreement.plan.round_number
    )
    return JobProposal(stages=tuple(agreements), proposed_at=min(since for _, since in stages))
