"""Start, watch and end child processes, so that none outlives the run or command that started it.

Each process leads its own group and writes its own log. It ends when the process that started it
ends, even if that one is killed. `Supervisor` is a context manager. On exit it ends every group,
first with SIGTERM, then with SIGKILL.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent
from typing import Self

from parley.deploy.process_errors import ProcessError
from parley.deploy.process_lifetime import LIBC, PR_SET_PDEATHSIG
from parley.safe_io.os_errors import report_os_errors

_TERMINATE_S = 5.0
_LINES_SHOWN = 6

# No Python code between fork and exec: it would run gRPC's fork handlers, which sometimes abort.
_END_WITH_PARENT_CODE = (
    f"import ctypes, os, sys; ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, {int(signal.SIGTERM)}); "
    "os.getppid() == int(sys.argv[1]) and os.execvp(sys.argv[2], sys.argv[2:])"
)


def build_environment() -> dict[str, str]:
    """Return this process's environment, for a child process that imports the same Parley."""
    # Never add the caller's working folder: its `client/` or `server/` would be imported instead.
    roots = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": os.pathsep.join(root for root in roots if root),
        "PYTHONUNBUFFERED": "1",
        # Several processes share the machine, so each uses one core by default.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def _build_command(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return a command that runs `arguments` and ends together with this process (Linux only)."""
    if shutil.which(arguments[0], path=environment.get("PATH")) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if LIBC is None:
        return list(arguments)
    return [sys.executable, "-I", "-S", "-c", _END_WITH_PARENT_CODE, str(os.getpid()), *arguments]


@dataclass(kw_only=True)
class Process:
    """A running process: its name in messages, how it was started, and its log."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    popen: subprocess.Popen[bytes]

    @property
    def running(self) -> bool:
        """Whether the process is still running."""
        return self.popen.poll() is None

    def read_tail(self) -> str:
        """Return the last lines of the log. Of a traceback, keep only the exception's message."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        told = [line for line in lines if line and not line.startswith((" ", "Traceback ("))]
        return "\n".join(told[-_LINES_SHOWN:])[-2000:]

    def check(self) -> None:
        """Raise ProcessError if the process has ended unexpectedly."""
        if not self.running:
            raise ProcessError(
                f"{self.name} ended with status {self.popen.returncode}. The end of its log "
                f"{self.log}:\n{indent(self.read_tail(), '  ')}"
            )


@dataclass(kw_only=True)
class Supervisor:
    """The processes of one run or command, as a context manager that ends all of them on exit."""

    processes: list[Process] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(
        self, name: str, arguments: Sequence[str], *, environment: Mapping[str, str], log: Path
    ) -> Process:
        """Start a process in its own group, with its output in `log`."""
        log.parent.mkdir(parents=True, exist_ok=True)
        task = f"Cannot start {name} ({arguments[0]})"
        with report_os_errors(ProcessError, task), log.open("ab") as output:
            popen = subprocess.Popen(  # noqa: S603 - our own commands, no shell
                _build_command(arguments, environment),
                env=dict(environment),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(
            Process(name=name, arguments=arguments, environment=environment, log=log, popen=popen)
        )
        return self.processes[-1]

    def restart(self, process: Process) -> Process:
        """Start an ended process again with the same arguments."""
        self.end([process])
        return self.start(
            process.name, process.arguments, environment=process.environment, log=process.log
        )

    def check(self) -> None:
        """Raise ProcessError if any process has ended unexpectedly."""
        for process in self.processes:
            process.check()

    def end(self, processes: Sequence[Process] | None = None) -> None:
        """End these process groups (None: all) with SIGTERM, then SIGKILL those that remain."""
        ending = list(self.processes if processes is None else processes)
        # A second Ctrl-C must not interrupt this and leave processes running.
        before = _ignore_signal(signal.SIGINT), _ignore_signal(signal.SIGTERM)
        try:
            for process in ending:
                _send_signal(process, signal.SIGTERM)
            until = time.monotonic() + _TERMINATE_S
            while any(_is_alive(process) for process in ending) and time.monotonic() < until:
                time.sleep(0.05)
            for process in ending:
                _send_signal(process, signal.SIGKILL)
                process.popen.wait()
        finally:
            for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
                if handler is not None:
                    signal.signal(number, handler)
        self.processes = [process for process in self.processes if process not in ending]


def _ignore_signal(number: int) -> Callable[..., object] | int | None:
    try:
        return signal.signal(number, signal.SIG_IGN)
    except ValueError:
        # Only the main thread can set signal handlers.
        return None


def _send_signal(process: Process, number: int) -> bool:
    """Send a signal to the process group and return whether the group exists."""
    try:
        os.killpg(process.popen.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_alive(process: Process) -> bool:
    """Return whether any process of the group is running. Reap an ended group leader."""
    process.popen.poll()
    return _send_signal(process, 0)


def find_free_ports(count: int) -> list[int]:
    """Return distinct ports on which no process listens now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
