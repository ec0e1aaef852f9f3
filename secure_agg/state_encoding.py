"""Encode a party's stored state as bytes.

The bytes are the fields of `MaskingState` in their order. A number is 4 bytes, big-endian. Bytes,
lists and maps begin with their length, optional values with 0 or 1.
"""

from __future__ import annotations

import struct
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from parley.secure_agg.interface import LocalProtocolError
from parley.secure_agg.party_state import MaskingState, PartyPhase
from parley.secure_agg.protocol_parameters import RunParameters

_VERSION = 3


def encode_state(state: MaskingState) -> bytes:
    """Return all fields as bytes, secrets included."""
    return _encode_number(_VERSION) + _encode_value(state, MaskingState)


def decode_state(data: bytes) -> MaskingState:
    """Parse the bytes of `encode_state`.

    Raises:
        LocalProtocolError: no such bytes; the message contains lengths only.
        RemoteProtocolError: the parameters inside are invalid.
    """
    reader = _StateReader(data)
    version = reader.read_number()
    if version != _VERSION:
        raise LocalProtocolError(f"Expected a state of version {_VERSION}, got {version}.")
    state: MaskingState = reader.read(MaskingState)
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
            f"Expected unfinished pairs while PAIRING, got {state.phase.name}."
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
        types = _get_field_types(kind).items()
        return b"".join([_encode_value(getattr(value, name), each) for name, each in types])
    first, *rest = get_args(kind)
    if rest == [NoneType]:
        if value is None:
            return _encode_number(0)
        return _encode_number(1) + _encode_value(value, first)
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
                f"Expected {size} bytes at {self._position}, got {len(piece)}."
            )
        self._position += size
        return piece

    def read_number(self, maximum: int = 2**32 - 1) -> int:
        value = int.from_bytes(self._read_bytes(4), "big")
        if value > maximum:
            raise LocalProtocolError(f"Expected a number ≤ {maximum} in the state, got {value}.")
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
            raise LocalProtocolError(f"Expected {self._position} bytes, got {len(self._data)}.")
