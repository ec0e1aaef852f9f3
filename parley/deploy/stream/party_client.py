"""Run a party's client: connect to the server, answer one request at a time, and reconnect.

    python -m parley.deploy.stream.party_client FOLDER

One thread keeps the connection and another computes, so a connection lost during a long computation
is back before its end. A request whose time is over before its turn is not computed.

An answer is sent on the connection that delivered its request last. An answer that did not arrive
is stored and sent when the server repeats the request. So no result is computed twice or sent in
two forms.
"""

from __future__ import annotations

import logging
import os
import queue
import random
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc

from parley.client.contract.message_frames import MAX_REQUEST_BYTES, build_refusal, encode_frame
from parley.client.contract.refusals import Reason
from parley.client.contract.roster import load_deployment
from parley.client.party.party_service import PartyService
from parley.deploy.event_log import LogEvent, Notifier
from parley.deploy.private_files import PkiError
from parley.deploy.process_lifetime import end_with_parent
from parley.deploy.stream.grpc_client import CallError, build_call_metadata, explain_call_error
from parley.deploy.stream.grpc_options import (
    ATTEND,
    build_channel_options,
    load_channel_credentials,
)
from parley.deploy.stream.stream_framing import (
    HEARTBEAT,
    PROBE,
    EnvelopeError,
    FrameReader,
    ReceivedFrame,
    split_into_chunks,
)
from parley.module_loading.memory_trim import release_start_pages
from parley.safe_io.os_errors import describe_cause
from parley.safe_io.printable_text import guard_streams

_log = logging.getLogger("parley.party")

# Seconds between attempts, half of it random, so that not all parties reconnect at once.
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 3.0
_MAX_WAITING = 16
_LARGEST_WAITING = 2 * MAX_REQUEST_BYTES
# A waiting party wakes up this often, to handle a signal that another thread received.
_HEARS_S = 1.0
_KEPT = 8
# The other process connects again every few seconds.
_SAY_EVERY_S = 600.0
# Additional time after a request's deadline, for a computation to end by itself.
_GRACE_S = 5.0
# This many new modules mean that a request loaded a library, such as torch or dp-accounting.
_LIBRARY_MODULES = 200

AnswerRequest = Callable[[bytes], bytes]


def build_answer_request(
    folder: Path, *, check: Callable[[], None] = lambda: None
) -> AnswerRequest:
    """Return the function that answers requests for the party in a folder.

    It opens the party's service again when the folder's files change.

    Args:
        check: Called after a change. While it raises, no request is answered.
    """
    names = "party.toml", "deployment.toml", "identity.key"
    opened: list[tuple[object, PartyService]] = []
    checked: list[object] = []

    def answer(request: bytes) -> bytes:
        try:
            stamps = [_read_stamp(folder / name) for name in names]
            if not opened or opened[0][0] != stamps:
                for _, before in opened:
                    before.close()
                opened.clear()
                if checked and checked != stamps:
                    check()
                checked[:] = stamps
                opened[:] = [(stamps, PartyService.open(folder))]
            return opened[0][1].handle(request)
        except BaseException:
            # Write any error, of a library or the owner's own file, `SystemExit` included, only to
            # the party's own log. For the server it is a dropout, not a failed computation. The
            # next request may succeed.
            _log.exception("Could not answer a request.")
            return encode_frame(build_refusal(Reason.ERROR))

    return answer


def _read_stamp(file: Path) -> tuple[int, int]:
    """Return numbers that change if the file is changed or replaced."""
    status = file.stat()
    return status.st_mtime_ns, status.st_ino


def restart_process() -> None:
    """Replace this process with a new one that has the same arguments.

    All state that an answer relies on is on disk before it is returned, so an end at any point is
    safe.
    """
    _log.error("A request was not answered in time. This process restarts.")
    logging.shutdown()
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - this very command, no shell


Outgoing = queue.SimpleQueue[Iterator[bytes] | None]


