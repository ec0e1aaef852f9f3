"""The port against whoever comes: strangers, other parties, slow readers, misbehaving parties."""

from __future__ import annotations

import contextlib
import resource
import shutil
import socket
import ssl
import struct
import threading
import time
from dataclasses import replace

import pytest
from attending import World, until
from ports import Call, asked, attended, echo, memory

from parley.client.contract.roster import render_deployment
from parley.deploy.authorization import certify_party
from parley.deploy.certificate_making import make_client_request
from parley.deploy.process_errors import ProcessError
from parley.deploy.stream import connections, grpc_options, stream_framing
from parley.deploy.stream.grpc_client import CallError, build_call_metadata
from parley.deploy.stream.grpc_server import GrpcServer
from parley.deploy.stream.stream_framing import CHUNK, split_into_chunks


def tls(world, folder=None, **change):
    context = ssl.create_default_context(cafile=str(world.root / "server" / "ca.crt"))
    if folder is not None:
        context.load_cert_chain(folder / "party.pem", folder / "party.key")
    for name, value in change.items():
        setattr(context, name, value)
    raw = socket.create_connection(("127.0.0.1", world.number), timeout=10)
    return context.wrap_socket(raw, server_hostname="127.0.0.1")


def closes(connection):
    """Whether the server closes a connection without a byte of HTTP/2."""
    try:
        return b"HTTP" not in connection.recv(1000)
    except OSError:
        return True


def test_garbage_plain_http_and_tls_without_a_certificate_get_nothing(world):
    transport = world.open()
    for spoken in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(range(256)) * 50, b"\x16\x03\x01"):
        with socket.create_connection(("127.0.0.1", world.number), timeout=10) as raw:
            raw.sendall(spoken)
            with contextlib.suppress(OSError):  # it may be closed by then
                raw.shutdown(socket.SHUT_WR)
            assert closes(raw)
    with contextlib.suppress(ssl.SSLError, OSError), tls(world) as stranger:
        stranger.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert stranger.recv(1000) == b""
    world.attend(0, echo)
    until(lambda: transport.online() == (0,))
    assert dict(transport.exchange({0: b"a"}, timeout_s=5)) == {0: b"answer to a"}


def test_a_party_with_tls_1_2_gets_nothing_and_with_1_3_it_does(world):
    world.open()
    home = world.home(0)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        tls(world, home, maximum_version=ssl.TLSVersion.TLSv1_2)
    with tls(world, home) as one:
        assert one.version() == "TLSv1.3"


def certified(world, home, party):
    """Gives a folder a new key with the authority's certificate for that party."""
    request = make_client_request(home / "party.key")
    signed = certify_party(request, party, authority=world.root / "authority")
    (home / "party.pem").write_bytes(signed)


def test_a_certificate_of_another_authority_or_of_the_past_gets_nothing(world, tmp_path, in_days):
    transport = world.open()
    home, other = world.home(0), World(tmp_path / "other")
    for name in ("party.key", "party.pem"):
        shutil.copy(other.home(0) / name, home)
    assert Call(world).end()[0] == "UNAVAILABLE"
    with in_days(-500):
        certified(world, home, world.deployment.parties[0])
    assert Call(world).end()[0] == "UNAVAILABLE"
    assert transport.online() == ()


def test_who_is_not_in_the_roster_of_today_is_refused_before_a_frame_is_read(world):
    without_north = replace(world.deployment, parties=world.deployment.parties[1:])
    transport = world.open(deployment=without_north)
    assert Call(world, 0).end() == (
        "PERMISSION_DENIED",
        f"The roster of {without_north.id[:16]}… has no party north.",
    )
    # A's certificate for B's identity, signed by the authority itself.
    _, south, east = world.deployment.parties
    certified(world, world.home(1), replace(south, identity=east.identity))
    code, said = Call(world, 1).end()
    assert (code, "for another identity than the roster's" in said) == ("PERMISSION_DENIED", True)
    # An operator is no party.
    for kind in ("key", "pem"):
        shutil.copy(world.root / f"operator/operator.{kind}", world.home(2) / f"party.{kind}")
    assert Call(world, 2).end()[0] == "PERMISSION_DENIED"
    assert transport.online() == ()


