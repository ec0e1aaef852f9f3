"""Run the server's port: TLS, authorization of callers, and the parties' streams.

The event loop has its own thread, so that the coordinator is plain synchronous code. Each call is
checked in this order, and the first fault ends it: the certificate (by TLS, before any of our
bytes), its party in the roster, the caller's versions and roster. Only then is a frame read.

This module also defines `StreamTransport`, the server's transport over the port.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio

from parley.client.contract.message_frames import WIRE_VERSION
from parley.client.contract.roster import Deployment
from parley.deploy.authorization import NotAdmitted, admit_party
from parley.deploy.event_log import Notifier
from parley.deploy.process_errors import ProcessError
from parley.deploy.server_address import format_address
from parley.deploy.stream import TLS_1_3_ALONE
from parley.deploy.stream.connections import Connections, Dropped, PartyConnection, PartyRequest
from parley.deploy.stream.grpc_options import (
    ATTEND,
    HELLO,
    build_server_options,
    build_service,
    get_metadata,
    get_peer_certificate,
    load_server_credentials,
)
from parley.module_loading.memory_trim import release_freed_memory
from parley.server.rounds.party_requests import LARGEST_REPLY
from parley.version import __version__

_log = logging.getLogger("parley.port")

_STARTS_S, _ENDS_S = 20.0, 3.0
_LOG_EVERY_S = 10.0


class GrpcServer:
    """A server's port, open inside a `with` block.

    Args:
        folder: Folder with ca.crt, server.pem and server.key.
        port: Port number, 0 for a free one.
        say: Receives who connects and disconnects.

    Attributes:
        services: Further generic handlers on the same port; add them before it opens.
    """

    def __init__(
        self,
        folder: Path,
        deployment: Deployment,
        *,
        listen: str,
        port: int,
        say: Notifier = lambda _line: None,
    ) -> None:
        self._folder, self.deployment = folder, deployment
        self._where = format_address(listen, port)
        self.port = port
        self.connections = Connections([party.name for party in deployment.parties], say=say)
        self.services = list[Any]()
        # A number names one request, even after this process ends, so start at a random one.
        self._number = secrets.randbits(62)
        self._noted = -_LOG_EVERY_S

    def __enter__(self) -> Self:
        """Open the port; raise ProcessError if it is in use or gRPC refuses the keys."""
        if not TLS_1_3_ALONE:
            raise ProcessError(
                "Cannot open a port: another library imported gRPC before Parley, so gRPC would "
                "also accept TLS 1.2. Import parley.deploy.stream first."
            )
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.result(_STARTS_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self._end.set)
        self._thread.join(2 * _ENDS_S)

    def post(self, call: Callable[..., None], *arguments: object) -> None:
        """Call a function in the port's event loop. Do nothing if the port is closed."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(call, *arguments)

    def create_number(self) -> int:
        """Return a number that no other request has had."""
        self._number += 1
        return self._number

    def _run(self, started: Future[None]) -> None:
        try:
            asyncio.run(self._serve(started))
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)

    async def _serve(self, started: Future[None]) -> None:
        self.loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = grpc.aio.server(options=build_server_options(len(self.deployment.parties)))
        attend = grpc.stream_stream_rpc_method_handler(self._handle_attend)
        hello = grpc.stream_unary_rpc_method_handler(self._handle_hello)
        own = build_service({ATTEND: attend, HELLO: hello})
        server.add_generic_rpc_handlers((own, *self.services))
        try:
            self.port = server.add_secure_port(self._where, load_server_credentials(self._folder))
        except RuntimeError as error:
            raise ProcessError(
                f"Cannot listen on {self._where}: another process uses that port, or it is not an "
                "address of this machine. Set another one in server.toml; parties then start with "
                "--server HOST:PORT."
            ) from error
        await server.start()
        started.set_result(None)
        await self._end.wait()
        self.connections.close()
        await asyncio.sleep(0)
        await server.stop(_ENDS_S / 2)

    async def _handle_attend(self, _requests: Any, context: Any) -> None:
        """Serve one party's stream."""
        index = await self._admit_caller(context)

        async def read() -> bytes | None:
            message = await context.read()
            return message if isinstance(message, bytes) else None

        try:
            await self.connections.check_not_connected(index)
            # Not earlier: for the party, this metadata means that it is connected.
            await context.send_initial_metadata((("parley-version", __version__),))
            line = PartyConnection(read, context.write, self.connections.turns)
            await self.connections.serve_party(index, line)
        except Dropped as error:
            self._log_ended(f"{self.deployment.parties[index].name}: {error}", context)
            await context.abort(grpc.StatusCode.ABORTED, str(error))

    async def _handle_hello(self, _requests: Any, context: Any) -> bytes:
        """Return a party's name if the server knows it. The rest of the request is not read."""
        index = await self._admit_caller(context)
        return self.deployment.parties[index].name.encode()

    async def _admit_caller(self, context: Any) -> int:
        """Return the index of the calling party; end the call of any other caller."""
        try:
            index = admit_party(self.deployment, get_peer_certificate(context))
            self._check_caller(get_metadata(context))
        except NotAdmitted as error:
            self._log_ended(str(error), context)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        except Dropped as error:
            self._log_ended(f"{self.deployment.parties[index].name}: {error}", context)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return index

    def _check_caller(self, metadata: Mapping[str, str]) -> None:
        """Check that both sides have the same protocol and roster; raise Dropped if not."""
        if metadata.get("parley-wire") != str(WIRE_VERSION):
            theirs, wire = (metadata.get(f"parley-{key}", "?")[:40] for key in ("version", "wire"))
            difference = describe_version_difference(
                __version__, theirs, own_wire=WIRE_VERSION, their_wire=wire
            )
            raise Dropped(f"versions: {difference}")
        theirs = metadata.get("parley-deployment", "")
        if theirs != self.deployment.id:
            raise Dropped(
                f"roster: the server has {self.deployment.id[:16]}…, this party has "
                f"{theirs[:16]}…. Ask the server administrator for the current deployment.toml, "
                "and whether the server was restarted with it."
            )

    def _log_ended(self, reason: str, context: Any) -> None:
        # At most one line per interval, so that strangers cannot fill the disk.
        now = time.monotonic()
        if now - self._noted >= _LOG_EVERY_S:
            self._noted = now
            _log.warning("Ended a connection from %s: %s", context.peer(), reason)


