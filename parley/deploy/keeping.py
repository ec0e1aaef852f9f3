"""Keeping processes alive: one that ends is started again, ever later, and it is said.

What ends again and again (a full disk, a key that the server refuses) is tried after 1 s, 2 s, 4 s,
… at most a minute; what ran for five minutes is tried after 1 s again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from parley.deploy.processes import Process, ProcessError, Supervisor

_FIRST_S, _LONGEST_S, _STEADY_S = 1.0, 60.0, 300.0


class Keeping:
    """Starts a supervisor's processes again where they end by themselves.

    Args:
        supervisor: whose.
        say: called with what ended, and when it is started again.
        explain: why, where more is known than its log says; empty for nothing.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        say: Callable[[str], None],
        explain: Callable[[Process], str] = lambda _: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._supervisor, self._say, self._explain = supervisor, say, explain
        self._clock = clock
        self._begun: dict[str, float] = {}
        self._wait: dict[str, float] = {}
        self._due: dict[str, float] = {}

    def look(self) -> bool:
        """Starts again what ended and is due; whether all of them run."""
        now, all_run = self._clock(), True
        for process in list(self._supervisor.processes):
            name = process.name
            if process.running:
                self._begun.setdefault(name, now)
                continue
            all_run = False
            if name not in self._due:
                self._ended(process, now)
            elif now >= self._due[name]:
                del self._due[name]
                self._begun[name] = now
                self._start(process)
        return all_run

    def _ended(self, process: Process, now: float) -> None:
        name = process.name
        steady = now - self._begun.get(name, now) >= _STEADY_S
        wait = _FIRST_S if steady else self._wait.get(name, _FIRST_S)
        self._wait[name] = min(2 * wait, _LONGEST_S)
        self._due[name] = now + wait
        reason = self._explain(process)
        self._say(
            f"{name} ended with status {process.popen.returncode}; it is started again in "
            f"{wait:.0f} s. {reason or f'Its log: {process.log}'}"
        )

    def _start(self, process: Process) -> None:
        try:
            self._supervisor.restart(process)
        except ProcessError as error:
            # Still in the list, and still ended: its turn comes again.
            self._supervisor.processes.append(process)
            self._say(str(error))
