"""Processes that start with their imports done: forked from one that did them once for all.

    python -m parley.deploy.nursery SOCKET MODULE…

imports the modules, then forks a process for each request that comes over the socket, and says what
became of it. A server and its parties on one machine import the same second of modules each; here
that is done once, while the launcher reads the data. Nothing of a party is known to the nursery: it
has no data, makes no key and draws no randomness before it forks.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parley.client.contract.os_errors import describe_cause
from parley.client.contract.printable import guard_streams
from parley.client.contract.protocol import strict_json
from parley.deploy.processes import (
    Process,
    ProcessError,
    Supervisor,
    end_with_parent,
    name_process,
    own_environment,
)

_LARGEST = 1 << 16
_ANSWER_S = 120.0


class Nursery:
    """The launcher's end of a process that imports `modules`, and ends with `supervisor`."""

    def __init__(self, supervisor: Supervisor, modules: Sequence[str], *, log: Path) -> None:
        self._supervisor = supervisor
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_ANSWER_S)
        command = [sys.executable, "-P", "-m", __name__, str(theirs.fileno()), *modules]
        with theirs:
            self._process = supervisor.start(
                "the processes' nursery",
                command,
                environment=own_environment(),
                log=log,
                keeping=(theirs.fileno(),),
            )

    def start(self, name: str, module: tuple[str, ...], *, log: Path) -> Process:
        """A process that runs a module's `main` with arguments; ProcessError without a nursery."""
        log.parent.mkdir(parents=True, exist_ok=True)
        pid = self._ask({"module": list(module), "log": str(log)})
        process = Process(
            name=name,
            arguments=(sys.executable, "-P", "-m", *module),
            environment=own_environment(),
            log=log,
            popen=_Forked(pid, self),
        )
        self._supervisor.processes.append(process)
        return process

    def end(self) -> None:
        """Ends what it forked, before itself: a process is gone when its parent asked for it."""
        forked = [one for one in self._supervisor.processes if isinstance(one.popen, _Forked)]
        self._supervisor.end(forked)

    def status(self, pid: int) -> int:
        """How a process that ended, ended, as subprocess counts; −9 where nobody knows."""
        try:
            return self._ask({"ended": pid})
        except ProcessError:
            return -signal.SIGKILL

    def _ask(self, request: dict[str, Any]) -> int:
        try:
            self._socket.send(json.dumps(request, allow_nan=False).encode())
            told = self._socket.recv(_LARGEST)
            return int(strict_json(told)["told"])
        except (OSError, ValueError, KeyError) as error:
            self._process.check()
            raise ProcessError(
                f"The processes' nursery does not answer: {describe_cause(error)}."
            ) from error


class _Forked(subprocess.Popen[bytes]):
    """A process that the nursery forked, with what a `Process` asks of its `popen`."""

    def __init__(self, pid: int, nursery: Nursery) -> None:
        self.pid, self.returncode = pid, None
        self._nursery, self._handle = nursery, os.pidfd_open(pid)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._handle)

    def poll(self) -> int | None:
        """Its status once it has ended."""
        if self.returncode is None and select.select([self._handle], [], [], 0)[0]:
            self.returncode = self._nursery.status(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its status, when it has ended."""
        select.select([self._handle], [], [], timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired("a process", timeout or 0.0)
        return status


def main() -> None:
    """Entry point: imports, then forks; in the forked process, the module that was asked for."""
    end_with_parent()
    guard_streams()
    asked, modules = socket.socket(fileno=int(sys.argv[1])), sys.argv[2:]
    for name in modules:
        importlib.import_module(name)
    while True:
        told = asked.recv(_LARGEST)
        if not told:
            return
        request = strict_json(told)
        if "ended" in request:
            _, status = os.waitpid(int(request["ended"]), 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if not answer:
                break
        asked.send(json.dumps({"told": answer}, allow_nan=False).encode())
    asked.close()
    _become(request)


def _become(request: dict[str, Any]) -> None:
    """In the forked process: a group, a log and randomness for itself, then the module's `main`."""
    os.setsid()
    end_with_parent()
    random.seed(time.time_ns() ^ os.getpid())  # of pauses between dials, no secret
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    sys.argv = list(request["module"])
    name_process(sys.argv[0].rpartition(".")[2])
    importlib.import_module(sys.argv[0]).main()


if __name__ == "__main__":
    main()
