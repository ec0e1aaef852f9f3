"""Waiting for owners who want to say yes themselves, before anything of a run is charged.

Their parties are sent what they will be asked to join, again and again, until each was answered
for. A server hears that somebody has yet to decide, then a yes or a reason, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence

from parley.client.contract.agreement import Agreement
from parley.client.contract.party_protocol import WIRE_VERSION, Frame, Reason
from parley.server.rounds.party_status import PartyBoard, PartyStatus
from parley.server.rounds.transport import PASSING, Traffic, Transport, ask, reply_bound

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""Between two times that a party is asked: twice as long each time."""


def not_approved(
    proposals: Sequence[Agreement],
    asked: Collection[int],
    *,
    transport: Transport,
    board: PartyBoard,
    traffic: Traffic,
    timeout_s: float,
    wait_s: float,
    most: int,
) -> dict[int, Reason]:
    """Which of the parties do not take part, and why: the others' owners said yes to everything.

    Args:
        timeout_s: for a party to answer one request; `wait_s`: for its owner to decide.
        most: of them that may be missing: once more are, nobody is waited for any longer.
    """
    board.stage("approval", round_number=board.round)
    until, pause = time.monotonic() + wait_s, FIRST_PAUSE_S
    waiting, declined = set(asked), dict[int, Reason]()
    frames = [
        Frame(
            kind="propose",
            head={"version": WIRE_VERSION, **each.head()},
            blobs=(each.components,),
        )
        for each in proposals
    ]
    while True:
        there = waiting & set(transport.online())
        said: dict[int, list[Reason | None]] = {}
        for party, reason in _answers(frames, there, transport, traffic, timeout_s):
            said.setdefault(party, []).append(reason)
        for party, reasons in said.items():
            lasting = [each for each in reasons if each and each not in _AGAIN]
            if lasting:
                declined[party] = lasting[0]
                board.party(party, PartyStatus.DECLINED, str(lasting[0]))
            elif reasons == [None] * len(frames):
                board.party(party, PartyStatus.ONLINE)
            else:
                board.party(party, PartyStatus.WAITING)
                continue
            waiting.remove(party)
        left = until - time.monotonic()
        if not waiting or len(declined) > most or left <= 0:
            break
        board.stage("approval", round_number=board.round)  # whole, for whoever looks meanwhile
        time.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE_S)
    if len(declined) <= most:
        for party in waiting:
            declined[party] = Reason.WAITING
            board.party(party, PartyStatus.DECLINED, str(Reason.WAITING))
    return declined


_AGAIN = PASSING | {Reason.WAITING}


def _answers(
    frames: Sequence[Frame],
    there: Collection[int],
    transport: Transport,
    traffic: Traffic,
    timeout_s: float,
) -> Iterator[tuple[int, Reason | None]]:
    """What each of the parties says to each of the proposals; None is a yes."""
    for frame in frames:
        for reply in ask(
            transport,
            dict.fromkeys(there, frame),
            needed=there,
            timeout_s=timeout_s,
            traffic=traffic,
            largest=reply_bound(parties=1, dimension=0),
        ):
            if reply.party in there:
                yield reply.party, reply.reason
