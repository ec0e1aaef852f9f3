"""Report how many records of a source were read, to who watches in the same thread.

>>> with watch_reading(lambda name, rows: print(name, rows)):
...     report_rows("adult.csv", 3)
adult.csv 3
>>> report_rows("adult.csv", 3)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_watcher: ContextVar[Callable[[str, int], None] | None] = ContextVar("watcher", default=None)


@contextmanager
def watch_reading(take: Callable[[str, int], None]) -> Iterator[None]:
    """Pass a source's name and the number of records read so far to `take`, batch by batch."""
    token = _watcher.set(take)
    try:
        yield
    finally:
        _watcher.reset(token)


def report_rows(name: str, rows: int) -> None:
    """Report the number of records read so far from a source."""
    if take := _watcher.get():
        take(name, rows)
