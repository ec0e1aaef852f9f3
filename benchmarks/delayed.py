"""Time rounds over connections with an added delay, and the cost of a kill
(docs/benchmarks-speed.md).

    python -P benchmarks/delayed.py round [--delay-ms 100] [--rounds 20]
    python -P benchmarks/delayed.py steps [--steps 200]
    python -P benchmarks/delayed.py kills

`round` times a robust, confirmed round of three real parties. Each is behind a proxy that delays
every byte by half of the delay in either direction. `steps` times distributed DP-SGD of a
60-1000-10 network among three parties, in seconds per step. `kills` kills and restarts a party in a
run, then the server. It counts the rounds until the party is in the sum again, and the seconds from
the server's restart to its next round.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from parley.deploy.child_processes import Supervisor, build_environment, find_free_ports
from parley.deploy.process_errors import ProcessError, wait_until
from parley.deploy.provisioning import make_deployment
from parley.deploy.stream.operator_client import OperatorClient, load_operator_home
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import load_job, render_job
from parley.simulations.engine.party_folders import prepare_parties

NAMES = ("north", "south", "east", "west")


class Delayed:
    """A proxy that passes bytes on after `seconds`, in order, in either direction."""

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


class Consortium(Supervisor):
    """A server and its parties as processes, with a proxy per party."""

    def __init__(self, root: Path, job: Job, *, parties: int, delay_s: float = 0.0) -> None:
        super().__init__()
        (port,) = find_free_ports(1)
        self.home, self.job = root / "consortium", job
        names = NAMES[:parties]
        make_deployment(self.home, hosts=["127.0.0.1"], parties=names, port=port)
        prepare_parties(job, root / "prepared")
        commands = {"server": ["parley", "server", str(self.home / "server")]}
        for index, name in enumerate(names):
            own = self.home / "parties" / name
            for file in ("records.npz", "party.toml"):
                shutil.copy(root / "prepared" / f"party-{index}" / file, own)
            line = ["--server", Delayed(("127.0.0.1", port), delay_s).address] if delay_s else []
            commands[name] = ["parley", "party", str(own), *line]
        self.of = {}
        for name, words in commands.items():
            log = self.home / f"{name}.out"
            self.of[name] = self.start(name, words, environment=build_environment(), log=log)
            self._until(partial(_says, log, "Listening" if name == "server" else ""), name)

    def killed(self, name: str) -> None:
        """Kill a process and start it again."""
        self.of[name].popen.kill()
        self.of[name] = self.restart(self.of[name])

    def submit(self) -> Path:
        """Submit the job once all parties are online, and return its run's folder."""
        self._until(self._online, "the parties")
        with OperatorClient(load_operator_home(self.home)) as operator:
            name = operator.send_request("submit", job=render_job(self.job))["run"]
        return self.home / "server" / "runs" / name

    def _until(self, ready: Callable[[], bool], what: str) -> None:
        wait_until(ready, what=what, timeout_s=180, check=self.check)

    def _online(self) -> bool:
        with suppress(ProcessError), OperatorClient(load_operator_home(self.home)) as operator:
            return all(party["online"] for party in operator.send_request("status")["parties"])
        return False  # the server is starting


def _says(log: Path, words: str, *, times: int = 1) -> bool:
    return log.read_text().count(words) >= times


def lines_of(run: Path) -> list[dict]:
    path = run / "rounds.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(run: Path, rounds: int) -> list[dict]:
    def made() -> bool:
        return len(lines_of(run)) >= rounds

    wait_until(made, what=f"{rounds} rounds", timeout_s=280, poll_s=0.005)
    return lines_of(run)


def robust(parties: int, rounds: int, *more: str) -> Job:
    overrides = [f"parties.count={parties}", f"algorithm.rounds={rounds}"]
    return load_job(overrides=[*overrides, "secure-aggregation.backend=masked", *more])


def delayed_round(given: argparse.Namespace, root: Path) -> None:
    for delay_ms in (0.0, given.delay_ms):
        job = robust(3, given.rounds)
        with Consortium(root / f"{delay_ms:g}", job, parties=3, delay_s=delay_ms / 2000) as here:
            lines = wait_for(here.submit(), given.rounds)[1:]
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
    )
    with Consortium(root, job, parties=3) as here:
        lines = wait_for(here.submit(), job.algorithm.rounds)
    a_step = sum(line["seconds"] for line in lines) / (50 * len(lines))
    print(
        f"distributed DP-SGD, 60-1000-10, 3 parties: {a_step:.3f} s a step over "
        f"{50 * len(lines)} steps; 1,000 steps: {1000 * a_step / 60:.1f} min"
    )


def kills(_: argparse.Namespace, root: Path) -> None:
    job = robust(4, 2000, "secure-aggregation.corrupt=0")
    with Consortium(root, job, parties=4) as here:
        run, log = here.submit(), here.of["south"].log
        wait_for(run, 3)
        here.killed("south")

        again = partial(_says, log, "Connected", times=2)
        wait_until(again, what="the party", timeout_s=60, poll_s=0.002)
        at = len(lines_of(run))
        lines = wait_for(run, at + 20)
        back = next(line["round"] for line in lines[at:] if "south" not in line["absent"])
        missed = sum("south" in line["absent"] for line in lines)
        print(
            f"a party killed: missing from {missed} rounds; back in round {back}, it was "
            f"connected again in round {at + 1}"
        )
        made, began = len(lines_of(run)), time.monotonic()
        here.killed("server")
        wait_for(run, made + 1)
        print(f"the server killed: a round {time.monotonic() - began:.2f} s after its restart")


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
