"""A frame as a carrier takes it: its length, and parts of at most 4 MiB, nothing else.

A carrier that keeps named records (Flower) puts the length and the first part into `call`, the
others into `part-1`, `part-2`, …; the parts are plain bytes, so that no parser of arrays, pickles
or tensors ever sees what a peer sent. The length is checked against the parts, never believed.

    >>> split(b"abc"), join(3, [b"abc"])
    ([b'abc'], b'abc')
    >>> join(4, [b"abc"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    parley.client.contract.framing.CarrierError: Expected parts of [4] bytes for a frame of 4...
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LARGEST_FRAME = 1 << 30
"""Bytes of the largest frame: 128 million 64-bit masked coordinates."""

_PART = 1 << 22
_SHOWN = 5


class CarrierError(ValueError):
    """What a peer sent is no frame in parts. Never carries content."""


def split(frame: bytes) -> list[bytes]:
    """The parts of a frame, at least one."""
    if len(frame) > LARGEST_FRAME:
        raise CarrierError(f"Expected a frame of at most {LARGEST_FRAME} bytes, got {len(frame)}.")
    return [frame[at : at + _PART] for at in range(0, max(len(frame), 1), _PART)]


def join(length: object, parts: Sequence[object]) -> bytes:
    """The frame of that length in its parts."""
    expected = _sizes(length)
    sizes = [len(part) if isinstance(part, bytes) else -1 for part in parts]
    if sizes != expected:
        raise CarrierError(
            f"Expected parts of {expected[:_SHOWN]} bytes for a frame of {length}, got "
            f"{sizes[:_SHOWN]}."
        )
    return b"".join(part for part in parts if isinstance(part, bytes))


def part_name(index: int) -> str:
    """The name of the record that holds a part.

    >>> part_name(0), part_name(2)
    ('call', 'part-2')
    """
    return f"part-{index}" if index else "call"


def check_names(names: Iterable[str]) -> list[str]:
    """The names of a frame's records, in order."""
    given = set(names)
    expected = [part_name(index) for index in range(len(given))]
    if len(given) > LARGEST_FRAME // _PART or given != set(expected):
        raise CarrierError(f"Expected records {expected[:_SHOWN]}, got others.")
    return expected


def _sizes(length: object) -> list[int]:
    if type(length) is not int or not 0 <= length <= LARGEST_FRAME:
        raise CarrierError(f"Expected a length from 0 to {LARGEST_FRAME}, got something else.")
    whole, rest = divmod(length, _PART)
    return [_PART] * whole + ([rest] if rest or not whole else [])
