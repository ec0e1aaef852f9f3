"""Real parties' services in this process: a transport without a network.

Every request and reply is the bytes that would travel. `lost` scripts what a network or a party
does to them, so that dropouts can be rehearsed at any stage without waiting for a deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from parley.client.contract.protocol import decode_frame
from parley.client.party.service import PartyService
from parley.server.rounds.transport import LARGEST_REPLY

__all__ = ["InProcessTransport"]

Lost = Callable[[str, int], bool]


class InProcessTransport:
    """A `parley.server.rounds.transport.Transport` that calls the parties' services.

    A service is opened anew for every request, as a process that serves one message would.
    """

    def __init__(self, folders: Sequence[Path], *, lost: Lost | None = None) -> None:
        """The parties' folders by index; `lost(kind, party)` says which replies never come."""
        self._folders = list(folders)
        self._lost = lost or (lambda _kind, _party: False)
        self.offline: set[int] = set()
        self.exchanges: list[tuple[str, ...]] = []
        """The kinds of every exchange, in order."""

    def online(self) -> tuple[int, ...]:
        """All but those in `offline`."""
        return tuple(i for i in range(len(self._folders)) if i not in self.offline)

    def exchange(
        self, requests: Mapping[int, bytes], *, timeout_s: float, largest: int = LARGEST_REPLY
    ) -> Iterator[tuple[int, bytes]]:
        """Asks one party after the other; a lost reply is a deadline that passes at once.

        Raises:
            ValueError: a request to a party that is not here.
        """
        del timeout_s
        beyond = sorted(set(requests) - set(range(len(self._folders))))
        if beyond:
            raise ValueError(f"Expected parties below {len(self._folders)}, got {beyond}.")
        kinds = {index: decode_frame(request).kind for index, request in requests.items()}
        self.exchanges.append(tuple(sorted(set(kinds.values()))))
        for index, request in requests.items():
            if index in self.offline or self._lost(kinds[index], index):
                continue
            with closing(PartyService.open(self._folders[index])) as party:
                reply = party.handle(request)
            if len(reply) <= largest:
                yield index, reply
