"""Serve HTTP on 127.0.0.1 with bounded connections, for the monitor's and the owner's page.

Every process on this machine can connect to such a port. So connections are cheap and short: at
most `MAX_CONNECTIONS` are open, and each ends after `CONNECTION_S` seconds at the latest. If all
are in use, a new connection replaces the oldest one without a complete request. A process that
holds connections can therefore neither exhaust this process's files nor keep other callers out.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from parley.connection_limit import MAX_CONNECTIONS

CONNECTION_S = 10.0
"""Seconds from the accepted connection to the last byte of the answer."""
_POLL_S = 0.2
_MAKES_ROOM_S = 1.0
_WITHOUT_FILES_S = 0.1


@dataclass(eq=False)
class _Connection:
    """An open connection: its deadline, and whether its request is being answered."""

    socket: socket.socket
    ends_at: float
    is_answered: bool = False

    def end(self) -> None:
        """Wake up the connection's thread, which closes the socket."""
        with suppress(OSError):  # the other side has ended it already
            self.socket.shutdown(socket.SHUT_RDWR)


class LocalHttpServer(ThreadingHTTPServer):
    """Serves one request per connection with `handler`, which calls `mark_answered`."""

    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self._lock = threading.Lock()
        self._open: dict[socket.socket, _Connection] = {}
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(("127.0.0.1", port), handler)

    def serve(self) -> None:
        """Answer requests until the server is shut down or interrupted."""
        self.serve_forever(poll_interval=_POLL_S)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection. If this process has no file handle left, wait a moment first."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(_WITHOUT_FILES_S)  # the caller retries at once
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in its own thread, or close it if too many are open."""
        if not self._free.acquire(blocking=False):
            self._end_oldest()
            if not self._free.acquire(timeout=_MAKES_ROOM_S):
                self.shutdown_request(request)
                return
        with self._lock:
            self._open[request] = _Connection(request, time.monotonic() + CONNECTION_S)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection and free its slot."""
        with self._lock:
            known = self._open.pop(request, None)
        super().shutdown_request(request)
        if known is not None:
            self._free.release()

    def service_actions(self) -> None:
        """End the connections that have reached their deadline."""
        now = time.monotonic()
        with self._lock:
            over = [each for each in self._open.values() if each.ends_at <= now]
        for connection in over:
            connection.end()

    def mark_answered(self, request: socket.socket) -> None:
        """Note that the request on this connection has arrived, so that no new connection replaces
        it.
        """
        with self._lock:
            if request in self._open:
                self._open[request].is_answered = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a caller that hangs up is no error of this process."""

    def _end_oldest(self) -> None:
        with self._lock:
            idle = [each for each in self._open.values() if not each.is_answered]
        if idle:
            min(idle, key=lambda each: each.ends_at).end()
