"""What an owner sees of proposed jobs, and the owner's decisions."""

from __future__ import annotations

from collections.abc import Sequence

from parley.client.contract.party_messages import MessageFrame
from parley.client.party.owner_approval import (
    JobProposal,
    compute_proposal_id,
    get_latest_time,
    has_lapsed,
    load_decisions,
    load_proposals,
)
from parley.client.party.owner_policy import OwnerPolicy
from parley.client.party.party_folder import PartyFolder
from parley.privacy.ledger.approvals import OwnerDecision
from parley.privacy.ledger.budget import BudgetKey
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import LedgerConflict


def list_pending(
    party_folder: PartyFolder,
    ledger: Ledger,
    policy: OwnerPolicy,
    identities: tuple[bytes, ...],
    *,
    clock: float,
) -> tuple[JobProposal, ...]:
    """Return the undecided proposals that the server may still wait for, the oldest first."""
    now = get_latest_time(ledger, clock)
    decisions, pending = load_decisions(ledger, policy, now), []

    def lapsed(own: str, frame: MessageFrame) -> bool:
        return has_lapsed(party_folder, policy, own, frame, now)

    for proposal in load_proposals(party_folder, identities, lapsed=lapsed):
        stages = tuple(
            stage
            for stage in proposal.stages
            if stage.compute_proposal_digest().hex() not in decisions
        )
        if stages and proposal.dataset in policy.data:
            pending.append(JobProposal(stages=stages, proposed_at=proposal.proposed_at))
    return tuple(pending)


def record_decision(
    ledger: Ledger,
    policy: OwnerPolicy,
    pending: Sequence[JobProposal],
    proposal_id: str,
    *,
    accepted: bool,
    reason: str = "",
) -> OwnerDecision:
    """Record the owner's decision on a pending proposal, or change an earlier decision on it.

    Raises:
        LedgerConflict: no proposal of that id is pending or decided. It may have changed.
    """
    proposal = next((candidate for candidate in pending if candidate.id == proposal_id), None)
    earlier = [
        candidate
        for candidate in ledger.list_decisions()
        if compute_proposal_id(candidate.proposals) == proposal_id
    ]
    if proposal is not None:
        dataset = policy.get_dataset(proposal.dataset)
        key = BudgetKey(dataset.account or proposal.dataset, dataset.unit)
        run_id, digests = proposal.run_id, proposal.digests
    elif earlier:
        key = BudgetKey(earlier[-1].dataset, earlier[-1].unit)
        run_id, digests = earlier[-1].run_id, earlier[-1].proposals
    else:
        names = ", ".join(candidate.id for candidate in pending) or "none is pending"
        raise LedgerConflict(
            f"Expected a pending proposal ({names}), got {proposal_id!r}. It may "
            "have changed: look again with `parley owner pending DIR`."
        )
    return ledger.decide(key, run_id=run_id, proposals=digests, accepted=accepted, reason=reason)
