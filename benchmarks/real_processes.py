"""All figures of real processes, each beside what was asked for (docs/benchmarks-network.md).

    python -P benchmarks/real_processes.py              # about five minutes on an idle machine
    python -P benchmarks/real_processes.py rounds start # some of them

It starts `processes.py` and `delayed.py`, and `parley run` for the default job. On a machine with
other work only ratios mean something. Memory is VmHWM: what a process shares with the one that
forked it counts in each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

ASKED = {
    ("robust", 0): {3: 0.10, 10: 0.30, 50: 2.0},
    ("robust", 100_000): {3: 0.25, 10: 1.0},
    ("optimistic", 0): {3: 0.05, 10: 0.15, 50: 1.0},
    ("optimistic", 100_000): {3: 0.125, 10: 0.5},
}
NETWORK = (
    "algorithm.kind=fedavg",
    "data.source=digits",
    "model.kind=pca-mlp",
    "model.pca=private",
    "model.components=60",
    "model.hidden=[1000]",
    "privacy.epsilon=8",
)


def told(script: str, *words: str) -> str:
    """What a script of this folder prints."""
    command = [sys.executable, "-P", str(HERE / script), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def measured(*words: str) -> list[dict[str, Any]]:
    """The lines of `processes.py`."""
    return [json.loads(line) for line in told("processes.py", *words).splitlines()]


def row(what: str, got: str, asked: str) -> None:
    """One line."""
    print(f"{what:58} {got:>22}   asked: {asked}", flush=True)


def rounds() -> None:
    """Seconds a confirmed round, and memory where no network is trained."""
    for (protocol, dimension), asked in ASKED.items():
        for parties, limit in asked.items():
            words = ["--parties", str(parties), "--protocol", protocol, "--rounds", "12"]
            (one,) = measured(*words, *(["--dimension", str(dimension)] if dimension else []))
            name = f"{protocol} round, {parties} parties, d = {one['dimension']}"
            row(name, f"{one['round_s']} s", f"≤ {limit:g} s")
            if protocol == "robust" and not dimension:
                row(f"  memory, {parties} parties: party", f"{one['peak_mib']['party']} MiB", "130")
                row("  server", f"{one['peak_mib']['server']} MiB", "150 at 50 parties")


def network() -> None:
    """Memory of a party that trains a network."""
    (one,) = measured("--parties", "3", "--rounds", "5", "--set", *NETWORK)
    row("memory of a party with torch, 60-1000-10", f"{one['peak_mib']['party']} MiB", "≤ 350")


def start() -> None:
    """The default job by three processes, from the command to the report."""
    parley = Path(sys.executable).with_name("parley")
    seconds = []
    for _ in range(3):
        with tempfile.TemporaryDirectory(prefix="parley-start-") as folder:
            began = time.perf_counter()
            words = ["run", "--engine", "processes", "--parties", "3", "--out", f"{folder}/run"]
            subprocess.run([str(parley), *words], check=True, capture_output=True)
            seconds.append(round(time.perf_counter() - began, 1))
    row("default job, 3 processes, command to report", f"{seconds} s", "≤ 8 s")


def delayed() -> None:
    """Rounds behind a delay, steps of distributed DP-SGD, kills."""
    for what, asked in (("round", "≤ .6 s"), ("steps", "≤ 5 min"), ("kills", "next round, ≤ 5 s")):
        print(f"{told('delayed.py', what).strip()}   asked: {asked}", flush=True)


PARTS: dict[str, Callable[[], None]] = {
    "rounds": rounds,
    "network": network,
    "start": start,
    "delayed": delayed,
}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; default: all")
    for part in parser.parse_args(words).parts or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
