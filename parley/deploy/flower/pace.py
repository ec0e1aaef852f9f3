"""How often Flower's processes ask for what is coming: as often as a run needs.

Flower's SuperNode asks every 3 s, fixed in its main loop, and parts of a message that are still on
their way are asked for again after 1 s, 2 s, 4 s: a stage of a protocol takes 4 to 7 s, of which
all but a few tenths is waiting. `quicken` gives the one loop its own `time.sleep` (five times
a second while a run is going on, once a second between runs) and the other shorter defaults, in the
process that calls it. Where another version of Flower waits in another way, it has no effect but
the waiting.

That the main loop waits for a reply also says that there is a message: `Bell` then wakes the
executor, which would otherwise have to ask many times a second whether there is one.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from contextlib import suppress

from flwr.supercore.inflatable import inflatable_utils

_IDLE_S, _ACTIVE_S, _REPLY_S = 1.0, 0.2, 0.05
_ACTIVE_A_PARTY_S = 0.05
_ACTIVE_FOR_S = 60.0
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.05, 1.0


class Bell:
    """Wakes a process from another that it was forked from, or that was forked from it.

    >>> bell = Bell()
    >>> bell.wait(0.01)
    False
    >>> bell.ring(), bell.ring()
    (None, None)
    >>> bell.wait(10), bell.wait(0.01)
    (True, False)
    """

    def __init__(self) -> None:
        self._heard, self._rung = os.pipe()
        os.set_blocking(self._heard, False)
        os.set_blocking(self._rung, False)

    def ring(self) -> None:
        """Wakes whoever waits, or else the next that does."""
        with suppress(BlockingIOError):  # full: it was rung often enough
            os.write(self._rung, b".")

    def wait(self, timeout_s: float) -> bool:
        """Waits that long at most; whether it was rung, in the meantime or before."""
        if not select.select([self._heard], [], [], timeout_s)[0]:
            return False
        os.read(self._heard, 65536)
        return True


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
        answering: Callable[[], object] = lambda: None,
        parties: int = 1,
    ) -> None:
        """A pace for one of so many parties; `answering` is called while it waits for a reply."""
        self._sleep, self._clock, self._answering = sleep, clock, answering
        # A SuperLink answers some 90 requests a second: all parties' asking takes a fifth of them.
        self._active_s = max(_ACTIVE_S, parties * _ACTIVE_A_PARTY_S)
        self._idle_s = max(_IDLE_S, self._active_s)
        self._active = -_ACTIVE_FOR_S

    def sleep(self, seconds: float) -> None:
        """Waits for less than it was asked to."""
        if seconds < 1:
            self._active = self._clock()
            self._answering()
            self._sleep(min(seconds, _REPLY_S))
        else:
            active = self._clock() - self._active < _ACTIVE_FOR_S
            self._sleep(min(seconds, self._active_s if active else self._idle_s))


def quicken(*, supernode: bool = False, bell: Bell | None = None, parties: int = 1) -> None:
    """Shortens Flower's waiting in this process; `supernode` where its main loop runs here.

    `parties` is how many ask the same SuperLink.

    `bell` is rung whenever that loop waits for a reply.
    """

    for name in ("pull_objects", "pull_and_inflate_object_from_tree"):
        defaults = getattr(getattr(inflatable_utils, name, None), "__kwdefaults__", None) or {}
        if "initial_backoff" in defaults and "backoff_cap" in defaults:
            defaults.update(initial_backoff=_FIRST_RETRY_S, backoff_cap=_LONGEST_RETRY_S)
    if supernode:
        from flwr.supernode import start_client_internal  # noqa: PLC0415 - start-up: the server's executor has no SuperNode

        if hasattr(start_client_internal, "time"):
            # Only `time.sleep` is used there; a test says so.
            answering = (lambda: None) if bell is None else bell.ring
            start_client_internal.time = Pace(answering=answering, parties=parties)
