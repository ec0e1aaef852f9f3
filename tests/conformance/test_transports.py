"""What every transport promises. A new one subclasses `TransportConformance`: a way to connect."""

from __future__ import annotations

import ast
import threading
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import in_process
import pytest
from attending import World, until
from fake_grid import Clock, FakeGrid, frame, reply
from in_process import InProcessTransport

from parley.client.flower_client_app import build_content, read_frame
from parley.deploy.stream.grpc_server import StreamTransport
from parley.server.flower_server_app import GridTransport

ROOT = Path(__file__).parents[2]


def answer(party: int, request: bytes) -> bytes:
    """What party `party` replies: nobody else's reply looks like it."""
    return frame("reply", bytes([party]) + request)


class TransportConformance:
    """Its fixture `connect(offline=(), silent=())` gives a transport to three parties: `answer`.

    Attributes:
        transport: the class.
        timeout_s: what a silent party costs its tests.
    """

    transport: ClassVar[type]
    timeout_s: ClassVar[float] = 5.0

    @pytest.fixture
    def connect(self):
        raise NotImplementedError

    def exchange(self, transport, requests):
        return dict(transport.exchange(requests, timeout_s=self.timeout_s))

    @pytest.mark.parametrize("size", [0, 10, 5_000_000])
    def test_bytes_of_any_length_reach_the_party_and_come_back_whole(self, connect, size):
        requests = {party: frame(blob=bytes([party]) * size) for party in range(3)}
        expected = {party: answer(party, request) for party, request in requests.items()}
        assert self.exchange(connect(), requests) == expected

    def test_only_those_who_are_asked_reply(self, connect):
        transport = connect()
        assert self.exchange(transport, {}) == {}
        assert set(self.exchange(transport, {1: frame()})) == {1}

    def test_parties_that_can_be_asked_are_named_in_order(self, connect):
        assert connect().online() == (0, 1, 2)
        assert connect(offline={1}).online() == (0, 2)

    def test_a_party_that_is_offline_or_silent_costs_nobody_else_the_reply(self, connect):
        requests = dict.fromkeys(range(3), frame())
        assert set(self.exchange(connect(offline={0}), requests)) == {1, 2}
        assert set(self.exchange(connect(silent={1}), requests)) == {0, 2}

    def test_every_exchange_yields_the_replies_to_its_own_requests(self, connect):
        transport = connect()
        first = transport.exchange(
            dict.fromkeys(range(3), frame(blob=b"1")), timeout_s=self.timeout_s
        )
        next(first)  # the caller has enough
        requests = dict.fromkeys(range(3), frame(blob=b"2"))
        assert self.exchange(transport, requests) == {
            party: answer(party, request) for party, request in requests.items()
        }

    def test_a_reply_of_more_bytes_than_are_allowed_is_none(self, connect):
        requests = {party: frame(blob=bytes(100 if party == 1 else 10)) for party in range(3)}
        most = len(answer(0, requests[0]))
        replies = connect().exchange(requests, timeout_s=self.timeout_s, largest=most)
        assert {party for party, _ in replies} == {0, 2}

    def test_a_party_that_is_not_in_the_roster_is_our_mistake(self, connect):
        with pytest.raises(ValueError, match=r"Expected parties below 3, got \[3\]"):
            self.exchange(connect(), {3: frame()})


class TestInProcess(TransportConformance):
    transport = InProcessTransport

    @pytest.fixture
    def connect(self, monkeypatch):
        def opened(folder):
            return SimpleNamespace(
                handle=lambda request: answer(int(folder.name), request), close=lambda: None
            )

        def connect(offline=(), silent=()):
            monkeypatch.setattr(in_process, "PartyService", SimpleNamespace(open=opened))
            transport = InProcessTransport(
                [Path(str(party)) for party in range(3)], lost=lambda _kind, party: party in silent
            )
            transport.offline = set(offline)
            return transport

        return connect


class TestGrid(TransportConformance):
    transport = GridTransport

    @pytest.fixture
    def connect(self, world):
        deployment, nodes = world

        def connect(offline=(), silent=()):
            def behave(node, message):
                party = node - nodes[0].node_id
                if party in silent:
                    return None
                return reply(message, build_content(answer(party, read_frame(message.content))))

            present = [node for party, node in enumerate(nodes) if party not in offline]
            return Clock().transport(FakeGrid(present, behave), deployment)

        return connect


class TestStream(TransportConformance):
    transport = StreamTransport
    timeout_s = 3.0

    @pytest.fixture
    def connect(self, tmp_path):
        worlds, over = [], threading.Event()

        def connect(offline=(), silent=()):
            def answers(party):
                if party in silent:
                    return lambda request: over.wait() and b""
                return lambda request: answer(party, request)

            world = World(tmp_path / str(len(worlds)))
            worlds.append(world)
            transport = world.open()
            present = [party for party in range(3) if party not in offline]
            for party in present:
                world.attend(party, answers(party))
            until(lambda: len(transport.online()) == len(present))
            return transport

        yield connect
        over.set()
        for world in worlds:
            world.close()


def test_every_transport_is_held_to_it():
    folders = ("client", "parley", "server", "simulations")
    files = chain.from_iterable((ROOT / folder).rglob("*.py") for folder in folders)
    texts = (path.read_text(encoding="utf-8") for path in files)
    defined = {
        item.name
        for text in texts
        if "def exchange(" in text
        for item in ast.walk(ast.parse(text))
        if isinstance(item, ast.ClassDef)
        and {"online", "exchange"} <= {getattr(part, "name", "") for part in item.body}
    }
    held = {kind.transport.__name__ for kind in TransportConformance.__subclasses__()}
    assert held == (defined - {"Transport"}) | {"InProcessTransport"}
