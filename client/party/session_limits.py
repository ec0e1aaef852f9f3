"""Which sessions a party has open, and the nonce of its next set-up.

Room and secrets of the masks: no record, and no ε of the noise, has a part in it.
"""

from __future__ import annotations

from collections.abc import Callable

from parley.client.contract.party_protocol import Declined, Reason
from parley.client.contract.roster import Deployment
from parley.client.party.joined_session import JoinedSession
from parley.client.party.party_folder import PartyFolder
from parley.secure_agg.mask_graph import MAX_SETUPS, compute_roster_digest, derive_nonce


def free_session_slot(
    party_folder: PartyFolder,
    joined: JoinedSession,
    *,
    max_sessions: int,
    load_session: Callable[[str], JoinedSession],
) -> None:
    """Erases what the new session supersedes, and the longest idle beyond `max_sessions`."""
    open_sessions = party_folder.list_sessions()
    if joined.session in open_sessions:
        raise Declined(Reason.PROTOCOL, "Expected a session that was not joined before.")
    others = []
    for session in open_sessions:
        try:
            agreement = load_session(session).agreement
        except (Declined, LookupError, ValueError):  # of a version before this one
            party_folder.erase_session(session)
            continue
        key = (joined.agreement.run_id, joined.agreement.dataset)
        if (agreement.run_id, agreement.dataset) == key:
            party_folder.erase_session(session)
        else:
            others.append(session)
    for session in others[: max(0, len(others) - max_sessions + 1)]:
        party_folder.erase_session(session)


def derive_setup_nonce(party_folder: PartyFolder, identity: bytes, deployment: Deployment) -> bytes:
    """The nonce of the next set-up of a graph that is not complete.

    Raises:
        Declined: protocol: as many set-ups as the bounds allow for were made with this roster.
    """
    roster = compute_roster_digest(deployment.identities, bytes.fromhex(deployment.id))
    count = party_folder.count_setups(roster)
    if count >= MAX_SETUPS:
        raise Declined(
            Reason.PROTOCOL,
            f"Expected at most {MAX_SETUPS} set-ups with one roster, got one more: each gives a "
            "server another graph to choose from. Go on under a new deployment, with new "
            "identities.",
        )
    return derive_nonce(identity, roster=roster, count=count)
