"""Pairwise masks: the whole protocol in one function, and the tables of allowed transitions.

Bonawitz et al. 2017 (CCS'17: double masks, recovery), Bell et al. 2020 (ePrint 2020/704: k-regular
graph), Ma et al. 2023 (Flamingo, ePrint 2023/486: keys agreed on once, reused over rounds).

Party ("→" is its answer; any other message is refused without an answer):

| state | input | → | next |
|---|---|---|---|
| NEW | advertise() | Advertise | ADVERTISED |
| ADVERTISED | Roster (and Nonces, on a graph that is not complete) | Encapsulated | PAIRING |
| PAIRING | prepare(1) | Shares of 1 | unchanged |
| PAIRING | Ciphertexts | a Complaint, or no message | IDLE |
| IDLE, disputing, no vector sent | prove(a confirmed list) | Evidence | LEFT, everything erased |
| IDLE, MASKED, CONFIRMED | prepare(r) | Shares of r | unchanged |
| IDLE, MASKED, CONFIRMED | RoundStart of r > any answered | Vector | MASKED, an open round erased |
| MASKED | Survivors | Confirm | CONFIRMED |
| CONFIRMED | Confirmations | Reveal | IDLE, round erased |
| MASKED, CONFIRMED | a list or confirmations it refuses, or abort_round() | | IDLE, round erased |

Ciphertexts that arrive again after PAIRING are not read.

Server:

| state | input | next |
|---|---|---|
| JOINING | Advertise | JOINING |
| JOINING | build_rosters() returns Rosters, encode_nonces() the Nonces | READY |
| READY, before the first plan | Encapsulated | READY |
| any after JOINING | get_ciphertexts(i), while i has none; Complaint, Evidence | unchanged |
| any after JOINING | Shares of the requested round | unchanged |
| any after JOINING | plan(r) returns RoundStarts | VECTORS |
| VECTORS | Vector | VECTORS |
| VECTORS | close() returns Survivors | CONFIRMING |
| CONFIRMING | Confirm | CONFIRMING |
| CONFIRMING | build_confirmations() returns Confirmations | UNMASKING |
| UNMASKING | Reveal | UNMASKING |
| UNMASKING | finish() returns the sum, or raises TooFewSurvivors | READY |

`LocalProtocolError` is a call out of order on our side, `RemoteProtocolError` a message of theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from parley.secure_agg.encoding import Ring
from parley.secure_agg.interface import DropStage, SumResult, TooFewSurvivors
from parley.secure_agg.mask_expansion import add_shared_masks
from parley.secure_agg.messages import Bytes
from parley.secure_agg.pair_keys import PairKeyComputer
from parley.secure_agg.pairwise_party import MaskingParty
from parley.secure_agg.pairwise_server import MaskingServer
from parley.secure_agg.party_masking import MaskJob
from parley.secure_agg.protocol_parameters import STAGES


class TrafficCounter:
    """Counter of the bytes that would travel: up, down, and by kind of message."""

    def __init__(self) -> None:
        self.bytes_up = self.bytes_down = 0
        self.by_kind: Counter[int] = Counter()

    def count_up(self, message: Bytes) -> Bytes:
        """Count a message from a party to the server, and return it."""
        self.bytes_up += len(message)
        self.by_kind[message[1]] += len(message)
        return message

    def count_down(self, message: Bytes, copies: int = 1) -> Bytes:
        """Count a message from the server to one or several parties, and return it."""
        self.bytes_down += copies * len(message)
        self.by_kind[message[1]] += copies * len(message)
        return message


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalPartyGroup:
    """All parties of a run in one process: bit for bit the same as separate parties.

    They share the `work` of the edges between them. Each edge's mask is expanded once, added to one
    vector and subtracted from the other. If the vectors exceed `shared_bytes`, the parties mask one
    after the other: twice the keystream, but memory for one vector instead of B.
    """

    parties: dict[int, MaskingParty]
    work: PairKeyComputer
    shared_bytes: int

    def mask_vectors(
        self, plans: Mapping[int, Bytes], vectors: Mapping[int, Ring], *, size: int, context: bytes
    ) -> Iterator[Bytes]:
        """Yield the masked vectors, of `size` bytes each, of the parties of `plans`, one after the
        other.
        """
        chosen = [i for i in plans if i in vectors]
        if size * len(chosen) > self.shared_bytes:
            for i in chosen:
                yield self.parties[i].handle_plan(plans[i], vectors[i], context=context)
            return
        jobs = [self.parties[i].start_round(plans[i], vectors[i], context=context) for i in chosen]
        _mask_together(jobs)
        for job in jobs:
            yield job.message


def _mask_together(jobs: list[MaskJob]) -> None:
    """Mask B vectors; expand a key once if one vector adds it and another subtracts it."""
    adds = {key: n for n, job in enumerate(jobs) for key in job.added_keys}
    subtracts = {key: n for n, job in enumerate(jobs) for key in job.subtracted_keys}
    edges = [(adds[key], n, key) for key, n in subtracts.items() if key in adds]
    unpaired = [(n, 1, key) for key, n in adds.items() if key not in subtracts]
    unpaired += [(n, -1, key) for key, n in subtracts.items() if key not in adds]
    add_shared_masks([job.words for job in jobs], unpaired, edges)


def join(server: MaskingServer, block: LocalPartyGroup, wire: TrafficCounter) -> None:
    """Run the set-up of a run: signed keys up, the roster down, pair secrets agreed on."""
    for party in block.parties.values():
        server.handle_advertise(wire.count_up(party.advertise()))
    rosters, nonces = server.build_rosters(), server.adverts.encode_nonces()
    if nonces:
        wire.count_down(nonces, copies=len(rosters))
    for i, roster in rosters.items():
        answer = block.parties[i].handle_roster(wire.count_down(roster), nonces)
        if answer:
            server.handle_encapsulated(wire.count_up(answer))
    block.work.clear()


def run_secure_sum(
    server: MaskingServer,
    parties: LocalPartyGroup,
    vectors: Mapping[int, Ring],
    *,
    dimension: int,
    round_number: int,
    context: bytes,
    dropped: Mapping[int, DropStage],
    traffic: TrafficCounter,
    setup_traffic: TrafficCounter,
) -> SumResult:
    """Run one round of the whole protocol, with all parties and the server in this process.

    Args:
        vectors: `[d]` ring elements by party.
        context: 32 bytes, the caller's digest of what is released.
        traffic: counter to which the round's bytes are added.
        setup_traffic: counter for the rest of the set-up, which travels in the first round.

    Raises:
        TooFewSurvivors: a threshold is not reached.
    """
    run = server.run
    try:
        # Shares of the round travel with an earlier message, so they are not a stage.
        for party in parties.parties.values():
            server.handle_shares(traffic.count_up(party.prepare(round_number)), number=round_number)
        parties.work.clear()

        # The ciphertexts are the last part of the set-up. They travel with the first plan.
        if server.round_number == 0:
            for i, party in parties.parties.items():
                ciphertexts = server.get_ciphertexts(i)
                if ciphertexts:
                    complaint = party.handle_ciphertexts(setup_traffic.count_down(ciphertexts))
                    if complaint:
                        server.handle_complaint(setup_traffic.count_up(complaint))
            parties.work.clear(ciphertexts=True)

        # Stage 1: the plan, and the masked vectors.
        plans = server.plan(round_number, dimension=dimension, context=context)
        for plan in plans.values():
            traffic.count_down(plan)
        heard = {i: plan for i, plan in plans.items() if _is_active(i, dropped, 0)}
        size = dimension * run.ring_bits // 8
        for masked in parties.mask_vectors(heard, vectors, size=size, context=context):
            server.handle_vector(traffic.count_up(masked))
        parties.work.clear()
        survivors = server.survivors

        # Stage 2: the survivors' list. They confirm it to each other first.
        listed = server.close()
        traffic.count_down(listed, copies=len(survivors))
        for _, party in _iterate_active(parties, survivors, dropped, 1):
            with suppress(TooFewSurvivors):  # a party that refuses to answer counts as silent
                server.handle_confirm(traffic.count_up(party.handle_survivors(listed)))

        # Stage 3: each party checks that enough parties signed the same list, then reveals.
        confirmations = server.build_confirmations()
        for reply in confirmations.values():
            traffic.count_down(reply)
        for i, party in _iterate_active(parties, confirmations, dropped, 2):
            with suppress(TooFewSurvivors):
                server.handle_reveal(traffic.count_up(party.handle_confirmations(confirmations[i])))
        return SumResult(
            total=server.finish(),
            survivors=survivors,
            bytes_up=traffic.bytes_up,
            bytes_down=traffic.bytes_down,
            stages=STAGES,
        )
    finally:
        for party in parties.parties.values():
            party.abort_round()


_SILENT_FROM = {DropStage.BEFORE_VECTOR: 0, DropStage.AFTER_VECTOR: 1, DropStage.BEFORE_UNMASK: 2}


def _is_active(party: int, dropped: Mapping[int, DropStage], moment: int) -> bool:
    stage = dropped.get(party)
    return stage is None or _SILENT_FROM[stage] > moment


def _iterate_active(
    block: LocalPartyGroup, parties: Iterable[int], dropped: Mapping[int, DropStage], moment: int
) -> Iterator[tuple[int, MaskingParty]]:
    return ((i, block.parties[i]) for i in parties if _is_active(i, dropped, moment))
