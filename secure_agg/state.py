"""What a party must keep between messages and process restarts, and nothing else.

`to_bytes` and `from_bytes` carry it across a restart. The bytes hold the secrets of the run and of
the rounds that are open: store them as a private key would be stored. Secrets of rounds that ended
are not in them, nor can they be derived from what is: the pair secrets are ratcheted forward.

Store them *before* the message that goes with them is sent, and keep the newest alone: a party that
crashed and went on from an older state could seal two messages under one key and nonce, and answer
a round twice.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum

from parley.secure_agg.interface import LocalProtocolError
from parley.secure_agg.parameters import RunParameters

_VERSION = 3


class Phase(IntEnum):
    """Where a party stands; the table of transitions is in `pairwise`."""

    NEW = 0
    ADVERTISED = 1
    PAIRING = 2
    IDLE = 3
    MASKED = 4
    CONFIRMED = 5
    LEFT = 6


@dataclass(kw_only=True, repr=False)
class Prepared:
    """A round whose shares were sent, by present neighbour: keys derived for this round only.

    `halves`, under the neighbours' pads, go behind the vector of a hybrid run's first round.
    """

    seed: bytes
    pair_keys: list[bytes]
    envelope_keys: list[bytes]
    halves: list[bytes] = field(default_factory=list)


@dataclass(kw_only=True, repr=False)
class Pairing:
    """What a hybrid run's party keeps until its neighbours' ciphertexts come, by neighbour.

    Attributes:
        transcripts: `hybrid.transcript` of each pair.
        exchanged: X25519's secrets.
        outgoing: `hybrid.Direction` of what this party encapsulated, 128 bytes.
    """

    transcripts: list[bytes]
    exchanged: list[bytes]
    outgoing: list[bytes]


@dataclass(kw_only=True, repr=False)
class OpenRound:
    """A round whose vector was sent; lists run over the participating neighbours."""

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
        run: parameters; with their beacon, once the set-up is done.
        roster: digest of the roster that the key of the run was signed for.
        nonce: revealed in the set-up, for the beacon; then empty.
        index: own index.
        phase: where it stands.
        private_key: X25519 key until the roster, then empty.
        kem_seed: of the ML-KEM key, in a hybrid run: until the neighbours' ciphertexts came, or
            while one that did not match may have to be proved; then empty.
        pairing: between roster and ciphertexts of a hybrid run.
        disputed: neighbours whose ciphertext did not match.
        near: present neighbours, ascending.
        chains: one ratcheted pair secret for each of `near`, at `chain_round`.
        chain_round: the round whose keys the chains derive next.
        last_round: the last round that a vector was sent for.
        prepared: rounds whose shares were sent, at most two.
        current: the round that is open, if any.
    """

    run: RunParameters
    index: int
    phase: Phase = Phase.NEW
    roster: bytes = b""
    nonce: bytes = b""
    private_key: bytes = b""
    kem_seed: bytes = b""
    pairing: Pairing | None = None
    disputed: list[int] = field(default_factory=list)
    near: list[int] = field(default_factory=list)
    chains: list[bytes] = field(default_factory=list)
    chain_round: int = 1
    last_round: int = 0
    prepared: dict[int, Prepared] = field(default_factory=dict)
    current: OpenRound | None = None

    def __repr__(self) -> str:
        return f"<MaskingState of party {self.index}: {self.phase.name}, round {self.last_round}>"

    def __reduce__(self) -> str:
        raise TypeError("Expected MaskingState.to_bytes, got pickle: it would copy secrets unseen.")

    def to_bytes(self) -> bytes:
        """Everything above, secrets included."""
        out = _Writer()
        out.number(_VERSION, self.index, self.phase, self.chain_round, self.last_round)
        out.blob(self.run.to_bytes())
        for part in (self.roster, self.nonce, self.private_key, self.kem_seed):
            out.blob(part)
        out.number(self.pairing is not None)
        if self.pairing is not None:
            pairing = self.pairing
            for keys in (pairing.transcripts, pairing.exchanged, pairing.outgoing):
                out.blobs(keys)
        out.numbers(self.disputed)
        out.numbers(self.near)
        out.blobs(self.chains)
        out.number(len(self.prepared))
        for number, prepared in sorted(self.prepared.items()):
            out.number(number)
            out.blob(prepared.seed)
            for keys in (prepared.pair_keys, prepared.envelope_keys, prepared.halves):
                out.blobs(keys)
        out.number(self.current is not None)
        if self.current is not None:
            current = self.current
            out.number(current.number)
            for part in (current.plan_digest, current.participants, current.survivors):
                out.blob(part)
            out.blob(current.seed)
            out.numbers(current.members)
            for keys in (current.pair_keys, current.envelope_keys):
                out.blobs(keys)
            out.blob(current.envelopes)
        return b"".join(out.parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> MaskingState:
        """The inverse of `to_bytes`.

        Raises:
            LocalProtocolError: not such bytes; the message has lengths only.
            RemoteProtocolError: parameters inside that no run may have.
        """
        read = _Reader(data)
        version, index, phase, chain_round, last_round = (read.number() for _ in range(5))
        if version != _VERSION or phase not in list(Phase):
            raise LocalProtocolError(
                f"Expected version {_VERSION} and a phase from 0 to 6, got {version} and {phase}."
            )
        state = cls(
            run=RunParameters.from_bytes(read.blob()),
            index=index,
            phase=Phase(phase),
            chain_round=chain_round,
            last_round=last_round,
            roster=read.blob(),
            nonce=read.blob(),
            private_key=read.blob(),
            kem_seed=read.blob(),
            pairing=read.pairing(),
            disputed=read.numbers(),
            near=read.numbers(),
            chains=read.blobs(),
        )
        for _ in range(read.number()):
            number = read.number()
            state.prepared[number] = Prepared(
                seed=read.blob(),
                pair_keys=read.blobs(),
                envelope_keys=read.blobs(),
                halves=read.blobs(),
            )
        if read.flag():
            state.current = OpenRound(
                number=read.number(),
                plan_digest=read.blob(),
                participants=read.blob(),
                survivors=read.blob(),
                seed=read.blob(),
                members=read.numbers(),
                pair_keys=read.blobs(),
                envelope_keys=read.blobs(),
                envelopes=read.blob(),
            )
        read.end()
        _check_pairs(state)
        return state


def _check_pairs(state: MaskingState) -> None:
    pairing, near = state.pairing, len(state.near)
    lists = [state.chains]
    if pairing is not None:
        lists = [pairing.transcripts, pairing.exchanged, pairing.outgoing]
    whole = all(len(each) == near for each in lists) or state.phase is Phase.LEFT
    if state.index >= state.run.parties or not whole:
        raise LocalProtocolError(
            f"Expected an index below {state.run.parties} and keys for each of {near} neighbours, "
            f"got {state.index} and keys for {[len(each) for each in lists]}."
        )
    if (pairing is not None) != (state.phase is Phase.PAIRING):
        raise LocalProtocolError(
            f"Expected unfinished pair secrets while PAIRING alone, got {state.phase.name}."
        )


class _Writer:
    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def number(self, *values: int) -> None:
        self.parts.append(struct.pack(f">{len(values)}I", *values))

    def numbers(self, values: list[int]) -> None:
        self.number(len(values), *values)

    def blob(self, value: bytes) -> None:
        self.number(len(value))
        self.parts.append(value)

    def blobs(self, values: list[bytes]) -> None:
        self.number(len(values))
        for value in values:
            self.blob(value)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        if len(piece) != size:  # before any list is made: a count cannot ask for memory
            raise LocalProtocolError(
                f"Expected {size} more bytes of state at {self._at}, got {len(piece)}."
            )
        self._at += size
        return piece

    def number(self) -> int:
        return int.from_bytes(self._take(4), "big")

    def flag(self) -> bool:
        value = self.number()
        if value > 1:
            raise LocalProtocolError(f"Expected a flag of 0 or 1 in the state, got {value}.")
        return bool(value)

    def numbers(self) -> list[int]:
        count = self.number()
        return list(struct.unpack(f">{count}I", self._take(4 * count)))

    def blob(self) -> bytes:
        return self._take(self.number())

    def blobs(self) -> list[bytes]:
        return [self.blob() for _ in range(self.number())]

    def pairing(self) -> Pairing | None:
        if not self.flag():
            return None
        return Pairing(transcripts=self.blobs(), exchanged=self.blobs(), outgoing=self.blobs())

    def end(self) -> None:
        if self._at != len(self._data):
            raise LocalProtocolError(f"Expected {self._at} bytes of state, got {len(self._data)}.")
