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
from parley.client.contract.party_protocol import Declined, Frame, Reason
from parley.client.party.dataset_config import DataSet
from parley.client.party.job_limits import unpaid
from parley.client.party.owner_policy import Consent
from parley.client.party.party_folder import Keeper
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.account import Claims
from parley.privacy.ledger.approvals import Decision, latest
from parley.privacy.ledger.block_composition import Blocks
from parley.privacy.ledger.budget import BudgetKey
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import LedgerConflict
from parley.secure_agg.primitives import digest

MOST_WAITING = 32
"""Proposals that a server can have kept: one more is told that the party is busy."""
_DAY_S = 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a server asks an owner: all that it proposed of one run on one data set.

    Attributes:
        stages: one agreement for each of the run's plans, in the order of their releases.
        since: when the first of them came, seconds since 1970.
    """

    stages: tuple[Agreement, ...]
    since: float

    @property
    def proposals(self) -> tuple[str, ...]:
        """What a decision names: digests in hex."""
        return tuple(sorted(each.proposal().hex() for each in self.stages))

    @property
    def name(self) -> str:
        """Short for them: more that is asked has another."""
        return name_of(self.proposals)

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
        found = {each.plan.blocks for each in self.stages}
        return found.pop() if len(found) == 1 else ()

    @property
    def of(self) -> tuple[str, str]:
        """Run and data set."""
        return self.run_id, self.dataset

    def claims(self, ledger: Ledger, account: str, unit: Unit) -> Claims:
        """What it would still charge a unit of privacy: events, and how many of each."""
        counts = (unpaid(ledger, s.plan, name=account, rounds=s.rounds) for s in self.stages)
        both = zip(self.stages, counts, strict=True)
        return tuple((each.plan.event(unit), count) for each, count in both if count)


def name_of(proposals: Sequence[str]) -> str:
    """32 hex digits that name a set of proposals: too many for a server to find two."""
    return digest(b"parley/asked", *map(bytes.fromhex, sorted(proposals))).hex()[:32]


def check(
    keeper: Keeper, ledger: Ledger, consent: Consent, agreed: Agreement, *, clock: float
) -> None:
    """The gate: the owner's yes to this very proposal, where policy wants one.

    Of a run that is to come, and before each of its rounds: others that began beside it may have
    spent meanwhile. The data set is registered in the ledger; policy, task and budget hold.

    Raises:
        Declined: waiting-for-approval, refused-by-owner, approval-lapsed; busy, where too much
            waits.
    """
    dataset = consent.dataset(agreed.dataset)
    if dataset.approval_above is None:
        return
    now = _latest_moment(ledger, clock)
    own, said = agreed.proposal().hex(), _said(ledger, consent, now, agreed.run_id)
    if own in said:
        if not said[own].accepted:
            at = said[own].at
            raise Declined(Reason.REFUSED, f"Expected the owner's yes, got a no at {at}.")
        return
    of_run = [
        each
        for each in known(keeper, agreed.identities)
        if each.of == (agreed.run_id, agreed.dataset)
    ]
    whole = {each.proposal(): each for asked in of_run for each in (*asked.stages, agreed)}
    if not _above(ledger, dataset, Asked(stages=tuple(whole.values() or [agreed]), since=now)):
        return
    kept, before = keeper.proposals().get(own), latest(ledger.decisions(agreed.run_id)).get(own)
    # A yes that ran out is asked for again, from now on.
    if kept is None or (before is not None and kept.head["asked"] <= _moment_of(before)):
        _make_room(keeper, ledger, consent, now)
        head = {**agreed.head(), "asked": now}
        keeper.keep_proposal(own, Frame(kind="propose", head=head, blobs=(b"",)))
    elif _has_lapsed(keeper, consent, own, kept, now):
        raise Declined(
            Reason.LAPSED, f"Expected a yes within {consent.approval_days:g} days, got none."
        )
    raise Declined(
        Reason.WAITING,
        "Expected the owner's yes, got none yet: `parley owner pending DIR` says what is asked.",
    )


def _latest_moment(ledger: Ledger, clock: float) -> float:
    """Return the later of the clock's time and the last one that the ledger saw.

    So a clock that is set back, or held back, does not make a proposal or a yes young again.
    """
    return max(clock, ledger.last_seen())


def _moment_of(decision: Decision) -> float:
    return datetime.fromisoformat(decision.at).timestamp()


def _has_lapsed(keeper: Keeper, consent: Consent, own: str, kept: Frame, now: float) -> bool:
    """Return whether a proposal waited for too long, by any clock."""
    age = max(now - float(kept.head["asked"]), keeper.proposal_age_s(own))
    return age > consent.approval_days * _DAY_S


def _said(
    ledger: Ledger, consent: Consent, now: float, run_id: str | None = None
) -> dict[str, Decision]:
    """Return the decisions that hold: a yes that no run used within `approval_days` does not."""
    found = latest(ledger.decisions() if run_id is None else ledger.decisions(run_id))
    since = now - consent.approval_days * _DAY_S
    return {
        own: each
        for own, each in found.items()
        if not each.accepted or _moment_of(each) >= since or ledger.entries(each.run_id)
    }


def _above(ledger: Ledger, dataset: DataSet, asked: Asked) -> bool:
    """Whether it would bring what is spent, for any unit, above what may be without a yes."""
    name, blocks = dataset.account or asked.dataset, asked.blocks
    for account in ledger.totals():
        if account.key.dataset == name:
            held = account.holding(asked.run_id, asked.claims(ledger, *account.key), blocks)
            after = account.budget.epsilon_of(held.taken_of(blocks))
            if not after <= (dataset.approval_above or 0.0):
                return True
    return False


def _make_room(keeper: Keeper, ledger: Ledger, consent: Consent, now: float) -> None:
    """Forgets what was decided, or lapsed, the longest ago; nothing that waits."""
    proposals = keeper.proposals()
    excess = len(proposals) - MOST_WAITING + 1
    if excess <= 0:
        return
    said = latest(ledger.decisions())
    over = [
        own
        for own, frame in proposals.items()
        if own in said or _has_lapsed(keeper, consent, own, frame, now)
    ]
    for own in over[:excess]:
        keeper.end_proposal(own)
    if len(over) < excess:
        raise Declined(Reason.BUSY, f"Expected at most {MOST_WAITING} proposals that wait.")


def known(
    keeper: Keeper,
    identities: tuple[bytes, ...],
    *,
    lapsed: Callable[[str, Frame], bool] = lambda own, frame: False,
) -> tuple[Asked, ...]:
    """Return all that the folder keeps of what was asked: one per run and data set."""
    found: dict[tuple[str, str], list[tuple[Agreement, float]]] = {}
    for own, frame in keeper.proposals().items():
        with suppress(Declined, LookupError, TypeError):  # of a version before this one
            agreed = Agreement.proposed(frame.head, components=b"", identities=identities)
            if agreed.proposal().hex() == own and not lapsed(own, frame):  # of this roster
                kept = found.setdefault((agreed.run_id, agreed.dataset), [])
                kept.append((agreed, frame.head["asked"]))
    return tuple(_asked(kept) for kept in found.values())


def _asked(kept: Sequence[tuple[Agreement, float]]) -> Asked:
    stages = sorted((each for each, _ in kept), key=lambda each: each.plan.round_number)
    return Asked(stages=tuple(stages), since=min(since for _, since in kept))


def waiting(
    keeper: Keeper, ledger: Ledger, consent: Consent, identities: tuple[bytes, ...], *, clock: float
) -> tuple[Asked, ...]:
    """What nobody decided yet and the server may still wait for, the oldest first."""
    now = _latest_moment(ledger, clock)
    said, left = _said(ledger, consent, now), []

    def lapsed(own: str, frame: Frame) -> bool:
        return _has_lapsed(keeper, consent, own, frame, now)

    for asked in known(keeper, identities, lapsed=lapsed):
        stages = tuple(each for each in asked.stages if each.proposal().hex() not in said)
        if stages and asked.dataset in consent.data:
            left.append(Asked(stages=stages, since=asked.since))
    return tuple(left)


def decide(
    ledger: Ledger,
    consent: Consent,
    pending: Sequence[Asked],
    name: str,
    *,
    accepted: bool,
    reason: str = "",
) -> Decision:
    """Writes the owner's decision about what waits under `name`, or changes one about the same.

    Raises:
        LedgerConflict: nothing of that name waits, or was decided: it may have changed.
    """
    asked = next((each for each in pending if each.name == name), None)
    before = [each for each in ledger.decisions() if name_of(each.proposals) == name]
    if asked is not None:
        dataset = consent.dataset(asked.dataset)
        key = BudgetKey(dataset.account or asked.dataset, dataset.unit)
        run_id, proposals = asked.run_id, asked.proposals
    elif before:
        key = BudgetKey(before[-1].dataset, before[-1].unit)
        run_id, proposals = before[-1].run_id, before[-1].proposals
    else:
        names = ", ".join(each.name for each in pending) or "nothing waits"
        raise LedgerConflict(
            f"Expected what waits ({names}), got {name!r}: look again, what is asked may be "
            "another by now."
        )
    return ledger.decide(key, run_id=run_id, proposals=proposals, accepted=accepted, reason=reason)
