"""Time rounds of two checkouts of Parley in short turns, on a machine with varying speed.

    git worktree add ../before COMMIT
    python -P benchmarks/in_turns.py ../before . [--parties 1000] [--seconds 25] [--slice-s 0.5]

Each checkout simulates the job of `fast_engine.py` (rows cached in a file) in its own process. One
of them is stopped while the other runs, for one slice each, in changing order. The result is rounds
per second and per CPU second of a process. Whole runs in sequence differ by a factor of two on a
shared machine; these ratios differ by a few hundredths.
"""

from __future__ import annotations

import argparse
import mmap
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

_COUNT = struct.Struct("qd")
_WARM = 20  # rounds


class Counter:
    """An observer that stores the number of rounds, and the CPU seconds so far, in a shared
    file.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self.kept, self.rounds = mmap.mmap(file.fileno(), _COUNT.size), 0

    def started(self, *facts: Any) -> None:
        """Note that the rounds begin."""

    def round_done(self, line: Any) -> None:
        """Count a round that is committed and logged."""
        self.rounds += 1
        used = resource.getrusage(resource.RUSAGE_SELF)
        _COUNT.pack_into(self.kept, 0, self.rounds, used.ru_utime + used.ru_stime)


def run(step: str, checkout: Path, folder: Path, shape: tuple[int, int, int]) -> None:
    """Run one step of a process: its data, its cached rows, or its rounds until it is killed."""
    sys.path.append(str(checkout / "benchmarks"))
    import fast_engine

    parties, records, features = shape
    if step == "data":
        fast_engine.make(parties, records, features, folder)
        return
    job = fast_engine.job_of(parties, features, 10**6, folder, True)
    if step == "prepare":
        fast_engine.prepare(job)
        return
    from parley.simulations.engine.fast_engine import simulate

    simulate(job, out=folder / "run", observer=Counter(folder / "count"))


class Side:
    """A checkout's process, which is stopped outside its turns."""

    def __init__(self, checkout: Path, shape: tuple[int, int, int], stack: ExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "count").write_bytes(bytes(_COUNT.size))
        with (folder / "count").open("rb") as file:
            self.kept = mmap.mmap(file.fileno(), _COUNT.size, prot=mmap.PROT_READ)
        command = [sys.executable, "-P", __file__, str(checkout), str(folder)]
        command += [f"--{name}={value}" for name, value in zip(SHAPE, shape, strict=True)]
        own = {**os.environ, "PYTHONPATH": str(checkout)}
        for step in ("data", "prepare"):
            subprocess.run([*command, "--step", step], env=own, cwd=folder, check=True)
        silent = subprocess.DEVNULL
        self.process = subprocess.Popen(
            [*command, "--step", "rounds"], env=own, cwd=folder, stdout=silent
        )
        stack.callback(self.end)
        self.rounds, self.seconds, self.cpu = 0, 0.0, 0.0
        while self.counted()[0] < _WARM:
            time.sleep(0.05)
            if self.process.poll() is not None:
                raise SystemExit(f"{checkout}: the simulation ended with {self.process.returncode}")
        self.process.send_signal(signal.SIGSTOP)

    def counted(self) -> tuple[int, float]:
        """Return rounds and CPU seconds so far."""
        rounds, cpu = _COUNT.unpack_from(self.kept)
        return rounds, cpu

    def turn(self, seconds: float) -> None:
        """Run for this many seconds."""
        rounds, cpu = self.counted()
        self.process.send_signal(signal.SIGCONT)
        began = time.perf_counter()
        time.sleep(seconds)
        self.process.send_signal(signal.SIGSTOP)
        self.seconds += time.perf_counter() - began
        now = self.counted()
        self.rounds, self.cpu = self.rounds + now[0] - rounds, self.cpu + now[1] - cpu

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


SHAPE = ("parties", "records", "features")


def main() -> None:
    """Print both checkouts' milliseconds per round, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    for name, usual in zip(SHAPE, (1000, 50, 120), strict=True):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--seconds", type=float, default=25, help="of each")
    parser.add_argument("--slice-s", type=float, default=0.5)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    given = parser.parse_args()
    shape = (given.parties, given.records, given.features)
    if given.step:
        run(given.step, given.before, given.after, shape)
        return
    with ExitStack() as stack:
        sides = [Side(each.resolve(), shape, stack) for each in (given.before, given.after)]
        for turn in range(max(2, round(given.seconds / given.slice_s))):
            for side in sides if turn % 2 else sides[::-1]:
                side.turn(given.slice_s)
    each = [(side.seconds / side.rounds, side.cpu / side.rounds) for side in sides]
    for name, side, (wall, cpu) in zip(("before", "after"), sides, each, strict=True):
        print(f"{name:6}  {1e3 * wall:8.2f} ms a round  {1e3 * cpu:8.2f} CPU  {side.rounds} rounds")
    wall, cpu = (now / then for then, now in zip(*each, strict=True))
    print(f"after over before: {wall:.3f}, CPU {cpu:.3f}")


if __name__ == "__main__":
    main()
