"""Rounds over lines with an added delay, and what a kill costs (docs/benchmarks-network.md).

    python -P benchmarks/delayed.py round [--delay-ms 100] [--rounds 20]
    python -P benchmarks/delayed.py steps [--steps 200]
    python -P benchmarks/delayed.py kills

`round`: a robust, confirmed round of three real parties, each behind a proxy that holds every byte
back for half of the delay in either direction. `steps`: distributed DP-SGD of a 60-1000-10 network
among three parties, seconds a step. `kills`: a party is killed in a run and started again, then the
server: after how many rounds the one is back in the sum, and after how many seconds from its
restart the other makes a round.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from parley.deploy.making import make_deployment
from parley.deploy.processes import ProcessError, free_ports, own_environment
from parley.deploy.stream.operator import Operator, operator_home
from parley.server.jobs.file import load_job, render_job
from parley.simulations.engine.local_parties import prepare_parties

NAMES = ("north", "south", "east", "west")


class Delayed:
    """Passes bytes on after `seconds`, in their order, in either direction."""

    def __init__(self, to: tuple[str, int], seconds: float) -> None:
        self._to, self._seconds = to, seconds
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listening.accept()
            far = socket.create_connection(self._to)
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        held: list[tuple[float, bytes]] = []
        more = threading.Condition()

        def deliver() -> None:
            while True:
                with more:
                    more.wait_for(lambda: held)
                    due, data = held.pop(0)
                time.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    target.close()
                    return
                try:
                    target.sendall(data)
                except OSError:
                    return

        threading.Thread(target=deliver, daemon=True).start()
        data = b"-"
        while data:
            try:
                data = source.recv(1 << 16)
            except OSError:
                data = b""
            with more:
                held.append((time.monotonic() + self._seconds, data))
                more.notify()


class Consortium:
    """A server and its parties as processes; each party behind a line of its own."""

    def __init__(self, root: Path, job: object, *, parties: int, delay_s: float = 0.0) -> None:
        (self.port,) = free_ports(1)
        self.home, self.job = root / "consortium", job
        self.names = NAMES[:parties]
        make_deployment(self.home, hosts=["127.0.0.1"], parties=self.names, port=self.port)
        prepare_parties(job, root / "prepared")
        for index, name in enumerate(self.names):
            for file in ("records.npz", "party.toml"):
                shutil.copy(root / "prepared" / f"party-{index}" / file, self.folder(name))
        self.lines = {
            name: Delayed(("127.0.0.1", self.port), delay_s) for name in self.names if delay_s
        }
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.start("server")
        until = time.monotonic() + 120
        while "Listening" not in (self.home / "server.out").read_text():
            if time.monotonic() > until:
                raise SystemExit("The server did not listen in 120 s.")
            time.sleep(0.05)
        for name in self.names:
            self.start(name)

    def folder(self, name: str) -> Path:
        """Where the server or a party is."""
        return self.home / "server" if name == "server" else self.home / "parties" / name

    def start(self, name: str) -> None:
        """Starts its process."""
        kind = "server" if name == "server" else "party"
        line = ["--server", self.lines[name].address] if name in self.lines else []
        command = [sys.executable, "-P", "-m", "parley", kind, str(self.folder(name)), *line]
        with (self.home / f"{name}.out").open("a") as log:
            self.running[name] = subprocess.Popen(
                command, env=own_environment(), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def restart(self, name: str) -> None:
        """Kills it, and starts it again."""
        self.running[name].kill()
        self.running[name].wait()
        self.start(name)

    def submit(self) -> Path:
        """The folder of the job's run, once everybody is online."""
        until = time.monotonic() + 180
        while time.monotonic() < until:
            try:
                with Operator(operator_home(self.home)) as operator:
                    if all(party["online"] for party in operator.ask("status")["parties"]):
                        name = operator.ask("submit", job=render_job(self.job))["run"]
                        return self.home / "server" / "runs" / name
            except ProcessError:  # it is starting
                pass
            time.sleep(0.2)
        raise SystemExit("The parties did not come online in 180 s.")

    def end(self) -> None:
        """Ends every process."""
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            process.wait()


