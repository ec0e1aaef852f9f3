"""Strangers, slow readers and lost connections shut nobody out."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time

import pytest
from attending import until
from ports import attended, echo, memory

from parley.deploy.stream import attendance, settings
from parley.deploy.stream.settings import CHUNK


def test_a_request_whose_time_is_over_is_not_computed(world):
    transport = world.open()
    computed, go_on = [], threading.Event()

    def slow(request):
        computed.append(request)
        go_on.wait(20)
        return b""

    world.attend(0, slow)
    until(lambda: transport.online() == (0,))
    for request in (b"1", b"2"):
        assert dict(transport.exchange({0: request}, timeout_s=0.3)) == {}
    time.sleep(0.3)
    go_on.set()
    assert dict(transport.exchange({0: b"3"}, timeout_s=10)) == {0: b""}
    assert computed == [b"1", b"3"]


def test_a_party_that_does_not_read_is_dropped_and_the_others_are_served(world, monkeypatch):
    monkeypatch.setattr(attendance, "_READS_S", 0.2)
    transport = world.open(away_s=0.0)
    call = attended(world, transport)
    world.attend(1, echo)
    until(lambda: transport.online() == (0, 1))
    large = bytes(30 * CHUNK)
    got = dict(transport.exchange({0: large, 1: b"y"}, timeout_s=1.0))
    assert got == {1: b"answer to y"}
    until(lambda: transport.online() == (1,))
    call.close()


def strangers(world, count):
    """Connections that nothing is said on."""
    idle = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            idle.append(socket.create_connection(("127.0.0.1", world.number), timeout=30))
    return idle


def let_go(idle):
    """Waits until the server has ended each."""
    for one in idle:
        with one, contextlib.suppress(ConnectionError):
            assert one.recv(100) == b""


def test_strangers_that_hold_connections_open_are_let_go_and_limited(world, monkeypatch):
    monkeypatch.setattr(settings, "HANDSHAKE_S", 1.0)
    transport = world.open()
    idle = strangers(world, 40)
    let_go(idle)
    world.attend(0, echo)
    until(lambda: transport.online() == (0,))


def test_strangers_that_come_again_as_soon_as_they_are_let_go_shut_nobody_out(world):
    # Before: fourteen places for everybody; a party waited for as long as thirty strangers liked.
    transport = world.open()
    over, there = threading.Event(), threading.Semaphore(0)

    def stranger():
        while not over.is_set():
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", world.number), timeout=30) as one,
            ):
                there.release()
                one.recv(1)

    strangers = [threading.Thread(target=stranger, daemon=True) for _ in range(60)]
    for one in strangers:
        one.start()
    for _ in strangers:
        assert there.acquire(timeout=20)
    world.attend(0, echo)
    until(lambda: transport.online() == (0,))
    assert dict(transport.exchange({0: b"a"}, timeout_s=5)) == {0: b"answer to a"}
    over.set()


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_a_thousand_idle_connections_shut_nobody_out(world):
    low, high = resource.getrlimit(resource.RLIMIT_NOFILE)
    if high < 4096:
        pytest.skip(f"needs 4096 open files, this machine allows {high}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, high))
    idle = []
    try:
        transport = world.open()
        world.attend(0, echo)
        until(lambda: transport.online() == (0,))
        before = memory()
        idle = strangers(world, 1000)
        assert len(idle) == 1000
        assert dict(transport.exchange({0: b"a"}, timeout_s=10)) == {0: b"answer to a"}
        world.attend(1, echo)  # nor is who comes while they are there
        until(lambda: transport.online() == (0, 1), timeout_s=60)
        assert memory() - before < 64 << 20
    finally:
        let_go(idle)
        resource.setrlimit(resource.RLIMIT_NOFILE, (low, high))


def test_a_server_that_ends_and_comes_back_finds_its_parties_again(world):
    transport = world.open()
    said = []
    world.attend(0, echo, said=said)
    until(lambda: transport.online() == (0,))
    world.shut()
    until(lambda: any("Trying again" in line for line in said))
    time.sleep(0.5)
    again = world.open()
    until(lambda: again.online() == (0,), timeout_s=10)
    assert dict(again.exchange({0: b"a"}, timeout_s=5)) == {0: b"answer to a"}
