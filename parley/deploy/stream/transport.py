"""The server's transport over its port: requests to who attends, replies as they come."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Mapping

from parley.deploy.stream.attendance import Asked
from parley.deploy.stream.port import Port
from parley.server.rounds.transport import LARGEST_REPLY

_LOOK_S = 0.2


class StreamTransport:
    """`parley.server.rounds.transport.Transport` over the streams of a port.

    Args:
        port: open.
        away_s: how long a party that lost its connection still counts as online, and is waited
            for; its requests are written again when it is back.
    """

    def __init__(self, port: Port, *, away_s: float = 5.0) -> None:
        self._port, self._away_s = port, away_s
        self._stopped = False

    def online(self) -> tuple[int, ...]:
        """The parties that can be asked now, in order."""
        return tuple(sorted(self._port.attendance.online(away_s=self._away_s)))

    def stop(self) -> None:
        """Has the exchange that is going on, or the next one, raise KeyboardInterrupt, once."""
        self._stopped = True

    def exchange(
        self,
        requests: Mapping[int, bytes],
        *,
        timeout_s: float,
        largest: int = LARGEST_REPLY,
    ) -> Iterator[tuple[int, bytes]]:
        """Sends each party its request and yields (party, reply) as they come, until the deadline.

        Raises:
            ValueError: a request to a party that is not in the roster.
            KeyboardInterrupt: `stop` was called.
        """
        count = len(self._port.deployment.parties)
        if beyond := sorted(set(requests) - set(range(count))):
            raise ValueError(f"Expected parties below {count}, got {beyond}.")
        # A queue for each exchange: a reply that comes later is in nobody's.
        replies = queue.SimpleQueue[tuple[int, bytes]]()
        until = time.monotonic() + timeout_s
        asked = {
            index: Asked(
                number=self._port.number(),
                request=requests[index],
                largest=largest,
                until=until,
                deliver=lambda party, reply: replies.put((party, reply)),
            )
            for index in self.online()
            if index in requests
        }
        attendance = self._port.attendance
        waiting = set(asked)
        if asked:
            self._port.post(attendance.ask, asked)
        try:
            while waiting:
                if self._stopped:
                    self._stopped = False
                    raise KeyboardInterrupt
                left = until - time.monotonic()
                try:
                    index, reply = replies.get(timeout=max(0.0, min(left, _LOOK_S)))
                except queue.Empty:
                    # Who does not come back in time is silent.
                    waiting &= attendance.online(away_s=self._away_s)
                    if left <= 0:
                        return
                    continue
                if index in waiting:
                    waiting.discard(index)
                    yield index, reply
        finally:
            numbers = {index: one.number for index, one in asked.items()}
            self._port.post(attendance.withdraw, numbers)
