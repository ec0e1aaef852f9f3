"""What a party looks at before it takes a run in: its budget, room for a session, a fresh nonce."""

from __future__ import annotations

from collections.abc import Callable

from parley.client.contract.protocol import Declined, Reason
from parley.client.contract.roster import Deployment
from parley.client.party import charging
from parley.client.party.acceptance import Accepted
from parley.client.party.data_set import DataSet
from parley.client.party.session import Joined
from parley.client.party.storage import Keeper
from parley.privacy.ledger.ledger import Ledger
from parley.secure_agg.beacon import MOST_SETUPS, next_nonce, roster_digest


def check_budget(ledger: Ledger, dataset: DataSet, accepted: Accepted, *, party: str) -> None:
    """Whether the owner's limits and what is left of the budget hold the whole run.

    Args:
        ledger: the party's own; the data set is registered in it.
        dataset: that the run names.
        accepted: the run.
        party: the party's name in its ledger.

    Raises:
        Declined: the job, or what is left, is too small for it.
        LedgerError: a ledger that cannot be used.
    """
    agreed, plan = accepted.agreement, accepted.agreement.plan
    name = agreed.dataset
    spent = charging.spent_before(ledger, plan, name=name)
    charging.check_job(dataset, plan, releases=agreed.rounds, spent=spent)
    ledger.check()
    charging.register(ledger, dataset, name=name, holding=accepted.holding)
    charging.check_room(ledger, plan, name=name, party=party, rounds=agreed.rounds)


def make_room(keeper: Keeper, joined: Joined, *, most: int, read: Callable[[str], Joined]) -> None:
    """Erases what the new session supersedes, and the longest idle beyond the limit.

    Args:
        keeper: of the sessions.
        joined: the new one.
        most: sessions at a time.
        read: a session that is kept.

    Raises:
        Declined: protocol: the session is known.
    """
    open_sessions = keeper.sessions()
    if joined.session in open_sessions:
        raise Declined(Reason.PROTOCOL, "Expected a session that was not joined before.")
    others = []
    for session in open_sessions:
        try:
            known = read(session).agreement
        except (Declined, LookupError, ValueError):  # of a version before this one
            keeper.end_session(session)
            continue
        same = (joined.agreement.run_id, joined.agreement.dataset)
        if (known.run_id, known.dataset) == same:
            keeper.end_session(session)
        else:
            others.append(session)
    for session in others[: max(0, len(others) - most + 1)]:
        keeper.end_session(session)


def nonce(keeper: Keeper, identity: bytes, deployment: Deployment) -> bytes:
    """The nonce of the next set-up of a graph that is not complete.

    Raises:
        Declined: protocol: as many set-ups as the bounds allow for were made with this roster.
    """
    roster = roster_digest(deployment.identities, bytes.fromhex(deployment.id))
    count = keeper.setups(roster)
    if count >= MOST_SETUPS:
        raise Declined(
            Reason.PROTOCOL,
            f"Expected at most {MOST_SETUPS} set-ups with one roster, got one more: each gives a "
            "server another graph to choose from. Go on under a new deployment, with new "
            "identities.",
        )
    return next_nonce(identity, roster=roster, count=count)
