"""Processes of this machine that hold 2,000 connections to a port: a server and its run go on."""

from __future__ import annotations

import errno
import http.client
import json
import os
import threading

from attending import until
from held_connections import answered, held_connections

from parley.connection_limit import MAX_CONNECTIONS
from parley.deploy.stream.metrics_server import MetricsServer
from parley.deploy.stream.run_queue import QueuedRun, RunQueue
from parley.owner.owner_page_server import serve_page

_STRANGERS = 1024 + 64
"""Connections that the parties' port lets come before a handshake, and some of the server's own."""


def open_files():
    return len(os.listdir("/proc/self/fd"))


def most_open(holder):
    """Return the most files that were open until a process had made all its connections."""
    made = threading.Event()
    threading.Thread(target=lambda: (holder.stdout.readline(), made.set()), daemon=True).start()
    most = open_files()
    while not made.wait(0.01):
        most = max(most, open_files())
    return most


def test_connections_beyond_the_bound_exhaust_no_file_and_keep_nobody_out(consortium):
    """On the parties' port, the monitor's and the owner's page, while a run goes on."""
    server = consortium.serve()
    consortium.everybody()
    run = consortium.submit()
    with MetricsServer(server.monitor, port=0) as pages, serve_page(consortium.home(0)) as owner:
        threading.Thread(target=owner.serve, daemon=True).start()
        before = open_files()
        with held_connections(pages.port, count=400) as holder:
            assert most_open(holder) <= before + MAX_CONNECTIONS + 16
            assert json.loads(answered(pages.port, "/healthz"))["status"] == "ok"
        with held_connections(owner.server_port, count=400) as holder:
            assert most_open(holder) <= before + 2 * MAX_CONNECTIONS + 16
            assert b"Parley" in answered(owner.server_port, "/")
        with held_connections(consortium.number, count=1300) as holder:
            assert most_open(holder) <= before + 2 * MAX_CONNECTIONS + _STRANGERS
            assert server.run_next().state == "complete"
        owner.shutdown()
    assert (consortium.runs / run / "summary.json").exists()


def test_a_connection_that_says_nothing_is_ended_however_slowly_it_speaks(consortium, monkeypatch):
    monkeypatch.setattr("parley.local_http_server.CONNECTION_S", 0.5)
    with MetricsServer(consortium.serve().monitor, port=0) as pages:
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
    queue = RunQueue(consortium.runs)
    name = consortium.submit()
    monkeypatch.setattr("parley.deploy.stream.run_queue._POLL_S", 0.01)
    refusals = iter([errno.EMFILE, errno.EIO, errno.ENOSPC])
    plain = {"_write": RunQueue._write, "_state": RunQueue._state}

    def refuses(method):
        def refused(self, given):
            if (number := next(refusals, None)) is not None:
                raise OSError(number, os.strerror(number))
            return plain[method](self, given)

        monkeypatch.setattr(RunQueue, method, refused)

    refuses("_state")
    assert queue.take_next() == QueuedRun(**{**vars(queue.list_runs()[0]), "state": "running"})
    refusals = iter([errno.ENOSPC, errno.EMFILE])
    refuses("_write")
    queue.record_end(name, "complete")
    assert [run.state for run in queue.list_runs()] == ["complete"]
