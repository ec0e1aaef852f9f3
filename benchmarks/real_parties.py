"""Measure many real parties, or a server alone, over TLS (docs/benchmarks-scale.md).

    python -P benchmarks/real_parties.py parties --parties 10 50 100 200 --rounds 5
    python -P benchmarks/real_parties.py parties --parties 30 --leaving 3 --rounds 20
    python -P benchmarks/real_parties.py parties --parties 30 --frozen 1 --slow 1 --lying 1
    python -P benchmarks/real_parties.py parties --parties 10 --rounds 10000
    python -P benchmarks/real_parties.py server --parties 1000 --rounds 10

`parties` runs one server process and two processes of parties, a thread and a connection per party.
Each party has its own keys, certificate, policy, ledger and folder. Two are disturbed on request:
`leaving` parties close their connection and return, `slow` ones wait before they answer, `lying`
ones change a byte of each answer, and `frozen` ones are one process that SIGSTOP halts. `server`
replaces the parties by `load_generator`, to measure a server for more parties than one machine can
be. Folders are in memory if /dev/shm exists (--disk: in the folder for temporary files).

Each line is JSON: medians over rounds without the first, which ends the set-up. CPU seconds and
memory are each process's own. The load average is printed next to each wall-clock time. A run of at
least 100 rounds also prints `growth`: memory, and CPU seconds of a round, at a tenth, half and the
end.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
# In this order, so that benchmarks/secure_agg.py does not hide the package.
sys.path.insert(0, str(_HERE.parent))
sys.path.append(str(_HERE))

_TICK = os.sysconf("SC_CLK_TCK")
_PROCESSES = 2
_MIB = 1 << 20
_RECORDS, _COLUMNS = 50, 30  # per party; d = 31 with an intercept
_SLOW_S = 2.0
_THAW_S = 8.0


def _read_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, from /proc."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICK


def _read_resident(pid: int | str = "self") -> float:
    """Return the resident memory of a process in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / _MIB, 1)


class Meter:
    """Observer of a run that prints the server's own cost of each round."""

    def __init__(self) -> None:
        self._before = self.read()

    def read(self) -> dict[str, float]:
        """Return the time, and the CPU seconds of the process and of this thread."""
        now = time.monotonic(), time.process_time(), time.thread_time()
        return dict(zip(("s", "cpu_s", "coordinator_s"), now, strict=True))

    def started(self, _job: Any, _plan: Any, _folder: Path, _done: int) -> None:
        """Begin with the first round."""

    def round_done(self, line: Any) -> None:
        """Print the cost since the last round."""
        now, before = self.read(), self._before
        own = {key: round(now[key] - before[key], 4) for key in now}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        out = {
            "round": line.round,
            **own,
            "resident": _read_resident(),
            "peak": round(peak, 1),
            "survivors": line.parties.asked - len(line.absent),
            "absent": list(line.absent),
            "stages_s": [round(s, 3) for s in line.stage_seconds],
            "bytes_up": line.bytes_up,
            "load": round(os.getloadavg()[0], 1),
        }
        print(json.dumps(out), flush=True)
        self._before = self.read()


def serve(folder: Path, profile: bool) -> None:
    """Serve one run with a deployment's default timeouts, and print a line per event."""
    from parley.deploy.deployment_folder_checks import check_server
    from parley.deploy.stream.deployment_server import _AWAY_S
    from parley.deploy.stream.grpc_server import GrpcServer, StreamTransport
    from parley.server.jobs.job_file import load_job
    from parley.server.records.run_folder import RunFolder
    from parley.server.run_launcher import launch_run

    home = check_server(folder)
    count = len(home.deployment.parties)
    job = load_job(folder / "job.toml")
    job = job.model_copy(update={"run": job.run.model_copy(update={"out": str(folder / "runs")})})
    run = RunFolder.create(job)
    port = GrpcServer(home.folder, home.deployment, listen="127.0.0.1", port=home.port)
    with port:
        began, cpu = time.monotonic(), time.process_time()
        print(json.dumps({"open": True}), flush=True)
        transport = StreamTransport(port, away_s=_AWAY_S)
        while len(transport.online()) < count:
            time.sleep(0.02)
        connected = {
            "connect_s": round(time.monotonic() - began, 2),
            "connect_cpu_s": round(time.process_time() - cpu, 2),
            "resident": _read_resident(),
        }
        print(json.dumps(connected), flush=True)
        meter, profiler = Meter(), cProfile.Profile()
        if profile:
            profiler.enable()
        launch_run(run, job, transport=transport, deployment=home.deployment, observer=meter)
        if profile:
            profiler.disable()
            pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(40)
    size = sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file())
    print(json.dumps({"folder_mib": round(size / _MIB, 2)}), flush=True)


