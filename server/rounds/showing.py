"""Showing what was released: the line of a round, once its commit is on the disk.

Of a simulation nobody sees anything but these lines. Where its rounds are short, the disk writes a
commit while the next rounds compute, and their commits wait for the next write, which makes all of
them durable: a write every few hundredths of a second. A power cut leaves rounds that nobody saw:
they are made again. A kill undoes no commit.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Self

from parley.privacy.ledger.ledger import Ledger
from parley.server.records.round_line import RoundLine

__all__ = ["SHORT_S", "Showing"]

SHORT_S = 0.05
"""A round that takes longer is shown at once: its commit waits for the disk. So does the round
that comes after lines that have waited so long."""


_PAUSE_S = 0.03
"""From the begin of one write to the next: each takes the interpreter from a round or two."""


class _Waiting(NamedTuple):
    line: RoundLine
    since: float


class Showing:
    """Lines on their way; a context manager, which shows what it was given when it ends.

    Args:
        ledger: that the rounds are committed to.
        observe: is given each line.
        alone: whether this process has all parties, and shows nobody a model but in its line.
    """

    def __init__(
        self, ledger: Ledger, observe: Callable[[RoundLine], None], *, alone: bool
    ) -> None:
        self._ledger, self._observe, self._alone = ledger, observe, alone
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._waiting = deque[_Waiting]()
        self._write: Future[None] | None = None
        self._covered, self._begun = 0, 0.0  # by the last write: how many lines, since when

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.settle()
        finally:
            self._disk.shutdown()

    def waits(self, seconds: float) -> bool:
        """Whether the commit of a round that took so long has to wait for the disk."""
        return not self._alone or seconds > SHORT_S

    def committed(self, line: RoundLine, *, durable: bool) -> None:
        """Shows a line, at once or when its commit is durable."""
        if durable:
            self.settle()
            self._observe(line)
            return
        now = time.monotonic()
        self._waiting.append(_Waiting(line, now))
        if self._write is None and now - self._begun > _PAUSE_S:
            self._begin()

    def _begin(self) -> Future[None]:
        self._covered, self._begun = len(self._waiting), time.monotonic()
        self._write = self._disk.submit(self._ledger.sync)
        return self._write

    def settle(self, *, wait: bool = True) -> None:
        """Shows the lines that are on their way.

        Args:
            wait: for the disk; else only where a line has waited for long.

        Raises:
            LedgerUnavailable: the disk didn't take a commit.
        """
        while self._waiting:
            late = wait or time.monotonic() - self._waiting[0].since > SHORT_S
            if not (late or (self._write and self._write.done())):
                return
            (self._write or self._begin()).result()
            self._write = None
            for _ in range(self._covered):
                self._observe(self._waiting.popleft().line)
