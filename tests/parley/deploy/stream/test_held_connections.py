"""Processes of this machine that hold 2,000 connections to a port: a server and its run go on."""

from __future__ import annotations

import errno
import http.client
import json
import os
import threading

from attending import until
from held_connections import answered, held_connections

from parley.deploy.stream.monitor import Pages
from parley.deploy.stream.queue import Queue, QueuedRun
from parley.local_http_server import MOST_CONNECTIONS
from parley.owner.page import serving

_COUNT = 2000
_STRANGERS = 1024 + 64
"""Connections that the parties' port lets come before a handshake, and some of the server's own."""


def open_files():
    return len(os.listdir("/proc/self/fd"))


def test_connections_beyond_the_bound_exhaust_no_file_and_keep_nobody_out(consortium):
    """On the parties' port, the monitor's and the owner's page at once, while a run goes on."""
    serving_ = consortium.serve()
    consortium.everybody()
    with (
        Pages(serving_.monitor, port=0) as pages,
        serving(consortium.home(0)) as owner,
    ):
        threading.Thread(target=owner.serve, daemon=True).start()
        before = open_files()
        ports = {
            pages.port: MOST_CONNECTIONS + 2,
            owner.server_port: MOST_CONNECTIONS + 2,
            consortium.number: _STRANGERS,
        }
        with (
            held_connections(pages.port, count=_COUNT) as one,
            held_connections(owner.server_port, count=_COUNT) as two,
            held_connections(consortium.number, count=_COUNT) as three,
        ):
            until(lambda: open_files() > before + 2 * MOST_CONNECTIONS)
            run = consortium.submit()
            assert serving_.next().state == "complete"
            assert json.loads(answered(pages.port, "/healthz"))["status"] == "ok"
            assert b"Parley" in answered(owner.server_port, "/")
            most = open_files() - before
            assert all(process.poll() is None for process in (one, two, three))
        assert most <= sum(ports.values()) + 64  # the run's own
        owner.shutdown()
    assert (consortium.runs / run / "summary.json").exists()


def test_a_connection_that_says_nothing_is_ended_however_slowly_it_speaks(consortium, monkeypatch):
    monkeypatch.setattr("parley.local_http_server.CONNECTION_S", 0.5)
    with Pages(consortium.serve().monitor, port=0) as pages:
        slow = http.client.HTTPConnection("127.0.0.1", pages.port, timeout=20)
        slow.connect()
        slow.sock.sendall(b"GET /healthz HTTP/1.1\r\n")

        def is_ended():
            try:
                slow.sock.sendall(b"a")  # never a whole header, never a pause
                slow.sock.settimeout(0.05)
                return not slow.sock.recv(1)
            except TimeoutError:
                return False
            except OSError:
                return True

        until(is_ended)


def test_no_error_of_the_machine_ends_the_queue_or_forgets_how_a_run_ended(consortium, monkeypatch):
    """No file left, then a full disk: the queue waits, and goes on with what it had to do."""
    consortium.serve()
    queue = Queue(consortium.runs)
    name = consortium.submit()
    monkeypatch.setattr("parley.deploy.stream.queue._POLL_S", 0.01)
    refusals = iter([errno.EMFILE, errno.EIO, errno.ENOSPC])
    plain = {"_write": Queue._write, "_state": Queue._state}

    def refuses(method):
        def refused(self, given):
            if (number := next(refusals, None)) is not None:
                raise OSError(number, os.strerror(number))
            return plain[method](self, given)

        monkeypatch.setattr(Queue, method, refused)

    refuses("_state")
    assert queue.take() == QueuedRun(**{**vars(queue.runs()[0]), "state": "running"})
    refusals = iter([errno.ENOSPC, errno.EMFILE])
    refuses("_write")
    queue.ended(name, "complete")
    assert [run.state for run in queue.runs()] == ["complete"]
