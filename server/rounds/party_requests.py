"""Send requests to parties; return each answer decoded, or the reason why there is none."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from parley.client.contract.message_frames import (
    WIRE_VERSION,
    MessageFrame,
    Status,
    WireError,
    decode_frame,
    encode_frame,
)
from parley.client.contract.refusals import Reason
from parley.client.contract.strict_decoding import format_received
from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.messages import read_sender
from parley.secure_agg.server_key_setup import LazyMapping
from parley.server.rounds.party_status import PartyStates, PartyStatus

LARGEST_REPLY = 1 << 30
"""Maximum bytes of a reply if no smaller bound is known."""

_HEAD_BYTES, _PARTY_BYTES, _COORDINATE_BYTES = 1 << 17, 1 << 10, 8


def compute_max_reply(*, parties: int, dimension: int) -> int:
    """Return a bound in bytes that no honest reply exceeds.

    A masked vector has at most 8 bytes per coordinate. Shares and unmasking values take some
    hundred bytes per other party.

    >>> compute_max_reply(parties=3, dimension=31)
    134392
    """
    return _HEAD_BYTES + _PARTY_BYTES * parties + _COORDINATE_BYTES * dimension


class Transport(Protocol):
    """A way to reach the parties of a deployment, by their index in its roster."""

    def online(self) -> tuple[int, ...]:
        """Return the parties that can be asked now, ascending."""

    def exchange(
        self,
        requests: Mapping[int, bytes],
        *,
        timeout_s: float,
        largest: int = LARGEST_REPLY,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[int, bytes]]:
        """Send every request and yield (party, reply) as replies come.

        Requests may be built when they are read, in any thread. They are equal whenever they are
        read.

        It ends when all have replied or at the deadline. A party without a reply is silent. A later
        reply, or one of more than `largest` bytes, is never yielded. The caller may stop earlier.
        Once `is_enough()`, a transport need not wait for parties that it cannot reach.
        """


@dataclass(kw_only=True)
class Traffic:
    """Bytes of all parties, and seconds of each exchange, in order."""

    up: int = 0
    down: int = 0
    seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A party's reply: the frame of an ok answer, or the reason why there is none."""

    party: int
    status: Status
    reason: Reason | None
    frame: MessageFrame


def exchange_frames(
    transport: Transport,
    frames: Mapping[int, MessageFrame],
    *,
    needed: Collection[int],
    timeout_s: float,
    traffic: Traffic,
    largest: int = LARGEST_REPLY,
    is_enough: Callable[[], bool] = lambda: False,
) -> Iterator[Reply]:
    """Send frames and yield the parties' answers, until all of `needed` answered or the deadline.

    A frame is read when it is sent: `frames` may build it only then.
    A reply of more than `largest` bytes is not read. A reply that is not an answer counts as a
    refusal for breaking the protocol.
    """
    if not frames:
        return
    sent = set[int]()

    def encode_request(index: int) -> bytes:
        request = encode_frame(frames[index])
        if index not in sent:  # a request that is sent again counts once
            sent.add(index)
            traffic.down += len(request)
        return request

    waiting = set(needed)
    began = time.perf_counter()
    requests = LazyMapping(frames, encode_request)
    replies = transport.exchange(
        requests, timeout_s=timeout_s, largest=largest, is_enough=is_enough
    )
    for index, data in replies:
        if index not in frames:
            continue
        traffic.up += len(data)
        yield _decode_reply(index, data)
        waiting.discard(index)
        if not waiting:
            break
    traffic.seconds.append(time.perf_counter() - began)


