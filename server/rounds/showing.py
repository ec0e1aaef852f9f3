"""Showing what was released: the line of a round, once its commit is on the disk.

Of a simulation nobody sees anything but these lines. Where its rounds are short, the disk writes a
commit while the next round computes, and the line is shown as soon as both are done, before that
round is committed. A power cut in between leaves a round that nobody saw: it is made again. A kill
undoes no commit.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from parley.privacy.ledger.ledger import Ledger
from parley.server.records.round_line import RoundLine

__all__ = ["SHORT_S", "Showing"]

SHORT_S = 0.05
"""A round that takes longer is shown at once: its commit waits for the disk."""


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
        self._waiting: tuple[RoundLine, Future[None]] | None = None

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
        self.settle()
        if durable:
            self._observe(line)
        else:
            self._waiting = line, self._disk.submit(self._ledger.sync)

    def settle(self) -> None:
        """Shows the line that is on its way, if there is one.

        Raises:
            LedgerUnavailable: the disk didn't take its commit.
        """
        if self._waiting is not None:
            line, written = self._waiting
            written.result()
            self._waiting = None
            self._observe(line)