def attend(given: argparse.Namespace) -> None:
    """Attend as the real parties in some folders, each in a thread."""
    from parley.client.contract.roster import load_deployment
    from parley.deploy.stream.party_client import PartyClient, build_answer_request

    address = load_deployment(given.homes[0] / "deployment.toml").server_address

    def build_answers(home: Path) -> Any:
        answers = build_answer_request(home)

        profiler = cProfile.Profile()

        def profiled(request: bytes) -> bytes:
            profiler.enable()
            try:
                return answers(request)
            finally:
                profiler.disable()
                if b'"kind":"finish"' in request:
                    pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(40)

        if given.profile and home.name == "party-0":
            return profiled

        def disturbed(request: bytes) -> bytes:
            if home.name in given.slow:
                time.sleep(_SLOW_S)
            reply = answers(request)
            if home.name in given.lying and len(reply) > 1000:
                reply = reply[:-900] + bytes([reply[-900] ^ 1]) + reply[-899:]
            return reply

        return disturbed if home.name in (*given.slow, *given.lying) else answers

    clients = []
    for home in given.homes:
        client = PartyClient(
            home,
            address=address,
            answers=build_answers(home),
            say=lambda _: None,
            late=lambda: None,
        )
        clients.append(client)
        threading.Thread(target=client.run_forever, daemon=True).start()
    leaving = [
        c for c, home in zip(clients, given.homes, strict=True) if home.name in given.leaving
    ]
    number = 0
    while True:
        time.sleep(given.every_s)
        if leaving:
            leaving[number % len(leaving)]._call.cancel()
            number += 1


def generate(given: argparse.Namespace) -> None:
    """Answer as the parties in some folders without their work."""
    from load_generator import generate_load

    homes = {int(home.name.rpartition("-")[2]): home for home in given.homes}
    asyncio.run(generate_load(homes))


def _prepare(root: Path, given: argparse.Namespace, parties: int) -> list[Path]:
    """Create a deployment and its parties' records; return the parties' folders."""
    import numpy as np

    from parley.deploy.child_processes import find_free_ports
    from parley.deploy.provisioning import make_deployment
    from parley.safe_io.file_writing import write_file
    from parley.server.jobs.job_file import load_job, render_job
    from parley.simulations.engine.party_folders import prepare_parties

    rng, y = np.random.default_rng(0), np.arange(_RECORDS * parties) % 2
    np.savez(root / "data.npz", x=rng.uniform(-1, 1, (len(y), _COLUMNS)), y=y)
    (root / "schema.toml").write_text(
        f'[columns]\nx = {{ kind = "array", shape = [{_COLUMNS}], range = [-1, 1] }}\n'
        'y = { kind = "label", classes = [0, 1] }\n'
    )
    job = load_job(
        overrides=[
            f"parties.count={parties}",
            f"algorithm.rounds={given.rounds}",
            f"data.source={root}/data.npz",
            f"data.schema={root}/schema.toml",
            "data.test-fraction=0",
            "secure-aggregation.backend=masked",
            *given.set,
        ]
    )
    (port,) = find_free_ports(1)
    names = [f"party-{index}" for index in range(parties)]
    make_deployment(root / "deployment", hosts=["127.0.0.1"], parties=names, port=port)
    prepare_parties(job, root / "prepared")
    homes = [root / "deployment" / "parties" / name for name in names]
    for home in homes:
        for file in ("records.npz", "party.toml"):
            shutil.copy(root / "prepared" / home.name / file, home)
        policy = home / "party.toml"
        text = policy.read_text().replace('certificate = "plan"', 'certificate = "auto"')
        policy.write_text(text.replace("\nepsilon = 1\n", "\nepsilon = 5\n"))
    shutil.rmtree(root / "prepared")
    write_file(root / "deployment" / "server" / "job.toml", render_job(job))
    return homes


