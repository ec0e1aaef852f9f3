"""What a tree of processes uses, read from /proc: memory (VmHWM) and CPU time, by role."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TICK = os.sysconf("SC_CLK_TCK")
_ROLES = {
    "parley.deploy.stream.run_process": "server",
    "parley.deploy.stream.party": "party",
    "flower-superlink": "SuperLink",
    "parley.deploy.flower.superlink_process": "SuperLink",
    "parley.deploy.flower.executor": "server",
    "flwr-serverapp": "server",
    "parley.deploy.flower.party_process": "SuperNode",
    "flower-supernode": "SuperNode",
    "flwr-clientapp": "task",
    "flower-superexec": "SuperExec",
    "ray": "Ray",
}
_FORKED = {"run_process": "server", "party": "party"}
_BELOW = {"SuperNode": "executor", "executor": "task"}
"""What a process that was forked without a command line of its own is."""


class Watch(threading.Thread):
    """Memory and CPU time of every process below this one, by role."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        self.cpu: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        self.roles: dict[int, str] = {}
        self.over = threading.Event()

    def run(self) -> None:
        """Looks until it is told that it is over."""
        while not self.over.wait(0.2):
            self.look()

    def look(self) -> None:
        """Reads /proc once."""
        found: dict[int, tuple[int, str, list[str]]] = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                fields = (entry / "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            found[int(entry.name)] = int(fields[1]), command, fields
        for pid, (parent, command, fields) in found.items():
            # One that has ended has no command line any more, and its times still.
            role = self.roles.get(pid) or self._role(pid, parent, command, found)
            if command and role and role != "nursery":  # which of its forks, it says later
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
            if role == "executor":  # its tasks are over too soon to be seen
                self.cpu["task"][-pid] = (int(fields[13]) + int(fields[14])) / _TICK

    @staticmethod
    def _role(pid: int, parent: int, command: str, found: dict[int, Any]) -> str:
        above, line = parent, []
        while above in found and above != os.getpid():
            line.append(found[above])
            above = found[above][0]
        if above != os.getpid() or pid == os.getpid():
            return ""
        role = next((role for word, role in _ROLES.items() if word in command), "other")
        if "parley.deploy.nursery" in command:  # its forks share its command line, not its name
            try:
                role = _FORKED.get(Path(f"/proc/{pid}/comm").read_text().strip(), "nursery")
            except OSError:
                return ""
        for _ in range(sum(command == one[1] for one in line)):
            role = _BELOW.get(role, role)
        return role

    def seconds(self) -> dict[str, float]:
        """CPU seconds so far, by role."""
        self.look()
        return {role: sum(each.values()) for role, each in self.cpu.items()}

    def memory(self) -> dict[str, float]:
        """The largest peak of a process, MiB, by role."""
        return {role: round(max(each.values())) for role, each in sorted(self.peak.items())}


class Marks:
    """When what began; an observer of the run too."""

    def __init__(self, watch: Watch) -> None:
        self.began, self.at = time.perf_counter(), dict[str, float]()
        self.watch, self.cpu = watch, dict[str, dict[str, float]]()
        self.window = [0.0, 0.0]

    def mark(self, name: str) -> None:
        """Now."""
        self.at.setdefault(name, time.perf_counter() - self.began)

    def started(self, *facts: Any) -> None:
        """The rounds begin."""
        self.mark("rounds begin")
        self.window[0], self.cpu["begin"] = time.time(), self.watch.seconds()

    def round_done(self, line: Any) -> None:
        """A round is committed: a `RoundLine`, or its number."""
        self.at[f"round {getattr(line, 'round', line)}"] = time.perf_counter() - self.began
        self.window[1], self.cpu["end"] = time.time(), self.watch.seconds()

    def after(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The function, with a mark when it is done."""

        def marked(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            self.mark(name)
            return result

        return marked

    def report(self, rounds: int) -> dict[str, Any]:
        """What was marked; CPU seconds are a round's."""
        first, last = self.cpu["begin"], self.cpu["end"]
        spent = {role: (last[role] - first.get(role, 0.0)) / rounds for role in sorted(last)}
        return {
            "at_s": _rounded(self.at),
            "cpu_s_a_round": _rounded(spent),
            "peak_mib": self.watch.memory(),
            "load": round(os.getloadavg()[0], 1),
        }

    def requests(self, folder: Path, rounds: int) -> dict[str, list[float]]:
        """Role and request → number a round, and median milliseconds of one (`request_trace`)."""
        found: dict[str, list[float]] = defaultdict(list)
        for file in folder.iterdir():
            role = self.watch.roles.get(int(file.name), "task")
            for line in file.read_text().splitlines():
                began, kind, seconds = line.split()
                if self.window[0] <= float(began) <= self.window[1]:
                    found[f"{role} {kind}"].append(float(seconds))
        often = sorted(found.items(), key=lambda item: -len(item[1]))
        return {
            what: [round(len(s) / rounds, 1), round(1000 * statistics.median(s), 1)]
            for what, s in often
        }


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in values.items()}
