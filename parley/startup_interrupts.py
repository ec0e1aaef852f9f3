"""Handle Ctrl-C while a command starts, with one line even in the middle of an import.

An interrupt that Python raises inside an import ends in a traceback, or a library treats it as its
own error. At that time no work has begun, so the process may end at once. `parley.__main__` calls
`end_quietly` first. A command calls `raise_interrupts` when its own code begins.
"""

from __future__ import annotations

import os
import signal
from types import FrameType


def end_quietly() -> None:
    """Make an interrupt end this process with one line and status 130.

    A process that ignores interrupts (a shell's background job) continues to ignore them.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_interrupts() -> None:
    """Make an interrupt raise `KeyboardInterrupt` again, if `end_quietly` was called before."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    # No flush and no clean-up: no output exists yet, and a library may be partly imported.
    os.write(2, b"parley: interrupted.\n")
    os._exit(130)
