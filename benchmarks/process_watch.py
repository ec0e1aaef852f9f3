"""Measure memory (VmHWM) and CPU time of a process tree by role, read from /proc."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

_TICK = os.sysconf("SC_CLK_TCK")
_ROLES = {
    "parley.deploy.stream.single_run_server": "server",
    "parley.deploy.stream.party_client": "party",
    "parley.deploy.flower_simulation": "server",
    "ray": "Ray",
}


class Watch(threading.Thread):
    """Memory and CPU time of every process below this one, by role."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        self.cpu: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        self.roles: dict[int, str] = {}
        self.over = threading.Event()

    def run(self) -> None:
        """Read /proc repeatedly until `over` is set."""
        while not self.over.wait(0.2):
            self.look()

    def look(self) -> None:
        """Read /proc once."""
        found: dict[int, tuple[int, str, list[str]]] = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                fields = (entry / "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            found[int(entry.name)] = int(fields[1]), command, fields
        for pid, (parent, command, fields) in found.items():
            # An ended process has no command line any more, but still has its times.
            role = self.roles.get(pid) or self._role(pid, parent, command, found)
            if command and role:
                self.roles[pid] = role
            if not role:
                continue
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            peak = status.partition("VmHWM:")[2].split()
            if peak:
                self.peak[role][pid] = max(self.peak[role][pid], int(peak[0]) / 1024)
            self.cpu[role][pid] = (int(fields[11]) + int(fields[12])) / _TICK

    @staticmethod
    def _role(pid: int, parent: int, command: str, found: dict[int, Any]) -> str:
        above = parent
        while above in found and above != os.getpid():
            above = found[above][0]
        if above != os.getpid() or pid == os.getpid():
            return ""
        return next((role for word, role in _ROLES.items() if word in command), "other")

    def seconds(self) -> dict[str, float]:
        """Return the CPU seconds so far, by role."""
        self.look()
        return {role: sum(each.values()) for role, each in self.cpu.items()}

    def memory(self) -> dict[str, float]:
        """Return the largest peak of a process in MiB, by role."""
        return {role: round(max(each.values())) for role, each in sorted(self.peak.items())}


class Marks:
    """Times of events; also an observer of the run."""

    def __init__(self, watch: Watch) -> None:
        self.began, self.at = time.perf_counter(), dict[str, float]()
        self.watch, self.cpu = watch, dict[str, dict[str, float]]()

    def mark(self, name: str) -> None:
        """Record the time of an event."""
        self.at.setdefault(name, time.perf_counter() - self.began)

    def started(self, *facts: Any) -> None:
        """Record the start of the rounds."""
        self.mark("rounds begin")
        self.cpu["begin"] = self.watch.seconds()

    def round_done(self, line: Any) -> None:
        """Record a committed round: a `RoundLine`, or its number."""
        self.at[f"round {getattr(line, 'round', line)}"] = time.perf_counter() - self.began
        self.cpu["end"] = self.watch.seconds()

    def report(self, rounds: int) -> dict[str, Any]:
        """Return all recorded values; CPU seconds are per round."""
        first, last = self.cpu["begin"], self.cpu["end"]
        spent = {role: (last[role] - first.get(role, 0.0)) / rounds for role in sorted(last)}
        return {
            "at_s": _rounded(self.at),
            "cpu_s_a_round": _rounded(spent),
            "peak_mib": self.watch.memory(),
            "load": round(os.getloadavg()[0], 1),
        }


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in values.items()}
