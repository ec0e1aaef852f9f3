"""Print lines about long work where no bar can be drawn: a log, a pipe, a service manager.

One line every 30 s gives the stage of a run, its progress, and the parties that it waits for. A
line about a missing party comes after 5 s.

    >>> moment = [0.0]
    >>> beats = Heartbeat(print, clock=lambda: moment[0])
    >>> beats.note("reading")
    >>> moment[0] = 29.0
    >>> beats.emit_if_due()
    >>> moment[0] = 31.0
    >>> beats.emit_if_due()
    reading (31 s)
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_EVERY_S, _WAITING_S, _LOOK_S = 30.0, 5.0, 1.0


class Heartbeat:
    """Reports the current work of a run from time to time.

    Args:
        say: Takes a line.
        clock: Seconds that only go forward.
        read_time: Returns the time of day, with which lines then begin; None: lines end with how
            long the work took so far.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        read_time: Callable[[], str] | None = None,
    ) -> None:
        self._say, self._clock, self._read_time = say, clock, read_time
        self._lock = threading.Lock()
        self._began = self._said = clock()
        self._stage, self._figures, self._waiting, self._told = "starting", "", "", ""
        self._over = threading.Event()

    def note(self, stage: str, figures: str = "", *, waiting: str = "") -> None:
        """Take the current stage of the run, its progress, and the parties that it waits for."""
        with self._lock:
            if waiting and waiting != self._waiting:
                self._told, self._since = "", self._clock()
            self._stage, self._figures, self._waiting = stage, figures, waiting

    def emit_if_due(self) -> None:
        """Print a line if one is due."""
        with self._lock:
            now = self._clock()
            first = self._waiting and not self._told and now - self._since >= _WAITING_S
            if not first and now - self._said < _EVERY_S:
                return
            line = self._format_line(now)
        self._write(line)

    def emit(self) -> None:
        """Say a line now."""
        with self._lock:
            line = self._format_line(self._clock())
        self._write(line)

    def _format_line(self, now: float) -> str:
        self._said, self._told = now, self._waiting
        parts = [part for part in (self._stage, self._figures, self._waiting) if part]
        if self._read_time is None:
            return f"{', '.join(parts)} ({format_short_duration(now - self._began)})"
        return f"{self._read_time()} {'  '.join(parts)}"

    def _write(self, line: str) -> None:
        with suppress(OSError, ValueError):  # a pipe that nobody reads, a stream that was closed
            self._say(line)

    def start(self) -> None:
        """Report from another thread until `stop`."""
        threading.Thread(target=self._run_loop, daemon=True).start()

    def stop(self) -> None:
        """End the thread."""
        self._over.set()

    def _run_loop(self) -> None:
        while not self._over.wait(_LOOK_S):
            self.emit_if_due()


@contextmanager
def say_working(command: str) -> Iterator[None]:
    """Print on stderr every 30 s that a command is working, until the block ends."""
    if sys.stderr is None:  # a process without one: its lines would go to stdout
        yield
        return
    beats = Heartbeat(lambda line: print(line, file=sys.stderr, flush=True))
    beats.note(f"parley {command} is working")
    beats.start()
    try:
        yield
    finally:
        beats.stop()


def format_short_duration(seconds: float) -> str:
    """Return a time span in at most two units.

    >>> format_short_duration(31), format_short_duration(95), format_short_duration(3725)
    ('31 s', '1 min 35 s', '1 h 2 min')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, left = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {left} s"
    return f"{minutes // 60} h {minutes % 60} min"