class Children:
    """The processes of one measurement, by what they are; all end with the block."""

    def __init__(self, log: Path) -> None:
        self._log, self.started = log, list[subprocess.Popen[str]]()

    def start(self, *arguments: object, **more: Any) -> subprocess.Popen[str]:
        """Start this script in another role."""
        from parley.deploy.child_processes import build_environment

        command = [sys.executable, "-P", str(_HERE / "real_parties.py"), *map(str, arguments)]
        child = subprocess.Popen(
            command,
            env=build_environment(),
            stdout=more.pop("stdout", self._log.open("a")),
            stderr=self._log.open("a"),
            text=True,
        )
        self.started.append(child)
        return child

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.started:
            child.send_signal(signal.SIGCONT)
            child.kill()
            child.wait()


def measure(given: argparse.Namespace, parties: int, root: Path) -> dict[str, Any]:
    """Run one measurement and return its figures."""
    homes, log = _prepare(root, given, parties), root / "log"
    disturbed = iter(homes[1:])
    names = {
        kind: [next(disturbed).name for _ in range(getattr(given, kind, 0))]
        for kind in ("leaving", "slow", "lying", "frozen")
    }
    usual = [home for home in homes if home.name not in names["frozen"]]
    with Children(log) as children:
        profile = ["--profile"] if given.profile else []
        server = children.start(
            "serve", root / "deployment" / "server", *profile, stdout=subprocess.PIPE
        )
        assert server.stdout is not None
        lines = map(json.loads, server.stdout)
        next(lines)
        role = "attend" if given.what == "parties" else "generate"
        flags = [
            word
            for kind in ("leaving", "slow", "lying")
            for word in ([f"--{kind}", *names[kind]] if names[kind] else [])
        ]
        flags += ["--every-s", str(given.every_s)] if role == "attend" else []
        others = [
            children.start(role, *usual[part::_PROCESSES], *flags, *profile)
            for part in range(_PROCESSES)
        ]
        frozen = [home for home in homes if home.name in names["frozen"]]
        if frozen:
            stopped = children.start("attend", *frozen)
            threading.Thread(target=_freeze, args=(stopped,), daemon=True).start()
        connected, rounds, ends, marks = next(lines, {}), [], {}, []
        began = time.monotonic()
        for line in lines:
            if "round" not in line:
                ends = line
                continue
            rounds.append(line)
            cpu = sum(_read_cpu_s(child.pid) for child in others)
            marks.append(
                (time.monotonic() - began, cpu, sum(_read_resident(c.pid) for c in others))
            )
            if given.each:
                print(json.dumps(line), flush=True)
        server.wait()
    if len(rounds) < 2:
        raise SystemExit(log.read_text()[-4000:])
    if given.profile:
        print(log.read_text(), file=sys.stderr)
    later, elapsed = rounds[1:], len(rounds) - 1
    return {
        "parties": parties,
        **{kind: len(found) for kind, found in names.items() if found},
        "rounds": len(rounds),
        **{key: round(_median(later, key), 3) for key in ("s", "cpu_s", "coordinator_s")},
        "mean_s": round(statistics.mean(line["s"] for line in later), 3),
        "most_s": max(line["s"] for line in later),
        "parties_cpu_s": round((marks[-1][1] - marks[0][1]) / elapsed, 2),
        "stages_s": [
            round(statistics.median(c), 2)
            for c in zip(*(r["stages_s"][:3] for r in later), strict=True)
        ],
        "until_first_s": round(marks[0][0], 1),
        "connect_s": connected["connect_s"],
        "connect_cpu_s": connected["connect_cpu_s"],
        "connected_mib": connected["resident"],
        "first_cpu_s": rounds[0]["cpu_s"],
        "peak_mib": rounds[-1]["peak"],
        "resident_mib": [rounds[1]["resident"], rounds[-1]["resident"]],
        "parties_resident_mib": [marks[0][2], marks[-1][2]],
        "growth": _list_growth(rounds, marks),
        "bytes_up": rounds[-1]["bytes_up"] // parties,
        "absences": sum(len(line["absent"]) for line in later),
        **ends,
        "load": [rounds[0]["load"], rounds[-1]["load"]],
    }


