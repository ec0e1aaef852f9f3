"""How often Flower's processes ask for what is coming: as often as a run needs.

Flower's SuperNode asks every 3 s, fixed in its main loop, and parts of a message that are still on
their way are asked for again after 1 s, 2 s, 4 s: a stage of a protocol takes 4 to 7 s, of which
all but a few tenths is waiting. `quicken` gives the one loop a `time.sleep` of its own (five times
a second while a run is going on, once a second between runs) and the other shorter defaults, in the
process that calls it. Where another version of Flower waits in another way, it has no effect but
the waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Pace", "quicken"]

_IDLE_S, _ACTIVE_S, _REPLY_S = 1.0, 0.2, 0.05
_ACTIVE_FOR_S = 60.0
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.05, 1.0


class Pace:
    """How long the main loop waits: a stand-in for the `time` module there.

    Flower's loop sleeps 3 s when there is no message and 0.5 s for a reply to be ready.

    >>> waits, now = [], [0.0]
    >>> pace = Pace(sleep=waits.append, clock=lambda: now[0])
    >>> pace.sleep(3)  # nobody has asked anything yet
    >>> pace.sleep(0.5)  # a message is being answered
    >>> pace.sleep(3)  # so the next will come soon
    >>> now[0] = 100.0
    >>> pace.sleep(3)
    >>> waits
    [1.0, 0.05, 0.2, 1.0]
    """

    def __init__(
        self,
        *,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep, self._clock = sleep, clock
        self._active = -_ACTIVE_FOR_S

    def sleep(self, seconds: float) -> None:
        """Waits for less than it was asked to."""
        if seconds < 1:
            self._active = self._clock()
            self._sleep(min(seconds, _REPLY_S))
        else:
            active = self._clock() - self._active < _ACTIVE_FOR_S
            self._sleep(min(seconds, _ACTIVE_S if active else _IDLE_S))


def quicken(*, supernode: bool = False) -> None:
    """Shortens Flower's waiting in this process; `supernode` where its main loop runs here."""
    from flwr.supercore.inflatable import inflatable_utils

    for name in ("pull_objects", "pull_and_inflate_object_from_tree"):
        defaults = getattr(getattr(inflatable_utils, name, None), "__kwdefaults__", None) or {}
        if "initial_backoff" in defaults and "backoff_cap" in defaults:
            defaults.update(initial_backoff=_FIRST_RETRY_S, backoff_cap=_LONGEST_RETRY_S)
    if supernode:
        from flwr.supernode import start_client_internal

        if hasattr(start_client_internal, "time"):
            # Only `time.sleep` is used there; a test says so.
            start_client_internal.time = Pace()
