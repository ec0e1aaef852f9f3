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

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from math import inf

from parley.client.contract.agreement import Agreement
from parley.client.contract.message_frames import MessageFrame
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
        return tuple(sorted(stage.compute_proposal_digest() for stage in self.stages))

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
        return tuple((stage.plan.compute_event(unit), n) for stage, n in stage_counts if n)


def compute_proposal_id(digests: Sequence[str]) -> str:
    """Return 32 hex digits that name a set of proposals: too many to find a collision."""
    return digest(b"parley/asked", *map(bytes.fromhex, sorted(digests))).hex()[:32]


def _parse_decision_time(decision: OwnerDecision) -> float:
    return datetime.fromisoformat(decision.at).timestamp()


@dataclass(frozen=True, kw_only=True)
class OwnerApprovals:
    """The proposals in a party's folder and the decisions on them in its ledger, at one time."""

    party_folder: PartyFolder
    ledger: Ledger
    policy: OwnerPolicy
    clock: float

    @cached_property
    def now(self) -> float:
        """The later of the clock's time and the last one that the ledger saw.

        A clock that is set back or stopped therefore does not renew a proposal or an approval.
        """
        return max(self.clock, self.ledger.get_last_write_time())

    def require(self, agreement: Agreement) -> None:
        """Require the owner's approval of exactly this proposal, if policy asks for one.

        It is called before a run and before each of its rounds, because runs that began at the same
        time may have spent meanwhile. The data set is registered in the ledger, and policy, task
        and budget have been checked.

        Raises:
            Declined: waiting-for-approval, refused-by-owner, approval-lapsed; busy, if too many
                proposals are pending.
        """
        dataset = self.policy.get_dataset(agreement.dataset)
        if dataset.approval_above is None:
            return
        own_digest = agreement.compute_proposal_digest()
        decision = self._load_decisions(agreement.run_id).get(own_digest)
        if decision is not None:
            if not decision.accepted:
                got = f"got a refusal at {decision.at}"
                raise Declined(Reason.REFUSED, f"Expected the owner's approval, {got}.")
            return
        stages = {own_digest: agreement}
        for earlier in self._load_proposals(agreement.identities):
            if earlier.key == (agreement.run_id, agreement.dataset):
                stages |= {stage.compute_proposal_digest(): stage for stage in earlier.stages}
        proposal = JobProposal(stages=tuple(stages.values()), proposed_at=self.now)
        if not self._is_above_threshold(dataset, proposal):
            return
        recorded = self.party_folder.load_proposals().get(own_digest)
        before = map_latest_decisions(self.ledger.list_decisions(agreement.run_id)).get(own_digest)
        # An approval that expired is requested again, from now on.
        decided_at = -inf if before is None else _parse_decision_time(before)
        if recorded is None or recorded.head["asked"] <= decided_at:
            self._discard_old_proposals()
            head = {**agreement.build_head(), "asked": self.now}
            frame = MessageFrame(kind="propose", head=head, blobs=(b"",))
            self.party_folder.save_proposal(own_digest, frame)
        elif self._has_lapsed(own_digest, recorded):
            expected = f"Expected an approval within {self.policy.approval_days:g} days"
            raise Declined(Reason.LAPSED, f"{expected}, got none.")
        remedy = "`parley owner pending DIR` shows the proposal"
        raise Declined(Reason.WAITING, f"Expected the owner's approval, got none yet: {remedy}.")

    def list_pending(self, identities: tuple[bytes, ...]) -> tuple[JobProposal, ...]:
        """Return the undecided proposals that the server may still wait for, the oldest first."""
        decisions, pending = self._load_decisions(), []
        for proposal in self._load_proposals(identities, lapsed=False):
            every = proposal.stages
            stages = tuple(s for s in every if s.compute_proposal_digest() not in decisions)
            if stages and proposal.dataset in self.policy.data:
                pending.append(JobProposal(stages=stages, proposed_at=proposal.proposed_at))
        return tuple(pending)

    def _has_lapsed(self, own_digest: str, recorded: MessageFrame) -> bool:
        """Return whether a proposal has been pending for too long, by any clock."""
        noted_age = self.party_folder.compute_proposal_age_s(own_digest)
        age = max(self.now - float(recorded.head["asked"]), noted_age)
        return age > self.policy.approval_days * _DAY_S

    def _load_decisions(self, run_id: str | None = None) -> dict[str, OwnerDecision]:
        """Return the valid decisions; an approval unused for `approval_days` is not valid."""
        found = map_latest_decisions(self.ledger.list_decisions(run_id))
        since = self.now - self.policy.approval_days * _DAY_S
        return {
            own_digest: decision
            for own_digest, decision in found.items()
            if not decision.accepted
            or _parse_decision_time(decision) >= since
            or self.ledger.has_entries(decision.run_id)
        }

    def _is_above_threshold(self, dataset: DatasetConfig, proposal: JobProposal) -> bool:
        """Return whether the job would raise a unit's spent total above `approval-above`."""
        name, blocks = dataset.account or proposal.dataset, proposal.blocks
        for account in self.ledger.list_accounts():
            if account.key.dataset == name:
                claims = proposal.build_claims(self.ledger, *account.key)
                charged = account.with_hold(proposal.run_id, claims, blocks)
                epsilon = account.budget.compute_epsilon(charged.compute_spent_or_held(blocks))
                if not epsilon <= (dataset.approval_above or 0.0):
                    return True
        return False

    def _discard_old_proposals(self) -> None:
        """Discard the proposals decided or lapsed the longest ago, but never a pending one.

        Raises:
            Declined: busy, if too many are pending.
        """
        proposals, most = self.party_folder.load_proposals(), MAX_PENDING_PROPOSALS
        excess = len(proposals) - most + 1
        if excess <= 0:
            return
        decided = map_latest_decisions(self.ledger.list_decisions())
        over = [n for n, frame in proposals.items() if n in decided or self._has_lapsed(n, frame)]
        for own_digest in over[:excess]:
            self.party_folder.erase_proposal(own_digest)
        if len(over) < excess:
            raise Declined(Reason.BUSY, f"Expected at most {most} pending proposals.")

    def _load_proposals(
        self, identities: tuple[bytes, ...], *, lapsed: bool = True
    ) -> tuple[JobProposal, ...]:
        """Return all proposals stored in the folder, or those that have not `lapsed`.

        There is one per run and data set.
        """
        found: dict[tuple[str, str], list[tuple[Agreement, float]]] = {}
        for own_digest, frame in self.party_folder.load_proposals().items():
            with suppress(Declined, LookupError, TypeError):  # of a version before this one
                agreement = Agreement.from_head(frame.head, components=b"", identities=identities)
                is_of_roster = agreement.compute_proposal_digest() == own_digest
                if is_of_roster and (lapsed or not self._has_lapsed(own_digest, frame)):
                    stages = found.setdefault((agreement.run_id, agreement.dataset), [])
                    stages.append((agreement, frame.head["asked"]))
        return tuple(_build_proposal(stages) for stages in found.values())


def _build_proposal(stages: Sequence[tuple[Agreement, float]]) -> JobProposal:
    agreements = sorted((stage for stage, _ in stages), key=lambda stage: stage.plan.round_number)
    return JobProposal(stages=tuple(agreements), proposed_at=min(since for _, since in stages))
