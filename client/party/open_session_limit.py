"""The limit on a party's open sessions, and the nonce of its next set-up.

This concerns memory and the secrets of the masks. Records and the ε of the noise are not involved.
"""

from __future__ import annotations

from collections.abc import Callable

from parley.client.contract.refusals import Declined, Reason
from parley.client.contract.roster import Deployment
from parley.client.party.joined_session import JoinedSession
from parley.client.party.party_folder import PartyFolder
from parley.secure_agg.mask_graph import MAX_SETUPS, compute_roster_digest, derive_nonce

SessionLoader = Callable[[str], JoinedSession]


def free_session_slot(
    party_folder: PartyFolder, joined: JoinedSession, max_sessions: int, load_session: SessionLoader
) -> None:
    """Erase the sessions that the new one supersedes, and the longest idle beyond `max_sessions`.

    Raises:
        Declined: protocol, if the session was joined before.
    """
    open_sessions = party_folder.list_sessions()
    if joined.session in open_sessions:
        raise Declined(Reason.PROTOCOL, "Expected a session that was not joined before.")
    others = []
    for session in open_sessions:
        try:
            agreement = load_session(session).agreement
        except (Declined, LookupError, ValueError):  # written by an older version
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
    """Derive the nonce of the next set-up of a graph that is not complete.

    Raises:
        Declined: protocol, if this roster had as many set-ups as the bounds allow.
    """
    roster = compute_roster_digest(deployment.identities, bytes.fromhex(deployment.id))
    count = party_folder.count_setups(roster)
    if count >= MAX_SETUPS:
        expected = f"Expected at most {MAX_SETUPS} set-ups with one roster"
        why = "each gives a server another graph to choose from"
        remedy = "Continue with a new deployment and identities."
        raise Declined(Reason.PROTOCOL, f"{expected}, got one more: {why}. {remedy}")
    return derive_nonce(identity, roster=roster, count=count)
