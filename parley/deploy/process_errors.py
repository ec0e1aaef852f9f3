"""Error of a deployment's processes, and the end of a process together with its parent."""

from __future__ import annotations

import ctypes
import signal
import sys
import time
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class ProcessError(Exception):
    """A process that did not start or ended unexpectedly, or an unavailable port or server."""


def end_with_parent() -> None:
    """Make the kernel end this process when its parent ends, for whatever reason (Linux only)."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def wait_until(
    ready: Callable[[], bool],
    *,
    what: str,
    timeout_s: float,
    check: Callable[[], None] = lambda: None,
    poll_s: float = 0.05,
) -> None:
    """Wait until `ready()` is true. Call `check` in between; it may raise.

    Raises:
        ProcessError: `timeout_s` passed first.
    """
    deadline = time.monotonic() + timeout_s
    while not ready():
        check()
        if time.monotonic() > deadline:
            raise ProcessError(f"Waited {timeout_s:.0f} s for {what} without success.")
        time.sleep(poll_s)
