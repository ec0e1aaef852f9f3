"""Two runs of one server with the same parties and records, whose messages are interleaved.

Every message of one session is also sent in the other's name, before it is sent in its own, and one
session is finished in the middle of the other.
"""

import numpy as np
import pytest

from parley.client.contract.message_frames import WIRE_VERSION, MessageFrame, encode_frame
from parley.privacy.ledger.ledger import Ledger

SESSIONS = {"0a" * 16: "r-1", "0b" * 16: "r-2"}
POINTS = ["privacy.noise-point=server", "privacy.noise-point=share"]


class Conversation:
    """One session's messages, in order; `replies` is called with each answer."""

    def __init__(self, world, session, *settings):
        self.world, self.session = world, session
        world.run = SESSIONS[session]
        world.propose(*settings)
        self.plan = world.plan
        self.head = world.join_head(session)
        self.server = world.protocol_server(world.parameters(session))
        self.sums = []

    def _asking(self, kind, blobs, **head):
        head = {"version": WIRE_VERSION, "session": self.session, **head}
        return MessageFrame(kind=kind, head=head, blobs=tuple(blobs))

    def messages(self, rounds=2):
        """Yields (party, request) and is sent the answer."""
        world, server = self.world, self.server
        for i in range(world.count):
            reply = yield i, self._asking("join", [b""], **self.head)
            server.handle_advertise(reply.blobs[0])
        rosters = server.build_rosters()
        world.run, world.plan = self.head["run"], self.plan
        world.agree(rosters[0], self.session)
        agreement = world.agreement
        for i, roster in rosters.items():
            reply = yield i, self._asking("roster", [roster, b""], prepare=1)
            server.handle_encapsulated(reply.blobs[0])
            server.handle_shares(reply.blobs[1])
        for number in range(1, rounds + 1):
            world.server, world.agreement, world.session = server, agreement, self.session
            state = world.state(np.full(5, 0.1 * number))
            requests = world.round_requests(
                number, number, plan=self.plan, prepare=number + 1, state=state
            )
            for i, request in requests.items():
                reply = yield i, request
                server.handle_vector(reply.blobs[0])
                server.handle_shares(reply.blobs[1], number=number + 1)
            listed = server.close()
            for i in server.survivors:
                reply = yield i, self._asking("survivors", [listed])
                server.handle_confirm(reply.blobs[0])
            for i, message in server.build_confirmations().items():
                reply = yield i, self._asking("confirmations", [message])
                server.handle_reveal(reply.blobs[0])
            self.sums.append(server.finish())
        for i in range(world.count):
            yield i, self._asking("finish", [])


def held(world, wired, rounds, *, replayed=False):
    """Takes turns until all have ended; the reasons why replayed messages were refused."""
    waiting = {each.session: each.messages(count) for each, count in rounds.items()}
    now = {session: next(messages) for session, messages in waiting.items()}
    refused = []
    while now:
        for session in list(now):
            party, request = now[session]
            others = [other for other in SESSIONS if other != session]
            if replayed and request.kind not in {"join", "finish"}:  # a join names its session
                for other in others:
                    moved = {**request.head, "session": other}
                    frame = MessageFrame(kind=request.kind, head=moved, blobs=request.blobs)
                    refused.append(wired.reason(world.raw(party, encode_frame(frame))))
            reply = wired.ok(world.raw(party, encode_frame(request)))
            try:
                now[session] = waiting[session].send(reply)
            except StopIteration:
                del now[session]
    return refused


def charged(world):
    """Which entries each party has, by run."""
    for folder in world.folders:
        with Ledger.open(folder / "ledger.sqlite", read_only=True) as ledger:
            assert ledger.verify() == []
            yield [(entry.entry.run_id, entry.entry.index) for entry in ledger.list_entries()]


@pytest.mark.parametrize("point", POINTS)
def test_a_message_of_one_session_is_none_of_another_and_spoils_neither(tmp_path, wired, point):
    made = []
    for name, replayed in (("apart", False), ("together", True)):
        (tmp_path / name).mkdir()
        world = wired.World(tmp_path / name, overrides=(point,), reopen=False)
        both = [Conversation(world, session, point) for session in SESSIONS]
        if not replayed:
            for at, each in enumerate(both):
                held(world, wired, {each: 2 + at})
        else:
            reasons = held(
                world, wired, {each: 2 + at for at, each in enumerate(both)}, replayed=True
            )
            assert len(reasons) > 40
            assert set(reasons) <= {"protocol", "plan-changed", "unknown-session"}
        made.append([vector for each in both for vector in each.sums])
        for entries in charged(world):
            assert sorted(entries) == [
                *(("r-1", n) for n in (1, 2)),
                *(("r-2", n) for n in (1, 2, 3)),
            ]
    apart, together = made
    assert len(apart) == len(together) == 5
    if point == POINTS[0]:  # else each run's shares of noise are its own draws
        for one, other in zip(apart, together, strict=True):
            np.testing.assert_array_equal(one, other)
