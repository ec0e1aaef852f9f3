"""Error of a deployment's processes, and the end of a process together with its parent."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class ProcessError(Exception):
    """A process that did not start or ended unexpectedly, or an unavailable port or server."""


def end_with_parent() -> None:
    """Make the kernel end this process when its parent ends, for whatever reason (Linux only)."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
