"""Ctrl-C while a command starts: one line, whatever is being imported at that moment.

An interrupt that Python raises inside an import ends in a traceback, or a library takes it for its
own error. Nothing has begun yet, so the process may end at once. `parley.__main__` calls
`end_quietly` first; a command calls `raise_interrupts` when its own code begins.
"""

from __future__ import annotations

import os
import signal
from types import FrameType


def end_quietly() -> None:
    """Have an interrupt end this process with one line and status 130.

    A process that ignores interrupts (a shell's background job) goes on ignoring them.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_interrupts() -> None:
    """Have an interrupt raise `KeyboardInterrupt` again, if `end_quietly` was called before."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    # No flush and no clean-up: nothing was written, and a library may be half imported.
    os.write(2, b"parley: interrupted.\n")
    os._exit(130)
