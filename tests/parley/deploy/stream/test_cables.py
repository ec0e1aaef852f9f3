"""Connections that die without a word, and how long a party waits before it dials again."""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path

import grpc
import numpy as np
import pytest
from attending import until
from cables import Cable
from ports import asked, echo

from parley.client.contract.message_frames import decode_frame
from parley.client.contract.roster import RosterError
from parley.deploy.child_processes import find_free_ports
from parley.deploy.stream import grpc_options, party_client, stream_framing
from parley.deploy.stream.grpc_client import CallError
from parley.deploy.stream.party_client import PartyClient, _RequestQueue, build_answer_request


@pytest.fixture
def cable(monkeypatch):
    """Makes cables to a world's server; dead connections are noticed within a second."""
    monkeypatch.setattr(grpc_options, "_PING_MS", 300)
    made = []

    def lay(world):
        made.append(Cable(("127.0.0.1", world.number)))
        return made[-1]

    yield lay
    for each in made:
        each.close()


def test_a_half_open_connection_is_noticed_and_the_request_answered_on_another(world, cable):
    transport = world.open(away_s=20.0)
    wire, computed, go_on = cable(world), [], threading.Event()

    def slow(request):
        computed.append(request)
        go_on.wait(20)
        return b"done"

    world.attend(0, slow, address=wire.address)
    until(lambda: transport.online() == (0,))
    replies = asked(transport, {0: b"work"}, timeout_s=30)
    until(lambda: computed)
    wire.die()
    go_on.set()
    until(lambda: replies == [(0, b"done")], timeout_s=40)
    assert wire.connections == 2
    assert computed == [b"work"]


def test_every_option_is_one_that_grpc_knows():
    """It ignores the others without a word: pings were then taken amiss, a line cut every 50 s."""
    library = Path(grpc._cython.cygrpc.__file__).read_bytes()
    names = [
        name
        for name, _ in (
            *grpc_options.build_server_options(3),
            *grpc_options.build_channel_options(),
        )
    ]
    assert len(names) > 15
    for name in names:  # the whole of the name, or the end of a longer one
        assert name.encode() + b"\0" in library, name


def test_a_connection_on_which_nothing_is_asked_stays(world, cable):
    transport = world.open()
    wire, said = cable(world), []
    world.attend(0, echo, address=wire.address, said=said)
    until(lambda: transport.online() == (0,))
    time.sleep(4 * grpc_options._PING_MS / 1000)
    assert said == [f"Connected to {wire.address}."]
    assert wire.connections == 1
    assert dict(transport.exchange({0: b"a"}, timeout_s=10)) == {0: b"answer to a"}


@pytest.mark.heavy
def test_a_cable_that_dies_in_every_kind_of_exchange_changes_no_bit(consortium, cable):
    serving = consortium.serve(away_s=30.0)
    wire, died = cable(consortium), set()

    def answers(folder):
        own = build_answer_request(folder)

        def answer(request):
            kind = decode_frame(request).kind
            reply = own(request)
            if kind not in died:
                died.add(kind)
                wire.die()  # the answer goes nowhere
            return reply

        return answer

    consortium.attend(0, answers(consortium.home(0)), address=wire.address)
    for party in (1, 2):
        consortium.attend(party, build_answer_request(consortium.home(party)))
    consortium.complete()
    run = consortium.submit()
    assert serving.run_next().state == "complete"
    assert len(died) >= 6, died
    assert np.array_equal(consortium.model(run), consortium.replayed())
    for entries in consortium.ledgers():
        assert entries == [(1, "committed"), (2, "committed"), (3, "committed")]


class _Dialing(PartyClient):
    """A party whose connections end as listed, True for one that held; it keeps its waits."""

    def __init__(self, ends):
        (port,) = find_free_ports(1)
        super().__init__(
            Path(), address=f"127.0.0.1:{port}", answers=lambda _: b"", say=self._heard
        )
        self.said, self.waits, self._ends = [], [], iter(ends)
        self._over.wait = self._wait

    def _wait(self, timeout):
        self.waits.append(timeout)

    def _heard(self, event):
        self.said.append(str(event))

    def _connect(self):
        end = next(self._ends)
        if isinstance(end, Exception):
            raise end
        self._attended = end


def test_waits_grow_to_three_seconds_and_start_anew_after_a_connection_that_held():
    lost, refused = [OSError("lost")] * 9, CallError("no such party", is_permanent=True)
    party = _Dialing([*lost, True, *lost[:2], refused])
    with pytest.raises(CallError, match="no such party"):
        party.run_forever()
    longest = [*(min(0.1 * 1.6**k, 3.0) for k in range(9)), 0.1, 0.16, 0.256]
    assert len(party.waits) == len(longest)
    for wait, most in zip(party.waits, longest, strict=True):
        assert most / 2 <= wait <= most * 1.0001
    assert len({wait / most for wait, most in zip(party.waits, longest, strict=True)}) > 6
    assert [line.split(": ")[1] for line in party.said] == [
        "lost. Trying again.",
        "the server ended it. Trying again.",
        "lost. Trying again.",
    ]


def test_a_roster_is_parsed_again_only_after_a_change(consortium, monkeypatch):
    parsed, load = [], party_client.load_deployment
    monkeypatch.setattr(party_client, "load_deployment", lambda p: parsed.append(p) or load(p))
    home = consortium.home(0)
    party = PartyClient(home, address="", answers=echo, say=print)
    assert [party._get_deployment_id() for _ in range(3)] == [consortium.deployment.id] * 3
    assert len(parsed) == 1
    roster = home / "deployment.toml"
    replaced = roster.with_name("new")
    replaced.write_bytes(roster.read_bytes().replace(b"north", b"other"))
    replaced.replace(roster)
    with pytest.raises(RosterError, match="was changed by hand"):
        party._get_deployment_id()
    roster.unlink()
    with pytest.raises(RosterError, match="Expected a deployment file"):
        party._get_deployment_id()


def test_a_server_neither_ends_a_party_by_two_requests_of_one_number_nor_fills_its_memory(
    monkeypatch,
):
    requests, outgoing = _RequestQueue(), queue.SimpleQueue()

    def send(number, frame):
        requests.take(
            stream_framing.ReceivedFrame(number=number, allowed_ms=0, frame=frame), outgoing
        )

    send(1, b"one")
    send(1, b"one")
    with pytest.raises(stream_framing.EnvelopeError, match="request 1 again"):
        send(1, b"two")
    requests.give_up(CallError("over", is_permanent=True))
    with pytest.raises(CallError):  # and no KeyError: that of no time left is let go of once
        requests.take_next()
    monkeypatch.setattr("parley.deploy.stream.party_client._LARGEST_WAITING", 100)
    send(2, bytes(60))
    with pytest.raises(stream_framing.EnvelopeError, match="at most 100 bytes"):
        send(3, bytes(60))