@dataclass(kw_only=True)
class _Request:
    """A received request with its deadline and the way back for its answer.

    Attributes:
        frame: Empty once the request is answered.
        named: Digest of the frame, to recognise a repeated request.
    """

    frame: bytes
    named: bytes
    until: float
    outgoing: Outgoing
    reply: bytes | None = None


class _RequestQueue:
    """Requests in the order of arrival, and the latest answers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[int, _Request] = OrderedDict()
        self._turns: queue.Queue[int | Exception] = queue.Queue(_MAX_WAITING)

    def take(self, frame: ReceivedFrame, outgoing: Outgoing) -> None:
        """Append a request to the queue. A known one only gets a new way back.

        Raises:
            EnvelopeError: the number has another request, or more bytes wait than an honest server
                sends.
        """
        named = sha256(frame.frame).digest()
        with self._lock:
            known = self._known.get(frame.number)
            if known is not None:
                if known.named != named:
                    raise EnvelopeError(f"Expected request {frame.number} again, got another.")
                known.outgoing = outgoing
                if known.reply is not None:
                    outgoing.put(split_into_chunks(frame.number, known.reply))
                return
            waiting = sum(len(each.frame) for each in self._known.values())
            if waiting + len(frame.frame) > _LARGEST_WAITING:
                raise EnvelopeError(
                    f"Expected at most {_LARGEST_WAITING} bytes of waiting requests, got more."
                )
            until = time.monotonic() + frame.allowed_ms / 1000
            fresh = _Request(frame=frame.frame, named=named, until=until, outgoing=outgoing)
            self._known[frame.number] = fresh
        self._turns.put(frame.number)

    def give_up(self, error: Exception) -> None:
        """Make `take_next` raise this error."""
        self._turns.put(error)

    def take_next(self) -> tuple[int, _Request]:
        """Return the next request that has time left, or raise the error passed to `give_up`."""
        while True:
            try:
                turn = self._turns.get(timeout=_HEARS_S)
            except queue.Empty:
                continue
            if isinstance(turn, Exception):
                raise turn
            request = self._known[turn]
            if time.monotonic() < request.until:
                return turn, request
            with self._lock:
                del self._known[turn]

    def save_reply(self, number: int, reply: bytes) -> None:
        """Send an answer and store it."""
        with self._lock:
            request = self._known[number]
            request.frame, request.reply = b"", reply
            request.outgoing.put(split_into_chunks(number, reply))
            done = [each for each, known in self._known.items() if known.reply is not None]
            for old in done[:-_KEPT]:
                del self._known[old]


class PartyClient:
    """A party that stays connected to a server until it is stopped.

    Args:
        say: Receives the events for the party's owner.
        late: Called if a computation takes longer than its request's time.
    """

    def __init__(
        self,
        folder: Path,
        *,
        address: str,
        answers: AnswerRequest,
        say: Notifier,
        late: Callable[[], None] = restart_process,
    ) -> None:
        self._folder, self._address = folder, address
        self._answers, self._say = answers, say
        self._late = late
        self._requests = _RequestQueue()
        self._attended, self._said = False, ""
        self._twice = -_SAY_EVERY_S
        self._over = threading.Event()
        self._call: Any = None
        self._roster: tuple[object, str] | None = None

    def run_forever(self) -> None:
        """Answer requests and reconnect; raise CallError once the server refuses this party for
        good.
        """
        threading.Thread(target=self._keep_dialing, daemon=True).start()
        known = len(sys.modules)
        try:
            while True:
                number, request = self._requests.take_next()
                late = threading.Timer(request.until + _GRACE_S - time.monotonic(), self._late)
                late.daemon = True
                late.start()
                reply = self._answers(request.frame)
                late.cancel()
                self._requests.save_reply(number, reply)
                if len(sys.modules) > known + _LIBRARY_MODULES:
                    known = len(sys.modules)
                    release_start_pages()
        finally:
            self._over.set()
            if self._call is not None:
                self._call.cancel()

    def end(self, error: Exception) -> None:
        """Make `run_forever` raise this after its current computation. Thread-safe."""
        self._requests.give_up(error)

    def _keep_dialing(self) -> None:
        wait_s = _FIRST_WAIT_S
        try:
            while not self._over.is_set():
                self._connect_once()
                if self._attended:  # after a successful connection, start with a short wait
                    wait_s = _FIRST_WAIT_S
                self._over.wait(wait_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
                wait_s = min(1.6 * wait_s, _LONGEST_WAIT_S)
        except Exception as error:
            # A lasting refusal or a bug: `run_forever` raises it.
            self._requests.give_up(error)

    def _connect_once(self) -> None:
        """Connect once and report the connection's end; raise a CallError that is permanent."""
        self._attended = False
        try:
            self._connect()
            reason = "the server ended it"
        except grpc.RpcError as error:
            refusal = explain_call_error(error, address=self._address)
            if refusal.is_permanent:
                raise refusal from error
            reason = str(refusal)
        except (OSError, ValueError, PkiError) as error:
            # The owner is changing a file, or the server sends something that is not a chunk.
            reason = describe_cause(error)
        if self._attended or reason != self._said:
            line = f"Not connected to {self._address}: {reason.rstrip('.')}. Trying again."
            self._say(LogEvent("disconnected", line, server=self._address, reason=reason))
        self._said = reason

    def _get_deployment_id(self) -> str:
        """Return the id of the roster, which is parsed again only after a change."""
        path = self._folder / "deployment.toml"
        stamp = _read_stamp(path) if path.exists() else None
        if self._roster is None or self._roster[0] != stamp:
            self._roster = stamp, load_deployment(path).id
        return self._roster[1]

    def _report_duplicate(self) -> None:
        now = time.monotonic()
        if now - self._twice >= _SAY_EVERY_S:
            self._twice = now
            line = (
                f"Another process connected to {self._address} with this party's key. The server "
                "refuses it while this process answers. If you did not start it, the key was "
                "copied: ask the server administrator to replace it (parley deploy rotate)."
            )
            self._say(LogEvent("attends-twice", line, server=self._address))

    def _connect(self) -> None:
        """Serve one connection to its end; raise grpc.RpcError unless the server ended it in
        order.
        """
        deployment_id = self._get_deployment_id()
        credentials = load_channel_credentials(self._folder, "party")
        outgoing: Outgoing = queue.SimpleQueue()
        with grpc.secure_channel(self._address, credentials, build_channel_options()) as channel:
            call: Any = channel.stream_stream(ATTEND)(
                _iterate_messages(outgoing), metadata=build_call_metadata(deployment_id)
            )
            self._call = call
            if self._over.is_set():  # it was set before `_call` was
                call.cancel()
            try:
                begun = dict(call.initial_metadata())  # empty if the server refuses us
                if "parley-version" in begun and call.is_active():
                    self._attended = True
                    line = f"Connected to {self._address}."
                    self._say(LogEvent("connected", line, server=self._address))
                reader = FrameReader(lambda _number: MAX_REQUEST_BYTES)
                for message in call:
                    whole = reader.take(message)
                    if whole is None:
                        continue
                    if whole.number in (PROBE, HEARTBEAT):
                        outgoing.put(split_into_chunks(whole.number, b""))
                        if whole.number == PROBE:
                            self._report_duplicate()
                    else:
                        self._requests.take(whole, outgoing)
            finally:
                outgoing.put(None)
                call.cancel()


def _iterate_messages(outgoing: Outgoing) -> Iterator[bytes]:
    while (parts := outgoing.get()) is not None:
        yield from parts


def main() -> None:
    """Run a party's process that only its launcher watches."""
    folder = Path(sys.argv[1])
    end_with_parent()
    guard_streams()
    logging.basicConfig(level=logging.WARNING)
    attending = PartyClient(
        folder,
        address=load_deployment(folder / "deployment.toml").server_address,
        answers=build_answer_request(folder),
        say=lambda line: print(line, file=sys.stderr),
    )
    try:
        attending.run_forever()
    except CallError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
