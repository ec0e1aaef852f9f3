"""Error of a deployment's processes, and waiting that ends with it."""

from __future__ import annotations

import time
from collections.abc import Callable


class ProcessError(Exception):
    """A process that did not start or ended unexpectedly, or an unavailable port or server."""


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
