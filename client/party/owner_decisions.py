"""What an owner sees of proposed jobs, and the owner's decisions."""

from __future__ import annotations

from collections.abc import Sequence

from parley.client.party.owner_approval import (
    JobProposal,
    compute_proposal_id,
)
from parley.client.party.owner_policy import OwnerPolicy
from parley.privacy.ledger.approvals import OwnerDecision
from parley.privacy.ledger.budget import BudgetKey
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import LedgerConflict


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
    made = ledger.list_decisions()
    earlier = [each for each in made if compute_proposal_id(each.proposals) == proposal_id]
    if proposal is not None:
        dataset = policy.get_dataset(proposal.dataset)
        key = BudgetKey(dataset.account or proposal.dataset, dataset.unit)
        run_id, digests = proposal.run_id, proposal.digests
    elif earlier:
        key = BudgetKey(earlier[-1].dataset, earlier[-1].unit)
        run_id, digests = earlier[-1].run_id, earlier[-1].proposals
    else:
        names = ", ".join(candidate.id for candidate in pending) or "none is pending"
        expected = f"Expected a pending proposal ({names})"
        remedy = "It may have changed: look again with `parley owner pending DIR`."
        raise LedgerConflict(f"{expected}, got {proposal_id!r}. {remedy}")
    return ledger.decide(key, run_id=run_id, proposals=digests, accepted=accepted, reason=reason)
