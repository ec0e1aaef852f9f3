"""`MaskingState`: what a party must store between messages and process restarts.

`to_bytes` and `from_bytes` carry it across a restart. The bytes contain the secrets of the run and
of the open rounds: store them like a private key. They do not contain secrets of rounds that ended,
and those cannot be derived from them: the pair secrets are ratcheted forward.

Store the bytes *before* you send the message that goes with them, and keep only the newest. A party
that crashed and resumed from an older state could seal two messages under one key and nonce, and
answer a round twice.

The bytes are the fields below in their order. A number is 4 bytes, big-endian. Bytes, lists and
maps begin with their length, optional values with 0 or 1.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from parley.secure_agg.interface import LocalProtocolError
from parley.secure_agg.protocol_parameters import RunParameters

_VERSION = 3


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
        raise TypeError(
            "Expected MaskingState.to_bytes, got pickle, which would copy secrets unnoticed."
        )

    def to_bytes(self) -> bytes:
        """Return all fields as bytes, secrets included."""
        return _encode_number(_VERSION) + _encode_value(self, MaskingState)

    @classmethod
    def from_bytes(cls, data: bytes) -> MaskingState:
        """Parse the bytes of `to_bytes`.

        Raises:
            LocalProtocolError: no such bytes; the message contains lengths only.
            RemoteProtocolError: the parameters inside are invalid.
        """
        reader = _StateReader(data)
        version = reader.read_number()
        if version != _VERSION:
            raise LocalProtocolError(f"Expected a state of version {_VERSION}, got {version}.")
        state: MaskingState = reader.read(cls)
        reader.check_end()
        _check_pairs(state)
        return state


def _check_pairs(state: MaskingState) -> None:
    pairing, near = state.pairing, len(state.neighbours)
    lists = [state.chains]
    if pairing is not None:
        lists = [pairing.transcripts, pairing.exchanged, pairing.outgoing]
    whole = all(len(each) == near for each in lists) or state.phase is PartyPhase.LEFT
    if state.index >= state.run.parties or not whole:
        raise LocalProtocolError(
            f"Expected an index below {state.run.parties} and keys for each of {near} neighbours, "
            f"got {state.index} and keys for {[len(each) for each in lists]}."
        )
    if (pairing is not None) != (state.phase is PartyPhase.PAIRING):
        raise LocalProtocolError(
            f"Expected unfinished pair secrets only while PAIRING, got {state.phase.name}."
        )


@cache
def _get_field_types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _encode_number(value: int) -> bytes:
    return struct.pack(">I", value)


def _encode_value(value: Any, kind: Any) -> bytes:  # noqa: PLR0911 - one per type
    """Encode a value of one of the field types above as bytes."""
    if kind is int or kind is PartyPhase:
        return _encode_number(value)
    if kind is bytes:
        return _encode_number(len(value)) + bytes(value)
    if kind is RunParameters:
        return _encode_value(value.to_bytes(), bytes)
    if hasattr(kind, "__dataclass_fields__"):
        parts = [
            _encode_value(getattr(value, n), each) for n, each in _get_field_types(kind).items()
        ]
        return b"".join(parts)
    first, *rest = get_args(kind)
    if rest == [NoneType]:
        return (
            _encode_number(0) if value is None else _encode_number(1) + _encode_value(value, first)
        )
    if get_origin(kind) is dict:
        pairs = [_encode_number(key) + _encode_value(value[key], *rest) for key in sorted(value)]
        return _encode_number(len(value)) + b"".join(pairs)
    return _encode_number(len(value)) + b"".join(_encode_value(each, first) for each in value)


class _StateReader:
    """Inverse of `_encode_value`."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    def _read_bytes(self, size: int) -> bytes:
        piece = self._data[self._position : self._position + size]
        if len(piece) != size:  # before any list is built: a count cannot request memory
            raise LocalProtocolError(
                f"Expected {size} more bytes at {self._position}, got {len(piece)}."
            )
        self._position += size
        return piece

    def read_number(self, maximum: int = 2**32 - 1) -> int:
        value = int.from_bytes(self._read_bytes(4), "big")
        if value > maximum:
            raise LocalProtocolError(
                f"Expected a number up to {maximum} in the state, got {value}."
            )
        return value

    def read(self, kind: Any) -> Any:  # noqa: PLR0911 - one per type
        if kind is int:
            return self.read_number()
        if kind is PartyPhase:
            return PartyPhase(self.read_number(maximum=max(PartyPhase)))
        if kind is bytes:
            return self._read_bytes(self.read_number())
        if kind is RunParameters:
            return RunParameters.from_bytes(self._read_bytes(self.read_number()))
        if hasattr(kind, "__dataclass_fields__"):
            return kind(**{name: self.read(each) for name, each in _get_field_types(kind).items()})
        first, *rest = get_args(kind)
        if rest == [NoneType]:
            return self.read(first) if self.read_number(maximum=1) else None
        if get_origin(kind) is dict:
            return {self.read_number(): self.read(*rest) for _ in range(self.read_number())}
        return [self.read(first) for _ in range(self.read_number())]

    def check_end(self) -> None:
        if self._position != len(self._data):
            raise LocalProtocolError(
                f"Expected {self._position} bytes of state, got {len(self._data)}."
            )