def _decode_reply(index: int, data: bytes) -> Reply:
    empty = MessageFrame(kind="answer", head={})
    try:
        frame = decode_frame(data)
        version = frame.head.get("version")
        if frame.kind == "answer" and type(version) is int and version != WIRE_VERSION:
            return Reply(party=index, status=Status.REFUSED, reason=Reason.VERSION, frame=empty)
        if frame.kind != "answer" or version != WIRE_VERSION:
            raise WireError(
                f"Expected an answer of version {WIRE_VERSION}, got {frame.kind} of version "
                f"{format_received(frame.head.get('version'))}."
            )
        status = Status(str(frame.head.get("status")))
        reason = None if status is Status.OK else Reason(str(frame.head.get("reason")))
    except ValueError:
        return Reply(party=index, status=Status.REFUSED, reason=Reason.PROTOCOL, frame=empty)
    return Reply(party=index, status=status, reason=reason, frame=frame)


_log = logging.getLogger("parley.server")

TRANSIENT_REASONS = frozenset({Reason.BUSY, Reason.PROTOCOL, Reason.ERROR})
"""Reasons after which a party is asked again in the next round; any other holds for the run."""


@dataclass(kw_only=True)
class PartyResponses:
    """Collects the parties' answers in a run.

    Attributes:
        largest: maximum bytes of an honest party's reply.
        declined: parties that take no part in the run, with their reasons.
        refused: parties that declined since `begin`, with their reasons.
        silent: parties that were silent or broke the protocol since `begin`.
    """

    transport: Transport
    party_states: PartyStates
    timeout_s: float
    largest: int
    declined: dict[int, Reason]
    refused: dict[int, Reason] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)

    def begin(self) -> None:
        """Begin a new round or set-up; only parties that declined the run are remembered."""
        self.refused, self.silent = {}, set()

    def request(
        self,
        frames: Mapping[int, MessageFrame],
        traffic: Traffic,
        needed: Collection[int] | None = None,
        *,
        is_permanent: bool = True,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> Iterator[Reply]:
        """Yield ok answers; note the parties that decline or are silent.

        Args:
            is_permanent: whether a refusal holds for the run, unless its reason is transient. A
                refusal because of a round's survivors is only about that round.
            is_enough: whether the accepted answers suffice, so that parties that cannot be reached
                are not awaited.
        """
        expected = set(frames) if needed is None else set(needed)
        heard = set()
        for reply in exchange_frames(
            self.transport,
            frames,
            needed=expected,
            timeout_s=self.timeout_s,
            traffic=traffic,
            largest=self.largest,
            is_enough=is_enough,
        ):
            heard.add(reply.party)
            if reply.status is Status.OK:
                yield reply
            elif reply.reason is not None:
                self.party_states.set_party(reply.party, PartyStatus.DECLINED, str(reply.reason))
                self.refused[reply.party] = reply.reason
                if is_permanent and reply.reason not in TRANSIENT_REASONS:
                    self.declined[reply.party] = reply.reason
        for index in expected - heard:
            self.mark_silent(index)

    def mark_silent(self, index: int) -> None:
        """Record that a party did not answer, or answered wrongly."""
        self.silent.add(index)
        self.party_states.set_party(index, PartyStatus.DROPPED)

    def accept(
        self,
        reply: Reply,
        take: Callable[[bytes], int],
        accepted: set[int],
        *,
        blob: int = 0,
        blobs: int = 1,
    ) -> bool:
        """Hand a blob of an answer to the protocol; a party that breaks it counts as silent.

        Args:
            reply: an ok answer that must have `blobs` blobs.
            take: a method of the protocol's server that returns the sender.
        """
        try:
            # Check the sender first: a message in another party's name must not be processed at
            # all.
            if (
                len(reply.frame.blobs) != blobs
                or read_sender(reply.frame.blobs[blob]) != reply.party
            ):
                raise RemoteProtocolError("Expected a message of the party that answered.")
            take(reply.frame.blobs[blob])
        except RemoteProtocolError as error:
            (name,) = self.party_states.list_names([reply.party])
            said = self.party_states.replace_indices(str(error))
            _log.warning("%s broke the protocol: %s", name, said)
            self.mark_silent(reply.party)
            return False
        accepted.add(reply.party)
        return True
