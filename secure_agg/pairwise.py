"""Pairwise masks: the protocol in one function, and the table of what may follow what.

Bonawitz et al. 2017 (CCS'17: double masks, recovery), Bell et al. 2020 (ePrint 2020/704: k-regular
graph), Ma et al. 2023 (Flamingo, ePrint 2023/486: keys agreed on once, reused over rounds).

Party, robust mode ("→" is what it answers; any other message is refused, unanswered):

| state | comes | → | next |
|---|---|---|---|
| NEW | advertise() | Advertise | ADVERTISED |
| ADVERTISED | Roster (and Nonces, on a graph that is not complete) | | IDLE |
| ADVERTISED (hybrid) | the same | Encapsulated | PAIRING |
| PAIRING | prepare(1) | Shares of 1 | unchanged |
| PAIRING | Ciphertexts | a Complaint, or nothing | IDLE |
| IDLE, disputing, no vector sent | prove(a confirmed list) | Evidence | LEFT, everything erased |
| IDLE, MASKED, CONFIRMED | prepare(r) | Shares of r | unchanged |
| IDLE, MASKED, CONFIRMED | RoundStart of r > any answered | Vector | MASKED, an open round erased |
| MASKED | Survivors (active) | Confirm | CONFIRMED |
| MASKED | Survivors (semi-honest) | Reveal | IDLE, round erased |
| CONFIRMED | Confirmations | Reveal | IDLE, round erased |
| MASKED, CONFIRMED | a list or confirmations it refuses, or abandon() | | IDLE, round erased |

Optimistic mode: IDLE, RoundStart → Vector, IDLE; there is nothing to confirm or reveal. Ciphertexts
that come again, after IDLE, are not looked at.

Server:

| state | comes | next |
|---|---|---|
| JOINING | Advertise | JOINING |
| JOINING | roster() gives Rosters, nonces() the Nonces | READY |
| READY, before the first plan (hybrid) | Encapsulated | READY |
| any after JOINING (hybrid) | ciphertexts(i), while i has none; Complaint, Evidence | unchanged |
| any after JOINING | Shares of the round they were asked for | unchanged |
| any after JOINING | plan(r) gives Plans | VECTORS |
| VECTORS | Vector | VECTORS |
| VECTORS | close() gives Survivors | CONFIRMING (active), UNMASKING |
| CONFIRMING | Confirm | CONFIRMING |
| CONFIRMING | confirmations() gives Confirmations | UNMASKING |
| UNMASKING | Reveal | UNMASKING |
| UNMASKING (optimistic: VECTORS) | finish() gives the sum, or TooFewSurvivors | READY |

`LocalProtocolError` is a call out of order on our side, `RemoteProtocolError` a message of theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from parley.secure_agg.block import Block
from parley.secure_agg.encoding import Ring
from parley.secure_agg.interface import DropoutPolicy, DropStage, SumResult, TooFewSurvivors
from parley.secure_agg.messages import Bytes
from parley.secure_agg.pairwise_party import Party
from parley.secure_agg.pairwise_server import Server


class Wire:
    """Counts the bytes that would travel: up, down, and by the kind of message."""

    def __init__(self) -> None:
        self.bytes_up = self.bytes_down = 0
        self.by_kind: Counter[int] = Counter()

    def up(self, message: Bytes) -> Bytes:
        """A message from a party to the server."""
        self.bytes_up += len(message)
        self.by_kind[message[1]] += len(message)
        return message

    def down(self, message: Bytes, copies: int = 1) -> Bytes:
        """A message from the server to a party, or to several."""
        self.bytes_down += copies * len(message)
        self.by_kind[message[1]] += copies * len(message)
        return message


def join(server: Server, block: Block, wire: Wire) -> None:
    """Set-up, once a run: signed keys up, the roster down, pair secrets agreed on."""
    for message in block.advertise():
        server.on_advertise(wire.up(message))
    rosters = server.roster()
    nonces = server.adverts.nonces()
    if nonces:
        wire.down(nonces, copies=len(rosters))
    for message in block.on_rosters(((i, wire.down(r)) for i, r in rosters.items()), nonces):
        server.on_encapsulated(wire.up(message))


def run_secure_sum(
    server: Server,
    block: Block,
    vectors: Mapping[int, Ring],
    *,
    dimension: int,
    round_number: int,
    context: bytes,
    dropped: Mapping[int, DropStage],
    participants: Iterable[int] | None,
    wire: Wire,
    setup: Wire,
) -> SumResult:
    """One round of the whole protocol, all parties and the server in this process.

    Args:
        vectors: `[d]` ring elements by party.
        context: 32 bytes, the caller's digest of what is released.
        participants: None: everyone.
        wire: counts bytes on, over several attempts.
        setup: counts what is left of the set-up in the first round.

    Raises:
        TooFewSurvivors: a threshold is not reached, or (optimistic) a vector is missing.
    """
    run = server.run
    try:
        # Shares of the round: they travel with an earlier message, so they are no stage.
        if run.dropouts is DropoutPolicy.ROBUST:
            for message in block.prepare(round_number):
                server.on_shares(wire.up(message), number=round_number)

        # The last of a hybrid run's set-up, which travels with the first plan: the ciphertexts.
        if run.hybrid and server.round_number == 0:
            given = ((i, server.ciphertexts(i)) for i in block.parties)
            for complaint in block.on_ciphertexts((i, setup.down(c)) for i, c in given if c):
                server.on_complaint(setup.up(complaint))

        # Stage 1: the plan, and the masked vectors.
        plans = server.plan(
            round_number, dimension=dimension, context=context, participants=participants
        )
        for plan in plans.values():
            wire.down(plan)
        heard = {i: plan for i, plan in plans.items() if _speaks(i, dropped, 0)}
        size = dimension * run.ring_bits // 8
        for masked in block.on_plans(heard, vectors, size=size, context=context):
            server.on_vector(wire.up(masked))
        survivors = server.survivors
        if run.dropouts is DropoutPolicy.OPTIMISTIC:
            return _result(server.finish(), survivors, wire, run.stages)

        # Stage 2: the survivors' list. Active: they confirm it to each other first.
        listed = server.close()
        wire.down(listed, copies=len(survivors))
        for _, party in _speaking(block, survivors, dropped, 1 if run.confirm_survivors else 2):
            with suppress(TooFewSurvivors):  # a party that will not answer is one that is silent
                answer = wire.up(party.on_survivors(listed))
                (server.on_confirm if run.confirm_survivors else server.on_reveal)(answer)

        # Stage 3 (active): each sees that enough signed the same list, then reveals.
        if run.confirm_survivors:
            confirmations = server.confirmations()
            for reply in confirmations.values():
                wire.down(reply)
            for i, party in _speaking(block, confirmations, dropped, 2):
                with suppress(TooFewSurvivors):
                    server.on_reveal(wire.up(party.on_confirmations(confirmations[i])))
        return _result(server.finish(), survivors, wire, run.stages)
    finally:
        block.abandon()


_SILENT_FROM = {
    DropStage.BEFORE_VECTOR: 0,
    DropStage.AFTER_VECTOR: 1,
    DropStage.BEFORE_UNMASK: 2,
}


def _speaks(party: int, dropped: Mapping[int, DropStage], moment: int) -> bool:
    stage = dropped.get(party)
    return stage is None or _SILENT_FROM[stage] > moment


def _speaking(
    block: Block, parties: Iterable[int], dropped: Mapping[int, DropStage], moment: int
) -> Iterator[tuple[int, Party]]:
    return ((i, block.parties[i]) for i in parties if _speaks(i, dropped, moment))


def _result(total: Ring, survivors: tuple[int, ...], wire: Wire, stages: int) -> SumResult:
    return SumResult(
        total=total,
        survivors=survivors,
        bytes_up=wire.bytes_up,
        bytes_down=wire.bytes_down,
        stages=stages,
    )
