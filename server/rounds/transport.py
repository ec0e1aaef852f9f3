"""How requests reach parties: bytes out, bytes back as they come, within a deadline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

__all__ = ["Transport"]


class Transport(Protocol):
    """A way to the parties of a deployment, which are known by their index in its roster."""

    def online(self) -> tuple[int, ...]:
        """Parties that can be asked now, ascending."""

    def exchange(
        self, requests: Mapping[int, bytes], *, timeout_s: float
    ) -> Iterator[tuple[int, bytes]]:
        """Sends every request and yields (party, reply) as replies come.

        Ends when all have replied or the deadline is over; a party without a reply fell silent,
        and a reply that comes later is never yielded. The caller may stop earlier.
        """
