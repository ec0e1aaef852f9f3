"""Showing what was released: the line of a round, once its commit is on the disk.

Of a simulation nobody sees anything but these lines. Where its rounds are short, the disk writes a
commit while the next round computes, and the line is shown as soon as both are done. Where the
disk takes longer than a round, the next rounds are committed behind it, and one write makes all of
them durable. A power cut leaves rounds that nobody saw: they are made again. A kill undoes no
commit.
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


class _Waiting(NamedTuple):
    line: RoundLine
    written: Future[None]
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
        last = self._waiting[-1].written if self._waiting else None
        # A write that has not begun will have this commit in it.
        begun = last is None or last.running() or last.done()
        written = self._disk.submit(self._ledger.sync) if begun or last is None else last
        self._waiting.append(_Waiting(line, written, time.monotonic()))

    def settle(self, *, wait: bool = True) -> None:
        """Shows the lines that are on their way.

        Args:
            wait: for the disk; else only where a line has waited for long.

        Raises:
            LedgerUnavailable: the disk didn't take a commit.
        """
        while self._waiting:
            line, written, since = self._waiting[0]
            if not (wait or written.done() or time.monotonic() - since > SHORT_S):
                return
            written.result()
            self._waiting.popleft()
            self._observe(line)
