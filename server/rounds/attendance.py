"""Who is there: parties are asked, and it is noted how they answer.

Who declines, fails, falls silent or breaks the protocol is not in the sum; the rest goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from parley.client.contract.protocol import Frame, Reason, Status
from parley.secure_agg.codec import sender_of
from parley.secure_agg.interface import RemoteProtocolError
from parley.server.rounds.asking import Reply, Traffic, ask
from parley.server.rounds.party_status import PartyBoard, PartyStatus
from parley.server.rounds.transport import Transport

_log = logging.getLogger("parley.server")

_PASSING = frozenset({Reason.BUSY, Reason.PROTOCOL, Reason.ERROR})
"""Reasons after which a party is asked again in the next round; any other stands for the run."""


@dataclass(kw_only=True)
class Attendance:
    """How the parties of a run answer.

    Attributes:
        largest: bytes of a reply that an honest party can send.
        declined: parties that take no part in the run, with their reasons.
        refused: who declined since `begin`, with the reason.
        silent: who fell silent or broke the protocol, since `begin`.
    """

    transport: Transport
    board: PartyBoard
    timeout_s: float
    largest: int
    declined: dict[int, Reason]
    refused: dict[int, Reason] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)

    def begin(self) -> None:
        """A new round, or a new set-up: only who declined the run is remembered."""
        self.refused, self.silent = {}, set()

    def ask(
        self,
        frames: Mapping[int, Frame],
        traffic: Traffic,
        needed: Collection[int] | None = None,
        *,
        lasting: bool = True,
    ) -> Iterator[Reply]:
        """Ok answers; who declines or falls silent is noted.

        Args:
            lasting: a refusal stands for the run, unless its reason passes; one about who is left
                of a round is about that round alone.
        """
        expected = set(frames) if needed is None else set(needed)
        heard = set()
        for reply in ask(
            self.transport,
            frames,
            needed=expected,
            timeout_s=self.timeout_s,
            traffic=traffic,
            largest=self.largest,
        ):
            heard.add(reply.party)
            if reply.status is Status.OK:
                yield reply
            elif reply.reason is not None:
                self.board.party(reply.party, PartyStatus.DECLINED, str(reply.reason))
                self.refused[reply.party] = reply.reason
                if lasting and reply.reason not in _PASSING:
                    self.declined[reply.party] = reply.reason
        for index in expected - heard:
            self.fall_silent(index)

    def fall_silent(self, index: int) -> None:
        """A party did not answer, or not as it has to."""
        self.silent.add(index)
        self.board.party(index, PartyStatus.DROPPED)

    def accept(
        self,
        reply: Reply,
        take: Callable[[bytes], int],
        into: set[int],
        *,
        blob: int = 0,
        blobs: int = 1,
    ) -> bool:
        """Hands a blob of an answer to the protocol; who breaks it counts as silent.

        Args:
            reply: an ok answer that must have `blobs` blobs.
            take: a method of the protocol's server that returns the sender.
        """
        try:
            # The sender first: a message in another's name must not be taken at all.
            if len(reply.frame.blobs) != blobs or sender_of(reply.frame.blobs[blob]) != reply.party:
                raise RemoteProtocolError("Expected a message of the party that answered.")
            take(reply.frame.blobs[blob])
        except RemoteProtocolError as error:
            (name,) = self.board.names([reply.party])
            _log.warning("%s broke the protocol: %s", name, self.board.in_names(str(error)))
            self.fall_silent(reply.party)
            return False
        into.add(reply.party)
        return True