def test_another_protocol_or_another_roster_is_refused_with_both_named(world, monkeypatch):
    transport = world.open()
    ours = dict(build_call_metadata(world.deployment.id))
    for change, words in (
        (
            {"parley-wire": "3", "parley-version": "0.0.9"},
            ("Parley 0.0.9 (protocol 3). Update the party.", f"(protocol {ours['parley-wire']})"),
        ),
        ({"parley-wire": "999"}, ("(protocol 999). Update the server.",)),
        ({"parley-deployment": "ab" * 32}, (world.deployment.id[:16], "abababababababab")),
    ):
        code, said = Call(world, metadata=tuple((ours | change).items())).end()
        assert code == "FAILED_PRECONDITION"
        assert all(word in said for word in words)
    assert Call(world, metadata=()).end()[0] == "FAILED_PRECONDITION"
    # The release is only named: with the same protocol, two minor versions work together.
    newer = tuple((ours | {"parley-version": "1.99.0"}).items())
    attended(world, transport, metadata=newer).close()
    # And a party's process ends with it, rather than trying for ever.
    folder = world.home(0)
    smaller = replace(world.deployment, parties=world.deployment.parties[:2])
    (folder / "deployment.toml").write_text(render_deployment(smaller))
    ended = world.attend(0, echo)
    until(lambda: ended)
    assert isinstance(ended[0], CallError)
    assert "Ask the server administrator for the current deployment.toml" in str(ended[0])


def number_of(request):
    return struct.unpack_from(">Q", request)[0]


def test_a_second_connection_takes_the_place_of_one_that_answers_no_more(world, monkeypatch):
    monkeypatch.setattr(connections, "_PROBE_S", 0.2)
    transport = world.open()
    first = attended(world, transport)  # reads, and never answers
    second = Call(world)
    assert first.end() == ("ABORTED", "replaced: a new connection of this party replaced this one.")
    replies = asked(transport, {0: b"a"})
    request = next(second.call)
    second.send(*split_into_chunks(number_of(request), b"from the second"))
    until(lambda: replies == [(0, b"from the second")])
    # One that the check refuses takes nobody's place.
    code, _ = Call(world, metadata=()).end()
    assert code == "FAILED_PRECONDITION"
    assert transport.online() == (0,)
    second.close()


def test_a_copied_key_does_not_end_the_party_that_answers_and_both_owners_hear_of_it(
    world, tmp_path
):
    """Also while the first one computes: the copy is refused, and takes over when it is gone."""
    transport, busy, go_on = world.open(), threading.Event(), threading.Event()
    shutil.copytree(world.home(0), tmp_path / "copy")
    first_said, copy_said = [], []

    def slow(request):
        busy.set()
        assert go_on.wait(30)
        return b"answer of the first"

    ended = [world.attend(0, slow, said=first_said)]
    until(lambda: transport.online() == (0,))
    replies = asked(transport, {0: b"a"})
    assert busy.wait(30)
    ended.append(world.attend(0, echo, folder=tmp_path / "copy", said=copy_said))
    until(lambda: any("another process is connected with this party's key" in s for s in copy_said))
    assert not any(line.startswith("Connected") for line in copy_said)
    assert any("Another process connected" in line for line in first_said)
    (line,) = (line for line in world.said if "is connected twice" in line)
    assert line.startswith("! north is connected twice")
    assert world.ports[-1].connections.list_duplicates() == {0}
    go_on.set()
    until(lambda: replies == [(0, b"answer of the first")])
    world.attending[0].end(EOFError("the first one is stopped"))
    until(lambda: any(line.startswith("Connected") for line in copy_said))
    until(lambda: list(transport.exchange({0: b"b"}, timeout_s=5)) == [(0, b"answer to b")])
    assert [type(each) for each in ended[0]] == [EOFError]
    assert ended[1] == []


def test_copies_that_come_at_once_take_no_place_and_are_told_once(world):
    transport, said = world.open(), []
    ended = world.attend(0, echo, said=said)
    until(lambda: transport.online() == (0,))
    for _ in range(5):
        codes = [call.end() for call in [Call(world) for _ in range(8)]]
        assert {code for code, _ in codes} == {"ABORTED"}
        assert all(text.startswith("twice") for _, text in codes)
    assert dict(transport.exchange({0: b"a"}, timeout_s=5)) == {0: b"answer to a"}
    assert not any("Not connected" in line for line in said)
    assert sum("Another process connected" in line for line in said) == 1
    assert sum("is connected twice" in line for line in world.said) == 1
    assert ended == []


def head(number, total, offset, allowed=0):
    return struct.pack(">QQQI", number, total, offset, allowed)


