"""`LastUses`: the times of the last writes to a party's files, by a clock that cannot be set.

A file's modification time is wall-clock time. If that clock is set forward by a year, the session
of a running job looks idle for a year. If it is set back, the newest contribution looks like the
oldest. `PartyFolder` therefore notes every write here in seconds of the machine's uptime, for all
processes.

After a restart of the machine, ages continue from the last note. Time while the machine was off is
not counted.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     at = [Uptime(boot="a", seconds=100.0)]
    ...     uses = LastUses(path=Path(folder) / "last-uses", uptime=lambda: at[0])
    ...     uses.note("session-1")
    ...     at[0] = Uptime(boot="a", seconds=160.0)
    ...     uses.note("session-2")
    ...     at[0] = Uptime(boot="b", seconds=5.0)
    ...     uses.note("session-3")
    ...     at[0] = Uptime(boot="b", seconds=8.0)
    ...     uses.compute_ages()
    {'session-1': 63.0, 'session-2': 3.0, 'session-3': 3.0}
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True, kw_only=True)
class Uptime:
    """A moment: the boot of the machine, and the seconds since then."""

    boot: str
    seconds: float


@cache
def _read_boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return "this"


def read_uptime() -> Uptime:
    """Return the present moment. All processes of one machine agree on it."""
    return Uptime(boot=_read_boot_id(), seconds=time.clock_gettime(_CLOCK))


@dataclass(frozen=True, kw_only=True)
class LastUses:
    """The notes of one folder. The folder's lock must be held during every call that writes.

    Attributes:
        path: file of the notes: the moment of the last note, then a line per file.
        uptime: the clock.
    """

    path: Path
    uptime: Callable[[], Uptime]

    def compute_ages(self) -> dict[str, float]:
        """Return, per noted file, the seconds since it was last written."""
        now, (last, noted) = self.uptime(), self._read()
        # After a reboot or a reset of the clock, count only the time up to the last note.
        same = last.boot == now.boot and last.seconds <= now.seconds
        until = now.seconds if same else last.seconds
        return {name: until - seconds for name, seconds in noted.items()}

    def note(self, *names: str) -> None:
        """Note that these files are written now. The others keep ageing."""
        self._write(self.compute_ages() | dict.fromkeys(names, 0.0))

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget every file except these. A file that was never noted counts as new."""
        ages, kept = self.compute_ages(), list(names)
        boot = self._read()[0].boot
        if ages.keys() != set(kept) or boot != self.uptime().boot:
            self._write({name: ages.get(name, 0.0) for name in kept})

    def _read(self) -> tuple[Uptime, dict[str, float]]:
        try:
            lines = self.path.read_text(encoding="ascii").splitlines()
            (boot, seconds), *files = (line.rsplit(" ", 1) for line in lines)
            last = Uptime(boot=boot, seconds=float(seconds))
            return last, {name: float(at) for name, at in files}
        except (OSError, ValueError):  # no file, or a damaged one: then every file counts as new
            return Uptime(boot="", seconds=0.0), {}

    def _write(self, ages: Mapping[str, float]) -> None:
        now = self.uptime()
        lines = [f"{now.boot} {now.seconds:+020.6f}"]
        # Numbers have a fixed width, so that the file's size does not depend on time.
        lines += [f"{name} {now.seconds - age:+020.6f}" for name, age in sorted(ages.items())]
        draft = self.path.with_name(self.path.name + ".part")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write("".join(f"{line}\n" for line in lines).encode("ascii"))
        # Not fsynced: if a crash loses the file, every file counts as new.
        os.replace(draft, self.path)
