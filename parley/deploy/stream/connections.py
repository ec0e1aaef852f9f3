"""Manage the connected parties: one connection per party and its pending requests.

All of this runs in the event loop of the server's port. A party has at most one connection. If a
second one arrives with the same key, the server probes the first with an empty request, numbered 0.
The probe also informs that party's owner. If the first connection answers, the server refuses the
new one and informs the operators. Otherwise the new connection replaces it.

If a connection ends before a request is answered, the request is sent again on the next connection,
until its time is over. A reply is accepted once, only for a request that was sent on this
connection, and only up to the requested length.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from parley.deploy.event_log import LogEvent, Notifier
from parley.deploy.stream.grpc_options import (
    DUPLICATE,
    PROBE,
    EnvelopeError,
    FrameReader,
    split_into_chunks,
)

_MAX_WAITING = 16
_PROBE_S = 2.0
_LARGEST_PROBE_REPLY = 1 << 12
_SAY_EVERY_S = 600.0
# A party that has not read a request this long after its time counts as not reading.
_READS_S = 10.0


class Dropped(Exception):
    """A connection that the server ends. The text is sent to the party."""


@dataclass(frozen=True, kw_only=True)
class PartyRequest:
    """One request to one party.

    Attributes:
        number: Number on the wire, never used twice.
        largest: Maximum bytes of the reply.
        until: Deadline on `time.monotonic`.
        deliver: Takes the party and its reply, from this thread, once.
    """

    number: int
    request: bytes = field(repr=False)
    largest: int
    until: float
    deliver: Callable[[int, bytes], None] = field(repr=False)


class PartyConnection:
    """A party's connection, from the check of its certificate to its end."""

    def __init__(self, read: Callable[[], Awaitable[bytes | None]], write: _Write) -> None:
        self._read, self._write = read, write
        self._waiting: asyncio.Queue[PartyRequest] = asyncio.Queue()
        self._due: dict[int, int] = {}
        self._ended: asyncio.Future[Dropped] = asyncio.get_running_loop().create_future()
        self._probe: asyncio.Future[bool] | None = None
        self._messages = 0

    def put(self, request: PartyRequest) -> None:
        """Queue a request to be written after those that wait already."""
        if self._waiting.qsize() >= _MAX_WAITING:
            self.end(
                Dropped(
                    f"Expected a party that reads its requests, got one with {_MAX_WAITING} unread "
                    "requests."
                )
            )
        self._waiting.put_nowait(request)

    async def is_alive(self) -> bool:
        """Return whether the party at the other end is still connected."""
        if self._ended.done():
            return False
        if self._probe is None:
            self._probe = asyncio.get_running_loop().create_future()
            until = time.monotonic() + _PROBE_S
            asked = PartyRequest(
                number=PROBE,
                request=b"",
                largest=_LARGEST_PROBE_REPLY,
                until=until,
                deliver=lambda _party, _reply: None,
            )
            self._waiting.put_nowait(asked)
        before, probe = (
            self._messages,
            self._probe,
        )  # shared by all connections that arrive meanwhile
        either = (probe, self._ended)
        await asyncio.wait(either, timeout=_PROBE_S, return_when=asyncio.FIRST_COMPLETED)
        if probe.done():
            if self._probe is probe:
                self._probe = None
            return probe.result()
        # A long frame in transit, in either direction, delays the answer.
        return not self._ended.done() and self._messages > before + 1

    def end(self, reason: Dropped) -> None:
        """Make `serve` raise `reason`."""
        if not self._ended.done():
            self._ended.set_result(reason)

    async def serve(self, deliver: Callable[[int, bytes], None]) -> None:
        """Write queued requests and deliver replies until the party or `end` ends the connection.

        Raises:
            Dropped: `end` was called, or the party sent something forbidden or does not read.
        """
        tasks = [
            asyncio.ensure_future(part)
            for part in (self._read_replies(deliver), self._write_requests())
        ]
        try:
            either: list[asyncio.Future[Any]] = [*tasks, self._ended]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._ended.done():
                raise self._ended.result()
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            if self._probe is not None and not self._probe.done():
                self._probe.set_result(False)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read_replies(self, deliver: Callable[[int, bytes], None]) -> None:
        reader = FrameReader(self._due.get)
        while (message := await self._read()) is not None:
            self._messages += 1
            try:
                whole = reader.take(message)
            except EnvelopeError as error:
                raise Dropped(str(error)) from error
            if whole is not None:
                del self._due[whole.number]  # a second reply is not expected
                if whole.number != PROBE:
                    deliver(whole.number, whole.frame)
                elif self._probe is not None and not self._probe.done():
                    self._probe.set_result(True)

    async def _write_requests(self) -> None:
        while True:
            asked = await self._waiting.get()
            left = asked.until - time.monotonic()
            if left <= 0:
                continue
            self._due[asked.number] = asked.largest
            allowed = min(math.ceil(1000 * left), 2**32 - 1)
            try:
                async with asyncio.timeout(left + _READS_S):
                    for chunk in split_into_chunks(asked.number, asked.request, allowed_ms=allowed):
                        await self._write(chunk)
                        self._messages += 1
            except TimeoutError:
                raise Dropped("Expected a party that reads its requests in time.") from None


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
        self.closed = False

    def list_online(self, *, away_s: float = 0.0) -> frozenset[int]:
        """Return the parties that are connected or were within the last `away_s`. Thread-safe."""
        since = time.monotonic() - away_s
        recent = {index for index, left in list(self._left.items()) if left > since}
        return frozenset(recent | set(self._connections))

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
