"""Flower's SuperNode, asking for messages as often as a run needs.

Flower's own asks every 3 s, fixed in its main loop, so that a stage of a protocol takes 3 to 6 s of
which all but a few tenths is waiting. This starts the very same SuperNode with a `time.sleep` of
its own for that one loop: while a run is going on it asks five times a second, and between runs
once a second. `quicken` does the like for messages whose parts are still on their way, which Flower
asks for again after 1 s, 2 s, 4 s. Where another version of Flower waits in another way, neither
has an effect.

    python -m parley.deploy.supernode (arguments of flower-supernode)
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Pace", "main", "quicken"]

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


def quicken() -> None:
    """Asks sooner for parts of a message that are still on their way, in this process."""
    from flwr.supercore.inflatable import inflatable_utils

    for name in ("pull_objects", "pull_and_inflate_object_from_tree"):
        defaults = getattr(getattr(inflatable_utils, name, None), "__kwdefaults__", None) or {}
        if "initial_backoff" in defaults and "backoff_cap" in defaults:
            defaults.update(initial_backoff=_FIRST_RETRY_S, backoff_cap=_LONGEST_RETRY_S)


def main() -> None:
    """Entry point: `flower-supernode` with this pace."""
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode

    quicken()
    if hasattr(start_client_internal, "time"):
        start_client_internal.time = Pace()
    flower_supernode()


if __name__ == "__main__":
    main()
