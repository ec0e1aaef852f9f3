"""Requests to parties and what comes back: an answer that can be read, or the reason for none."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from parley.client.contract.decoding import as_came
from parley.client.contract.protocol import (
    WIRE_VERSION,
    Frame,
    Reason,
    Status,
    WireError,
    decode_frame,
    encode_frame,
)
from parley.server.rounds.transport import LARGEST_REPLY, Transport


@dataclass(kw_only=True)
class Traffic:
    """Bytes of all parties, and seconds of each exchange, one after another."""

    up: int = 0
    down: int = 0
    seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a party answered: the frame of an ok answer, or why there is none."""

    party: int
    status: Status
    reason: Reason | None
    frame: Frame


def ask(
    transport: Transport,
    frames: Mapping[int, Frame],
    *,
    needed: Collection[int],
    timeout_s: float,
    traffic: Traffic,
    largest: int = LARGEST_REPLY,
) -> Iterator[Reply]:
    """Sends frames and yields the parties' answers, until all of `needed` answered or the deadline.

    A reply of more than `largest` bytes is not read. One that is no answer is a refusal for
    breaking the protocol.
    """
    if not frames:
        return
    requests = {index: encode_frame(frame) for index, frame in frames.items()}
    traffic.down += sum(len(request) for request in requests.values())
    waiting = set(needed)
    began = time.perf_counter()
    replies = transport.exchange(requests, timeout_s=timeout_s, largest=largest)
    for index, data in replies:
        if index not in frames:
            continue
        traffic.up += len(data)
        yield _reply(index, data)
        waiting.discard(index)
        if not waiting:
            break
    traffic.seconds.append(time.perf_counter() - began)


def _reply(index: int, data: bytes) -> Reply:
    empty = Frame(kind="answer", head={})
    try:
        frame = decode_frame(data)
        if frame.kind != "answer" or frame.head.get("version") != WIRE_VERSION:
            raise WireError(
                f"Expected an answer of version {WIRE_VERSION}, got {frame.kind} of version "
                f"{as_came(frame.head.get('version'))}."
            )
        status = Status(str(frame.head.get("status")))
        reason = None if status is Status.OK else Reason(str(frame.head.get("reason")))
    except ValueError:
        return Reply(party=index, status=Status.REFUSED, reason=Reason.PROTOCOL, frame=empty)
    return Reply(party=index, status=status, reason=reason, frame=frame)