def describe_version_difference(own: str, theirs: str, own_wire: object, their_wire: object) -> str:
    """Return both versions, and which side to update.

    Args:
        own: the server's release of Parley; `theirs` is the party's.
        own_wire: the server's version of the messages; `their_wire` is the party's.

    >>> describe_version_difference("2.0.0", "1.0.0", own_wire=8, their_wire=7)[-17:]
    'Update the party.'
    """
    older = None
    if str(own_wire).isdigit() and str(their_wire).isdigit():
        older = "party" if int(str(their_wire)) < int(str(own_wire)) else "server"
    advice = f"Update the {older}." if older else "Install the same version on both."
    return (
        f"the server runs Parley {own} (protocol {own_wire}), this party Parley {theirs} "
        f"(protocol {their_wire}). {advice}"
    )


_LOOK_S = 0.2
_PATIENCE = 0.5
"""Further part of the time until the replies were enough that a lost party may take to return."""
_MANY_BYTES = 1 << 23
"""Bytes of an exchange's replies after which freed memory is returned to the system."""


class StreamTransport:
    """`parley.server.rounds.party_requests.Transport` over the streams of a port.

    A party that lost its connection counts as online for `away_s`. Its requests are sent again when
    it reconnects.
    """

    def __init__(self, port: GrpcServer, *, away_s: float = 5.0) -> None:
        self._port, self._away_s = port, away_s
        self._stopped = False

    def online(self) -> tuple[int, ...]:
        """Return the parties that can receive a request now, in order."""
        return tuple(sorted(self._port.connections.list_online(away_s=self._away_s)))

    def stop(self) -> None:
        """Make the current or the next exchange raise KeyboardInterrupt, once."""
        self._stopped = True

    def exchange(
        self,
        requests: Mapping[int, bytes],
        *,
        timeout_s: float,
        largest: int = LARGEST_REPLY,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[int, bytes]]:
        """Send each party its request and yield (party, reply) on arrival, until the deadline.

        Once the replies are enough, a party that was away from the start is not awaited. One that
        loses its connection, or answers no heartbeat, has half the time that the others took.

        Raises:
            ValueError: a request is for a party that is not in the roster.
            KeyboardInterrupt: `stop` was called.
        """
        count = len(self._port.deployment.parties)
        if beyond := sorted(set(requests) - set(range(count))):
            raise ValueError(f"Expected parties below {count}, got {beyond}.")
        # One queue per exchange, so that a late reply is never taken for one of the next exchange.
        replies = queue.SimpleQueue[tuple[int, bytes]]()
        began = time.monotonic()
        until, enough_at = began + timeout_s, None
        asked = {
            index: PartyRequest(
                number=self._port.create_number(),
                build=partial(requests.__getitem__, index),
                largest=largest,
                until=until,
                deliver=lambda party, reply: replies.put((party, reply)),
            )
            for index in self.online()
            if index in requests
        }
        attendance = self._port.connections
        there = attendance.list_online()
        waiting, received = set(asked), 0
        if asked:
            self._port.post(attendance.send_requests, asked)
        try:
            while waiting:
                if self._stopped:
                    self._stopped = False
                    raise KeyboardInterrupt
                left = until - time.monotonic()
                try:
                    index, reply = replies.get(timeout=max(0.0, min(left, _LOOK_S)))
                except queue.Empty:
                    # A party that does not reconnect in time counts as silent.
                    waiting &= attendance.list_online(away_s=self._away_s)
                    if left <= 0:
                        return
                    if is_enough():
                        now = time.monotonic()
                        enough_at = enough_at or now
                        waiting &= there | attendance.list_online()
                        if now - enough_at >= _PATIENCE * (enough_at - began):
                            self._port.post(attendance.check_heartbeats, tuple(waiting))
                            waiting &= attendance.list_online()
                    continue
                if index in waiting:
                    waiting.discard(index)
                    received += len(reply)
                    yield index, reply
        finally:
            numbers = {index: one.number for index, one in asked.items()}
            self._port.post(attendance.withdraw, numbers)
            if received > _MANY_BYTES:
                release_freed_memory()