def _list_growth(
    rounds: list[dict[str, Any]], marks: list[tuple[float, float, float]]
) -> list[dict[str, Any]]:
    """Return memory, and CPU seconds of a round, at a tenth, half and the end of a long run."""
    tenth = len(rounds) // 10
    if tenth < 10:
        return []
    server_cpu = [line["cpu_s"] for line in rounds]
    return [
        {
            "round": end,
            "server_mib": rounds[end - 1]["resident"],
            "parties_mib": round(marks[end - 1][2], 1),
            "server_cpu_s": round(statistics.mean(server_cpu[end - tenth : end]), 4),
            "parties_cpu_s": round((marks[end - 1][1] - marks[end - tenth][1]) / (tenth - 1), 4),
        }
        for end in (tenth, len(rounds) // 2, len(rounds))
    ]


def _median(lines: list[dict[str, Any]], key: str) -> float:
    return statistics.median(line[key] for line in lines)


def _freeze(child: subprocess.Popen[str]) -> None:
    """Halt a process repeatedly, as a machine that sleeps, without ending its connections."""
    while child.poll() is None:
        time.sleep(_THAW_S)
        child.send_signal(signal.SIGSTOP)
        time.sleep(5 * _THAW_S)
        child.send_signal(signal.SIGCONT)


@contextmanager
def _make_folder(disk: bool) -> Any:
    memory = Path("/dev/shm")
    place = None if disk or not memory.is_dir() else memory
    with tempfile.TemporaryDirectory(
        prefix="real-parties-", dir=place, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    roles = parser.add_subparsers(dest="what", required=True)
    for what in ("parties", "server"):
        own = roles.add_parser(what)
        own.add_argument("--parties", type=int, nargs="+", default=[10])
        own.add_argument("--rounds", type=int, default=5)
        own.add_argument("--set", nargs="+", default=[], help="further keys of the job")
        own.add_argument("--disk", action="store_true")
        own.add_argument("--profile", action="store_true", help="coordinator and party 0")
        own.add_argument("--each", action="store_true", help="print each round")
        own.add_argument(
            "--every-s", type=float, default=2.0, help="between two parties that leave"
        )
        if what == "parties":
            for kind in ("leaving", "slow", "lying", "frozen"):
                own.add_argument(f"--{kind}", type=int, default=0)
    role = roles.add_parser("serve")
    role.add_argument("folder", type=Path)
    role.add_argument("--profile", action="store_true")
    for what in ("attend", "generate"):
        role = roles.add_parser(what)
        role.add_argument("homes", type=Path, nargs="+")
        role.add_argument("--every-s", type=float, default=2.0)
        role.add_argument("--profile", action="store_true")
        for kind in ("leaving", "slow", "lying"):
            role.add_argument(f"--{kind}", nargs="+", default=[])
    given = parser.parse_args()
    hidden = {
        "serve": lambda: serve(given.folder, given.profile),
        "attend": partial(attend, given),
        "generate": partial(generate, given),
    }
    if given.what in hidden:
        hidden[given.what]()
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for parties in given.parties:
        with _make_folder(given.disk) as folder:
            print(json.dumps(measure(given, parties, folder)), flush=True)


if __name__ == "__main__":
    main()
