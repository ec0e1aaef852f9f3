"""How requests reach parties: bytes out, bytes back as they come, within a deadline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

LARGEST_REPLY = 1 << 30
"""Bytes of a reply where nobody knows better."""

_HEAD, _A_PARTY, _A_COORDINATE = 1 << 17, 1 << 10, 8


def reply_bound(*, parties: int, dimension: int) -> int:
    """Bytes that no honest reply exceeds.

    A masked vector has at most 8 bytes a coordinate, shares and what opens them some hundred bytes
    for each other party.

    >>> reply_bound(parties=3, dimension=31)
    134392
    """
    return _HEAD + _A_PARTY * parties + _A_COORDINATE * dimension


class Transport(Protocol):
    """A way to the parties of a deployment, which are known by their index in its roster."""

    def online(self) -> tuple[int, ...]:
        """Parties that can be asked now, ascending."""

    def exchange(
        self, requests: Mapping[int, bytes], *, timeout_s: float, largest: int = LARGEST_REPLY
    ) -> Iterator[tuple[int, bytes]]:
        """Sends every request and yields (party, reply) as replies come.

        Ends when all have replied or the deadline is over; a party without a reply fell silent,
        and a reply that comes later is never yielded, nor one of more than `largest` bytes. The
        caller may stop earlier.
        """