MISBEHAVES = {
    "the same reply twice": lambda n: [*split_into_chunks(n, b"a"), *split_into_chunks(n, b"a")],
    "a reply that was not asked for": lambda n: [*split_into_chunks(n + 1, b"a")],
    "a chunk of another frame in between": lambda n: [
        next(split_into_chunks(n, bytes(2 * CHUNK))),
        *split_into_chunks(n + 1, b"a"),
    ],
    "chunks in another order": lambda n: list(split_into_chunks(n, bytes(2 * CHUNK)))[::-1],
    "a chunk twice": lambda n: [next(split_into_chunks(n, bytes(2 * CHUNK)))] * 2,
    "a chunk that is not full": lambda n: [head(n, CHUNK, 0) + bytes(10)],
    "more than it said": lambda n: [head(n, 5, 0) + bytes(6)],
    "no chunk": lambda n: [b"abc"],
    "nothing": lambda n: [b""],
    "ten gigabytes": lambda n: [head(n, 10**10, 0) + bytes(CHUNK)],
    "a larger message than a chunk": lambda n: [head(n, CHUNK + 9, 0) + bytes(CHUNK + 9)],
}


@pytest.mark.parametrize("how", MISBEHAVES)
def test_a_party_that_sends_what_it_may_not_loses_its_connection_and_nobody_else_does(world, how):
    transport = world.open(away_s=0.0)
    call = attended(world, transport)
    world.attend(1, echo)
    until(lambda: transport.online() == (0, 1))
    replies = asked(transport, {0: b"x", 1: b"y"}, largest=3 * CHUNK)
    number = number_of(next(call.call))
    call.send(*MISBEHAVES[how](number))
    code, _ = call.end()
    assert code in {"ABORTED", "RESOURCE_EXHAUSTED", "CANCELLED"}
    until(lambda: transport.online() == (1,))
    until(lambda: (1, b"answer to y") in replies)
    assert dict(transport.exchange({1: b"z"}, timeout_s=5)) == {1: b"answer to z"}


def test_an_upload_beyond_what_was_asked_for_costs_no_memory(world):
    transport = world.open(away_s=0.0)
    call = attended(world, transport)
    replies = asked(transport, {0: b"x"}, largest=2 * CHUNK)
    number = number_of(next(call.call))
    before = memory()
    call.send(head(number, 10 << 30, 0) + bytes(CHUNK), *[bytes(CHUNK + 28)] * 64)
    call.end()
    assert memory() - before < 100 << 20  # what this process itself holds to send
    assert replies == []


def test_a_port_that_is_taken_is_said(world):
    world.open()
    with (
        pytest.raises(ProcessError, match=f"Cannot listen on 127.0.0.1:{world.number}"),
        GrpcServer(world.root / "server", world.deployment, listen="127.0.0.1", port=world.number),
    ):
        pass


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
    monkeypatch.setattr(connections, "_READS_S", 0.2)
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
    monkeypatch.setattr(grpc_options, "HANDSHAKE_S", 1.0)
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


def test_a_frozen_party_is_not_awaited_once_the_replies_are_enough(world):
    transport = world.open()
    frozen = attended(world, transport, 0)  # its connection is open, and nobody reads it
    world.attend(1, echo)
    until(lambda: transport.online() == (0, 1))
    seen = set()
    for party, _ in transport.exchange(
        dict.fromkeys(range(2), b"a"), timeout_s=60, is_enough=lambda: bool(seen)
    ):
        seen.add(party)
    assert seen == {1}
    assert world.ports[-1].connections.list_online() == {1}
    (heartbeat,) = split_into_chunks(stream_framing.HEARTBEAT, b"")
    frozen.send(heartbeat)  # it wakes up
    until(lambda: world.ports[-1].connections.list_online() == {0, 1})
    frozen.close()


def test_a_slow_party_that_answers_heartbeats_is_awaited(world):
    transport, seen, over = world.open(), set(), threading.Event()

    def slow(request):
        over.wait(10)
        return echo(request)

    world.attend(0, slow)
    world.attend(1, echo)
    until(lambda: transport.online() == (0, 1))
    checks = []

    def is_enough():
        checks.append(1)
        if len(checks) == 20:  # two heartbeats later
            over.set()
        return bool(seen)

    for party, _ in transport.exchange(
        dict.fromkeys(range(2), b"a"), timeout_s=60, is_enough=is_enough
    ):
        seen.add(party)
    assert seen == {0, 1}
