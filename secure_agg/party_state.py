"""`MaskingState`: what a party must store between messages and process restarts.

`state_encoding` carries it across a restart as bytes. They contain the secrets of the run and of
the open rounds: store them like a private key. They do not contain secrets of rounds that ended,
and those cannot be derived from them: the pair secrets are ratcheted forward.

Store the bytes *before* you send the message that goes with them, and keep only the newest. A party
that crashed and resumed from an older state could seal two messages under one key and nonce, and
answer a round twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from parley.secure_agg.protocol_parameters import RunParameters


class PartyPhase(IntEnum):
    """Phase of a party; the table of transitions is in `pairwise`."""

    NEW = 0
    ADVERTISED = 1
    PAIRING = 2
    IDLE = 3
    MASKED = 4
    CONFIRMED = 5
    LEFT = 6


@dataclass(kw_only=True, repr=False)
class PreparedRound:
    """Round whose shares were sent: keys of this round only, by present neighbour.

    `halves` are mask halves under the neighbours' pads. They follow the vector of a run's first
    round.
    """

    seed: bytes
    pair_keys: list[bytes]
    envelope_keys: list[bytes]
    halves: list[bytes] = field(default_factory=list)


@dataclass(kw_only=True, repr=False)
class Pairing:
    """What a party stores until its neighbours' ciphertexts arrive, by neighbour.

    Attributes:
        transcripts: `pair_keys.compute_transcript` of each pair.
        exchanged: X25519 secrets.
        outgoing: `pair_keys.DirectionKeys` of this party's encapsulations, 128 bytes each.
    """

    transcripts: list[bytes]
    exchanged: list[bytes]
    outgoing: list[bytes]


@dataclass(kw_only=True, repr=False)
class OpenRound:
    """Round whose vector was sent; its lists have one entry per participating neighbour."""

    number: int
    plan_digest: bytes
    participants: bytes
    survivors: bytes = b""
    seed: bytes
    members: list[int]
    pair_keys: list[bytes]
    envelope_keys: list[bytes]
    envelopes: bytes


@dataclass(kw_only=True, repr=False)
class MaskingState:
    """State of one party in one run.

    Attributes:
        chain_round: the round whose keys the chains derive next.
        last_round: the last round for which a vector was sent.
        run: parameters; with their beacon, once the set-up is done.
        roster: digest of the roster that the key of the run was signed for.
        nonce: revealed in the set-up, for the beacon; then empty.
        private_key: X25519 key until the roster arrives; then empty.
        kem_seed: seed of the ML-KEM key until the neighbours' ciphertexts arrive, or as long as the
            party may have to prove that one did not match; then empty.
        disputed: neighbours whose ciphertext did not match.
        neighbours: present neighbours, ascending.
        chains: one ratcheted pair secret for each of `neighbours`, at `chain_round`.
        prepared: rounds whose shares were sent, at most two.
        current: the open round, if any.
    """

    index: int
    phase: PartyPhase = PartyPhase.NEW
    chain_round: int = 1
    last_round: int = 0
    run: RunParameters
    roster: bytes = b""
    nonce: bytes = b""
    private_key: bytes = b""
    kem_seed: bytes = b""
    pairing: Pairing | None = None
    disputed: list[int] = field(default_factory=list)
    neighbours: list[int] = field(default_factory=list)
    chains: list[bytes] = field(default_factory=list)
    prepared: dict[int, PreparedRound] = field(default_factory=dict)
    current: OpenRound | None = None

    def __repr__(self) -> str:
        return f"<MaskingState of party {self.index}: {self.phase.name}, round {self.last_round}>"

    def __reduce__(self) -> str:
        raise TypeError("Expected encode_state, got pickle, which would copy secrets unnoticed.")
