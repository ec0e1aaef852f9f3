"""Which sessions a party has open, and the nonce of its next set-up.

Room and secrets of the masks: no record, and no ε of the noise, has a part in it.
"""

from __future__ import annotations

from collections.abc import Callable

from parley.client.contract.party_protocol import Declined, Reason
from parley.client.contract.roster import Deployment
from parley.client.party.joined_session import Joined
from parley.client.party.party_folder import Keeper
from parley.secure_agg.mask_graph import MOST_SETUPS, next_nonce, roster_digest


def make_room(keeper: Keeper, joined: Joined, *, most: int, read: Callable[[str], Joined]) -> None:
    """Erases what the new session supersedes, and the longest idle beyond `most`."""
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
