"""Manage the connected parties: one connection per party and its pending requests.

All of this runs in the event loop of the server's port. A party has at most one connection. If a
second one arrives with the same key, the server probes the first with an empty request, numbered 0.
The probe also informs that party's owner. If the first connection answers, the server refuses the
new one and informs the server's administrator. Otherwise the new connection replaces it.

If a connection ends before a request is answered, the request is sent again on the next connection,
until its time is over. A reply is accepted once, only for a request that was sent on this
connection, and only up to the requested length.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from parley.deploy.event_log import LogEvent, Notifier
from parley.deploy.stream.grpc_options import DUPLICATE
from parley.deploy.stream.stream_framing import (
    HEARTBEAT,
    PROBE,
    EnvelopeError,
    FrameReader,
    split_into_chunks,
)
from parley.safe_io.error_translation import translate_errors

_MAX_WAITING = 16
_PROBE_S = 2.0
_LARGEST_PROBE_REPLY = 1 << 12
_SAY_EVERY_S = 600.0
# Larger requests are built and written for a few parties at a time, so that not all of them are in
# memory. A turn ends after this time, so that parties that read slowly delay no other party much.
_LARGE_REQUEST, _LARGE_AT_ONCE, _TURN_S = 1 << 14, 32, 1.0
# A party that has not read a request this long after its time counts as not reading.
_READS_S = 10.0


class Dropped(Exception):
    """A connection that the server ends. The text is sent to the party."""


@dataclass(frozen=True, kw_only=True)
class PartyRequest:
    """One request to one party.

    Attributes:
        number: Number on the wire, never used twice.
        build: Returns the request's bytes, the same at each call. Requests to many parties are
            built when they are written, because all of them at once may not fit in memory.
        largest: Maximum bytes of the reply.
        until: Deadline on `time.monotonic`.
        deliver: Takes the party and its reply, from this thread, once.
    """

    number: int
    build: Callable[[], bytes] = field(repr=False)
    largest: int
    until: float
    deliver: Callable[[int, bytes], None] = field(repr=False)


class PartyConnection:
    """A party's connection, from the check of its certificate to its end.

    Args:
        turns: Shared by all connections; held while a large request is written.
    """

    def __init__(
        self, read: Callable[[], Awaitable[bytes | None]], write: _Write, turns: asyncio.Semaphore
    ) -> None:
        self._read, self._write, self._turns = read, write, turns
        self._waiting: asyncio.Queue[PartyRequest] = asyncio.Queue()
        self._due: dict[int, int] = {}
        self._ended: asyncio.Future[Dropped] = asyncio.get_running_loop().create_future()
        self._probes: dict[int, asyncio.Future[bool]] = {}
        self._messages = 0
        self.silent_since: float | None = None
        """Time of the first heartbeat without an answer; None once any message has come since."""
        self.checked_at = -math.inf
        """Time of the last heartbeat."""

    def put(self, request: PartyRequest) -> None:
        """Queue a request to be written after those that wait already."""
        if self._waiting.qsize() >= _MAX_WAITING:
            wrong = f"got one with {_MAX_WAITING} unread requests"
            self.end(Dropped(f"Expected a party that reads its requests, {wrong}."))
        self._waiting.put_nowait(request)

    async def is_alive(self, number: int = PROBE) -> bool:
        """Return whether the party at the other end answers a `PROBE` or a `HEARTBEAT`."""
        if self._ended.done():
            return False
        before = self._messages
        if number not in self._probes:
            asked = PartyRequest(
                number=number,
                build=bytes,
                largest=_LARGEST_PROBE_REPLY,
                until=time.monotonic() + _PROBE_S,
                deliver=lambda _party, _reply: None,
            )
            self._waiting.put_nowait(asked)
        probe = self._get_probe(number)
        either = (probe, self._ended)
        await asyncio.wait(either, timeout=_PROBE_S, return_when=asyncio.FIRST_COMPLETED)
        if probe.done():
            return probe.result()
        # A long frame in transit, in either direction, delays the answer.
        return not self._ended.done() and self._messages > before + 1

    async def check_heartbeat(self) -> None:
        """Set `silent_since` unless the party answers a heartbeat."""
        asked_at = time.monotonic()
        if self.silent_since is None and not await self.is_alive(HEARTBEAT):
            self.silent_since = asked_at

    def _get_probe(self, number: int) -> asyncio.Future[bool]:
        """Return the result of the probe that is on its way, shared by all that wait for it."""
        if number not in self._probes:
            self._probes[number] = asyncio.get_running_loop().create_future()
        return self._probes[number]

    def _end_probe(self, number: int, answered: bool) -> None:
        probe = self._probes.pop(number, None)
        if probe is not None and not probe.done():
            probe.set_result(answered)

    def end(self, reason: Dropped) -> None:
        """Make `serve` raise `reason`."""
        if not self._ended.done():
            self._ended.set_result(reason)

    async def serve(self, deliver: Callable[[int, bytes], None]) -> None:
        """Write queued requests and deliver replies until the party or `end` ends the connection.

        Raises:
            Dropped: `end` was called, or the party sent something forbidden or does not read.
        """
        parts = self._read_replies(deliver), self._write_requests()
        tasks = [asyncio.ensure_future(part) for part in parts]
        try:
            either: list[asyncio.Future[Any]] = [*tasks, self._ended]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._ended.done():
                raise self._ended.result()
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for number in list(self._probes):
                self._end_probe(number, False)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read_replies(self, deliver: Callable[[int, bytes], None]) -> None:
        reader = FrameReader(self._due.get)
        while (message := await self._read()) is not None:
            self._messages += 1
            self.silent_since = None
            with translate_errors(EnvelopeError, Dropped):
                whole = reader.take(message)
            if whole is not None:
                del self._due[whole.number]  # a second reply is not expected
                if whole.number in (PROBE, HEARTBEAT):
                    self._end_probe(whole.number, True)
                else:
                    deliver(whole.number, whole.frame)
            del message, whole  # not in memory until the next one comes

    async def _write_requests(self) -> None:
        while True:
            asked = await self._waiting.get()
            left = asked.until - time.monotonic()
            if left <= 0:
                self._end_probe(asked.number, False)
                continue
            self._due[asked.number] = asked.largest
            allowed = min(math.ceil(1000 * left), 2**32 - 1)
            try:
                async with asyncio.timeout(left + _READS_S):
                    await self._write_request(asked, allowed)
            except TimeoutError:
                raise Dropped("Expected a party that reads its requests in time.") from None

    async def _write_request(self, asked: PartyRequest, allowed_ms: int) -> None:
        frame = asked.build()
        if len(frame) <= _LARGE_REQUEST:
            await self._write_chunks(asked.number, frame, allowed_ms)
            return
        del frame  # not in memory while it waits for its turn
        async with hold_turn(self._turns):
            await self._write_chunks(asked.number, asked.build(), allowed_ms)
            # gRPC holds what the party has not read. An answered heartbeat shows that it read all.
            is_new = HEARTBEAT not in self._probes
            probe = self._get_probe(HEARTBEAT)  # its answer may come before the write returns
            if is_new:
                self._due[HEARTBEAT] = _LARGEST_PROBE_REPLY
                await self._write_chunks(HEARTBEAT, b"", 0)
            await asyncio.wait((probe,), timeout=_TURN_S)

    async def _write_chunks(self, number: int, frame: bytes, allowed_ms: int) -> None:
        for chunk in split_into_chunks(number, frame, allowed_ms=allowed_ms):
            await self._write(chunk)
            self._messages += 1


@asynccontextmanager
async def hold_turn(turns: asyncio.Semaphore) -> AsyncIterator[None]:
    """Hold one of the turns at writing a large request, at most for `_TURN_S`."""
    await turns.acquire()
    held = [True]

    def release() -> None:
        if held:
            held.clear()
            turns.release()

    late = asyncio.get_running_loop().call_later(_TURN_S, release)
    try:
        yield
    finally:
        late.cancel()
        release()


_Write = Callable[[bytes], Awaitable[None]]


class Connections:
    """The parties' connections and pending requests. `say` receives who connects and
    disconnects.
    """

    def __init__(self, names: Sequence[str], *, say: Notifier) -> None:
        self._names, self._say = names, say
        self._connections: dict[int, PartyConnection] = {}
        self._left: dict[int, float] = {}
        self._duplicates: dict[int, float] = {}
        self._pending: list[dict[int, PartyRequest]] = [{} for _ in names]
        self._checks = set[asyncio.Future[None]]()
        self.turns = asyncio.Semaphore(_LARGE_AT_ONCE)
        self.closed = False

    def list_online(self, *, away_s: float = 0.0) -> frozenset[int]:
        """Return the parties that are connected and answer heartbeats, or did within the last
        `away_s`. Thread-safe.
        """
        since = time.monotonic() - away_s
        recent = {index for index, left in list(self._left.items()) if left > since}
        silences = {i: line.silent_since for i, line in list(self._connections.items())}
        here = {index for index, at in silences.items() if at is None or at > since}
        return frozenset(recent | here)

    def check_heartbeats(self, indices: Iterable[int]) -> None:
        """Find out which connections of these parties are silent, such as those of a machine that
        sleeps.
        """
        now = time.monotonic()
        for index in indices:
            line = self._connections.get(index)
            if line is not None and now - line.checked_at >= _PROBE_S:
                line.checked_at = now
                task = asyncio.ensure_future(line.check_heartbeat())
                self._checks.add(task)
                task.add_done_callback(self._checks.discard)

    def send_requests(self, requests: Mapping[int, PartyRequest]) -> None:
        """Send the requests now, or when their party is connected again."""
        for index, asked in requests.items():
            self._pending[index][asked.number] = asked
            if index in self._connections:
                self._connections[index].put(asked)

    def withdraw(self, numbers: Mapping[int, int]) -> None:
        """Stop waiting for these replies. A request that is already on its way is still
        delivered.
        """
        for index, number in numbers.items():
            self._pending[index].pop(number, None)

    async def check_not_connected(self, index: int) -> None:
        """Check that no other connection of this party answers; raise Dropped if one does."""
        first = self._connections.get(index)
        if first is not None and await first.is_alive() and self._connections.get(index) is first:
            self._report_duplicate(index)
            raise Dropped(f"{DUPLICATE}: another connection of this party is active.")

    async def serve_party(self, index: int, line: PartyConnection) -> None:
        """Serve a party's connection, which replaces an earlier one; raise Dropped if the server
        ends it.
        """
        if self.closed:
            raise Dropped("The server is shutting down.")
        before = self._connections.pop(index, None)
        if before is not None:
            before.end(Dropped("replaced: a new connection of this party replaced this one."))
        self._connections[index] = line
        self._left.pop(index, None)
        if before is None:
            self._report_state(index, "+", "online")
        for asked in list(self._pending[index].values()):
            line.put(asked)
        try:
            await line.serve(lambda number, frame: self._deliver_reply(index, number, frame))
        finally:
            if self._connections.get(index) is line:
                del self._connections[index]
                self._left[index] = time.monotonic()
                self._report_state(index, "-", "offline")

    def list_duplicates(self) -> frozenset[int]:
        """Return the parties that had a second connection refused recently. Thread-safe."""
        since = time.monotonic() - _SAY_EVERY_S
        return frozenset(index for index, at in list(self._duplicates.items()) if at > since)

    def _report_duplicate(self, index: int) -> None:
        known, name = index in self.list_duplicates(), self._names[index]
        if not known:  # it tries again and again
            self._duplicates[index] = time.monotonic()
            line = (
                f"! {name} is connected twice: a second process has its key. The first connection "
                f"stays. Ask {name} whether it started two processes. If not, its key was copied: "
                f"parley deploy rotate DIR {name}."
            )
            self._say(LogEvent("party-twice", line, party=name))

    def close(self) -> None:
        """End every connection and accept no more."""
        self.closed = True
        for line in self._connections.values():
            line.end(Dropped("The server is shutting down."))

    def _report_state(self, index: int, sign: str, state: str) -> None:
        name, here, all_ = self._names[index], len(self._connections), len(self._names)
        line = f"{sign} {name} is {state} ({here} of {all_})."
        self._say(LogEvent(f"party-{state}", line, party=name, online=here, parties=all_))

    def _deliver_reply(self, index: int, number: int, frame: bytes) -> None:
        asked = self._pending[index].pop(number, None)
        if asked is not None:  # else its time was over, or it was withdrawn
            asked.deliver(index, frame)