def lines_of(run: Path) -> list[dict]:
    path = run / "rounds.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(run: Path, rounds: int, limit_s: float = 280.0) -> list[dict]:
    until = time.monotonic() + limit_s
    while len(lines := lines_of(run)) < rounds:
        if time.monotonic() > until or (run / "error.json").exists():
            raise SystemExit(f"{len(lines)} rounds of {rounds} after {limit_s:.0f} s.")
        time.sleep(0.005)
    return lines


def robust(parties: int, rounds: int, *more: str) -> object:
    overrides = [f"parties.count={parties}", f"algorithm.rounds={rounds}"]
    return load_job(overrides=[*overrides, "secure-aggregation.backend=masked", *more])


def delayed_round(given: argparse.Namespace, root: Path) -> None:
    for delay_ms in (0.0, given.delay_ms):
        job = robust(3, given.rounds)
        here = Consortium(root / f"{delay_ms:g}", job, parties=3, delay_s=delay_ms / 2000)
        try:
            lines = wait_for(here.submit(), given.rounds)[1:]
        finally:
            here.end()
        seconds = [line["seconds"] for line in lines]
        stages = [
            f"{statistics.median(each):.3f}" for each in zip(*map(_stages, lines), strict=True)
        ]
        print(
            f"{delay_ms:g} ms of added round trip: median {statistics.median(seconds):.3f} s a "
            f"robust round of 3 parties (least {min(seconds):.3f}); by exchange {', '.join(stages)}"
        )


def _stages(line: dict) -> list[float]:
    return line["stage_seconds"][:3]


def steps(given: argparse.Namespace, root: Path) -> None:
    job = robust(
        3,
        max(1, given.steps // 50),
        "algorithm.kind=distributed-dp-sgd",
        "data.source=digits",
        "model.kind=pca-mlp",
        "model.pca=private",
        "model.components=60",
        "model.hidden=[1000]",
        "dp-sgd.sampling-rate=0.2",
        "dp-sgd.local-steps=50",
        "privacy.epsilon=8",
        "secure-aggregation.dropouts=optimistic",
    )
    here = Consortium(root, job, parties=3)
    try:
        lines = wait_for(here.submit(), job.algorithm.rounds)
    finally:
        here.end()
    a_step = sum(line["seconds"] for line in lines) / (50 * len(lines))
    print(
        f"distributed DP-SGD, 60-1000-10, 3 parties, optimistic: {a_step:.3f} s a step over "
        f"{50 * len(lines)} steps; 1,000 steps: {1000 * a_step / 60:.1f} min"
    )


def kills(_: argparse.Namespace, root: Path) -> None:
    here = Consortium(root, robust(4, 2000, "secure-aggregation.corrupt=0"), parties=4)
    try:
        run = here.submit()
        wait_for(run, 3)
        here.restart("south")
        until = time.monotonic() + 60
        log = here.home / "south.out"
        while len(re.findall("Connected", log.read_text())) < 2 and time.monotonic() < until:
            time.sleep(0.002)
        at = len(lines_of(run))
        lines = wait_for(run, at + 20)
        back = next(line["round"] for line in lines[at:] if "south" not in line["absent"])
        missed = sum("south" in line["absent"] for line in lines)
        print(
            f"a party killed: missing from {missed} rounds; back in round {back}, it was "
            f"connected again in round {at + 1}"
        )
        here.running["server"].kill()
        here.running["server"].wait()
        made = len(lines_of(run))
        began = time.monotonic()
        here.start("server")
        wait_for(run, made + 1)
        print(f"the server killed: a round {time.monotonic() - began:.2f} s after its restart")
    finally:
        here.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("round", "steps", "kills"))
    parser.add_argument("--delay-ms", type=float, default=100.0)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="parley-delayed-") as folder:
        {"round": delayed_round, "steps": steps, "kills": kills}[given.what](given, Path(folder))


if __name__ == "__main__":
    main()
