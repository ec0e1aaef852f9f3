"""An owner's yes: what waits for it, and what it holds for.

A job that policy wants a person to decide (`approval-above`) is kept as it was proposed, in
`state/proposal-<digest>`, once policy, task and budget hold: an owner is asked about nothing that
would be declined anyway. A yes or a no is a line of the party's ledger
(`parley.privacy.ledger.approvals`), and names the digests of all that was shown. So it covers every
round of that run under that plan, and nothing else: what differs in any field asks again.

A server is told that somebody has yet to decide, or how it ended, and no more. No ε rests on a yes:
what is released is charged what it costs, wanted or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from parley.client.contract.agreement import Agreement
from parley.client.contract.party_protocol import Declined, MessageFrame, Reason
from parley.client.party.dataset_config import DatasetConfig
from parley.client.party.job_limits import count_unpaid_releases
from parley.client.party.owner_policy import OwnerPolicy
from parley.client.party.party_folder import PartyFolder
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.account import Claims
from parley.privacy.ledger.approvals import OwnerDecision, map_latest_decisions
from parley.privacy.ledger.block_composition import Blocks
from parley.privacy.ledger.budget import BudgetKey
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import LedgerConflict
from parley.secure_agg.primitives import digest

MAX_PENDING_PROPOSALS = 32
"""Proposals that a server can have kept: one more is told that the party is busy."""
_DAY_S = 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class JobProposal:
    """What a server asks an owner: all that it proposed of one run on one data set.

    Attributes:
        stages: one agreement for each of the run's plans, in the order of their releases.
        proposed_at: when the first of them came, seconds since 1970.
    """

    stages: tuple[Agreement, ...]
    proposed_at: float

    @property
    def digests(self) -> tuple[str, ...]:
        """What a decision names: digests in hex."""
        return tuple(sorted(stage.compute_proposal_digest().hex() for stage in self.stages))

    @property
    def id(self) -> str:
        """Short for them: more that is asked has another."""
        return compute_proposal_id(self.digests)

    @property
    def run_id(self) -> str:
        """The run's name: the server's word."""
        return self.stages[0].run_id

    @property
    def dataset(self) -> str:
        """Of which data set."""
        return self.stages[0].dataset

    @property
    def blocks(self) -> Blocks:
        """Of the records that it reads; none: all, or its stages differ."""
        distinct_blocks = {stage.plan.blocks for stage in self.stages}
        return distinct_blocks.pop() if len(distinct_blocks) == 1 else ()

    @property
    def key(self) -> tuple[str, str]:
        """Run and data set."""
        return self.run_id, self.dataset

    def build_claims(self, ledger: Ledger, account: str, unit: Unit) -> Claims:
        """What it would still charge a unit of privacy: events, and how many of each."""
        counts = (
            count_unpaid_releases(ledger, stage.plan, account=account, rounds=stage.rounds)
            for stage in self.stages
        )
        stage_counts = zip(self.stages, counts, strict=True)
        return tuple(
            (stage.plan.compute_event(unit), count) for stage, count in stage_counts if count
        )


def compute_proposal_id(digests: Sequence[str]) -> str:
    """32 hex digits that name a set of proposals: too many for a server to find two."""
    return digest(b"parley/asked", *map(bytes.fromhex, sorted(digests))).hex()[:32]


def require_approval(
    party_folder: PartyFolder,
    ledger: Ledger,
    policy: OwnerPolicy,
    agreement: Agreement,
    *,
    clock: float,
) -> None:
    """The gate: the owner's yes to this very proposal, where policy wants one.

    Of a run that is to come, and before each of its rounds: others that began beside it may have
    spent meanwhile. The data set is registered in the ledger; policy, task and budget hold.

    Raises:
        Declined: waiting-for-approval, refused-by-owner, approval-lapsed; busy, where too much
            waits.
    """
    dataset = policy.get_dataset(agreement.dataset)
    if dataset.approval_above is None:
        return
    now = _get_latest_time(ledger, clock)
    own_digest, decisions = (
        agreement.compute_proposal_digest().hex(),
        _load_decisions(ledger, policy, now, agreement.run_id),
    )
    if own_digest in decisions:
        if not decisions[own_digest].accepted:
            decided_at = decisions[own_digest].at
            raise Declined(Reason.REFUSED, f"Expected the owner's yes, got a no at {decided_at}.")
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
    recorded, before = (
        party_folder.load_proposals().get(own_digest),
        map_latest_decisions(ledger.list_decisions(agreement.run_id)).get(own_digest),
    )
    # A yes that ran out is asked for again, from now on.
    if recorded is None or (
        before is not None and recorded.head["asked"] <= _parse_decision_time(before)
    ):
        _discard_old_proposals(party_folder, ledger, policy, now)
        head = {**agreement.build_head(), "asked": now}
        party_folder.save_proposal(
            own_digest, MessageFrame(kind="propose", head=head, blobs=(b"",))
        )
    elif _has_lapsed(party_folder, policy, own_digest, recorded, now):
        raise Declined(
            Reason.LAPSED, f"Expected a yes within {policy.approval_days:g} days, got none."
        )
    raise Declined(
        Reason.WAITING,
        "Expected the owner's yes, got none yet: `parley owner pending DIR` says what is asked.",
    )


def _get_latest_time(ledger: Ledger, clock: float) -> float:
    """Return the later of the clock's time and the last one that the ledger saw.

    So a clock that is set back, or held back, does not make a proposal or a yes young again.
    """
    return max(clock, ledger.get_last_write_time())


def _parse_decision_time(decision: OwnerDecision) -> float:
    return datetime.fromisoformat(decision.at).timestamp()


def _has_lapsed(
    party_folder: PartyFolder,
    policy: OwnerPolicy,
    own_digest: str,
    recorded: MessageFrame,
    now: float,
) -> bool:
    """Return whether a proposal waited for too long, by any clock."""
    age = max(now - float(recorded.head["asked"]), party_folder.compute_proposal_age_s(own_digest))
    return age > policy.approval_days * _DAY_S


def _load_decisions(
    ledger: Ledger, policy: OwnerPolicy, now: float, run_id: str | None = None
) -> dict[str, OwnerDecision]:
    """Return the decisions that hold: a yes that no run used within `approval_days` does not."""
    found = map_latest_decisions(
        ledger.list_decisions() if run_id is None else ledger.list_decisions(run_id)
    )
    since = now - policy.approval_days * _DAY_S
    return {
        own_digest: decision
        for own_digest, decision in found.items()
        if not decision.accepted
        or _parse_decision_time(decision) >= since
        or ledger.list_entries(decision.run_id)
    }


def _is_above_threshold(ledger: Ledger, dataset: DatasetConfig, proposal: JobProposal) -> bool:
    """Whether it would bring what is spent, for any unit, above what may be without a yes."""
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
    """Forgets what was decided, or lapsed, the longest ago; nothing that waits."""
    proposals = party_folder.load_proposals()
    excess = len(proposals) - MAX_PENDING_PROPOSALS + 1
    if excess <= 0:
        return
    decisions = map_latest_decisions(ledger.list_decisions())
    discardable = [
        own_digest
        for own_digest, frame in proposals.items()
        if own_digest in decisions or _has_lapsed(party_folder, policy, own_digest, frame, now)
    ]
    for own_digest in discardable[:excess]:
        party_folder.erase_proposal(own_digest)
    if len(discardable) < excess:
        raise Declined(
            Reason.BUSY, f"Expected at most {MAX_PENDING_PROPOSALS} proposals that wait."
        )


def load_proposals(
    party_folder: PartyFolder,
    identities: tuple[bytes, ...],
    *,
    lapsed: Callable[[str, MessageFrame], bool] = lambda own, frame: False,
) -> tuple[JobProposal, ...]:
    """Return all that the folder keeps of what was asked: one per run and data set."""
    found: dict[tuple[str, str], list[tuple[Agreement, float]]] = {}
    for own_digest, frame in party_folder.load_proposals().items():
        with suppress(Declined, LookupError, TypeError):  # of a version before this one
            agreement = Agreement.from_head(frame.head, components=b"", identities=identities)
            if agreement.compute_proposal_digest().hex() == own_digest and not lapsed(
                own_digest, frame
            ):  # of this roster
                stages = found.setdefault((agreement.run_id, agreement.dataset), [])
                stages.append((agreement, frame.head["asked"]))
    return tuple(_build_proposal(stages) for stages in found.values())


def _build_proposal(stages: Sequence[tuple[Agreement, float]]) -> JobProposal:
    agreements = sorted(
        (agreement for agreement, _ in stages), key=lambda agreement: agreement.plan.round_number
    )
    return JobProposal(stages=tuple(agreements), proposed_at=min(since for _, since in stages))


def list_pending(
    party_folder: PartyFolder,
    ledger: Ledger,
    policy: OwnerPolicy,
    identities: tuple[bytes, ...],
    *,
    clock: float,
) -> tuple[JobProposal, ...]:
    """What nobody decided yet and the server may still wait for, the oldest first."""
    now = _get_latest_time(ledger, clock)
    decisions, pending = _load_decisions(ledger, policy, now), []

    def lapsed(own: str, frame: MessageFrame) -> bool:
        return _has_lapsed(party_folder, policy, own, frame, now)

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
    """Writes the owner's decision about what waits under `name`, or changes one about the same.

    Raises:
        LedgerConflict: nothing of that name waits, or was decided: it may have changed.
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
        names = ", ".join(candidate.id for candidate in pending) or "nothing waits"
        raise LedgerConflict(
            f"Expected what waits ({names}), got {proposal_id!r}: look again, what is asked may be "
            "another by now."
        )
    return ledger.decide(key, run_id=run_id, proposals=digests, accepted=accepted, reason=reason)
