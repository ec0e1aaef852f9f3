"""Wait for owners who approve jobs themselves, before anything of a run is charged.

Their parties repeatedly receive the proposals that they will be asked to join, until each owner has
decided. The server learns that an owner has yet to decide, then an approval or a reason class, and
nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from parley.client.contract.agreement import Agreement
from parley.client.contract.message_frames import WIRE_VERSION, MessageFrame
from parley.client.contract.refusals import Reason
from parley.server.rounds.party_facts import PartyFacts
from parley.server.rounds.party_requests import (
    TRANSIENT_REASONS,
    Traffic,
    Transport,
    compute_max_reply,
    exchange_frames,
)
from parley.server.rounds.party_status import PartyStates, PartyStatus

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""Pauses between two requests to a party; each is twice the one before."""


@dataclass(frozen=True, kw_only=True)
class ReachedParties:
    """The parties of a deployment that a run reached, and how to reach them again.

    Attributes:
        timeout_s: for a party to answer one request.
        needed: minimum number of parties that take part.
        approval_s: how long to wait for owners who approve themselves.
        facts: of each party that takes part; facts that must be equal are equal.
    """

    transport: Transport
    party_states: PartyStates
    timeout_s: float
    needed: int
    approval_s: float = 86_400.0
    setup: Traffic = field(default_factory=Traffic)
    facts: Mapping[int, PartyFacts] = field(default_factory=dict)

    @property
    def requiring_approval(self) -> frozenset[int]:
        """Parties whose owners may have to approve."""
        return frozenset(index for index, own in self.facts.items() if own.asks)


def wait_for_approvals(
    parties: ReachedParties, proposals: Sequence[Agreement]
) -> dict[int, Reason]:
    """Return the parties that do not take part, with reasons; the others' owners approved
    everything. The wait ends if too many are missing.
    """
    party_states, max_declined = parties.party_states, len(parties.facts) - parties.needed
    party_states.set_stage("approval", round_number=party_states.round)
    until, pause = time.monotonic() + parties.approval_s, FIRST_PAUSE_S
    waiting, declined = set(parties.requiring_approval), dict[int, Reason]()
    frames = [
        MessageFrame(
            kind="propose",
            head={"version": WIRE_VERSION, **each.build_head()},
            blobs=(each.components,),
        )
        for each in proposals
    ]
    while True:
        there = waiting & set(parties.transport.online())
        said: dict[int, list[Reason | None]] = {}
        for party, reason in _request_decisions(parties, frames, there):
            said.setdefault(party, []).append(reason)
        for party, reasons in said.items():
            lasting = [each for each in reasons if each and each not in _RETRY_REASONS]
            if lasting:
                declined[party] = lasting[0]
                party_states.set_party(party, PartyStatus.DECLINED, str(lasting[0]))
            elif reasons == [None] * len(frames):
                party_states.set_party(party, PartyStatus.ONLINE)
            else:
                party_states.set_party(party, PartyStatus.WAITING)
                continue
            waiting.remove(party)
        left = until - time.monotonic()
        if not waiting or len(declined) > max_declined or left <= 0:
            break
        party_states.set_stage(
            "approval", round_number=party_states.round
        )  # Write the states now, for readers during the wait.
        time.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE_S)
    if len(declined) <= max_declined:
        for party in waiting:
            declined[party] = Reason.WAITING
            party_states.set_party(party, PartyStatus.DECLINED, str(Reason.WAITING))
    return declined


_RETRY_REASONS = TRANSIENT_REASONS | {Reason.WAITING}


def _request_decisions(
    parties: ReachedParties, frames: Sequence[MessageFrame], online: Collection[int]
) -> Iterator[tuple[int, Reason | None]]:
    """Yield each party's answer to each of the proposals; None is an approval."""
    for frame in frames:
        for reply in exchange_frames(
            parties.transport,
            dict.fromkeys(online, frame),
            needed=online,
            timeout_s=parties.timeout_s,
            traffic=parties.setup,
            largest=compute_max_reply(parties=1, dimension=0),
        ):
            if reply.party in online:
                yield reply.party, reply.reason
