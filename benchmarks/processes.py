"""Seconds a round of a job as real processes, beside Flower's own SecAgg+ as real processes.

    python -P benchmarks/processes.py ours --parties 3 10 --protocol robust optimistic
    python -P benchmarks/processes.py ours --transport grpc flower     # side by side, in turns
    python -P benchmarks/processes.py ours --dimension 100000
    python -P benchmarks/processes.py flower --parties 3 --dimension 100000
    python -P benchmarks/processes.py ours --engine flower      # Ray: needs parley[ray]
    python -P benchmarks/processes.py ours --trace              # where a stage's time goes

`ours` is `parley run --engine processes`, with who carries its messages: the default job, or with
--dimension a softmax model of ten classes with that many parameters.
`flower` is Flower's SecAggPlusWorkflow and secaggplus_mod
with a client that returns a constant vector, at Flower's own settings: a SuperLink, a SuperNode a
party, TLS and node authentication as in ours. Seconds a round and a stage are the server's own;
memory (VmHWM) and CPU time are read from /proc five times a second, the latter between the first
round's start and the last one's end. What is started is stopped, whatever happens.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
# In this order: benchmarks/secure_agg.py must not hide the package.
sys.path.insert(0, str(_HERE.parent))
sys.path.append(str(_HERE))

from process_watch import Marks, Watch


def _median(rows: list[list[float]]) -> list[float]:
    return [round(statistics.median(column), 3) for column in zip(*rows, strict=True)]


def ours(
    options: argparse.Namespace, parties: int, way: tuple[str, str], folder: Path
) -> dict[str, Any]:
    """A job of ours; what it writes is under `folder`."""
    import numpy as np

    from parley.deploy import engines
    from parley.deploy.flower import engine as carried
    from parley.server.jobs.file import load_job

    protocol, transport = way
    settings = [
        f"run.transport={transport}",
        f"parties.count={parties}",
        f"algorithm.rounds={options.rounds}",
    ]
    settings.append(f"secure-aggregation.dropouts={protocol}")
    if options.dimension:
        columns, rng = options.dimension // 10, np.random.default_rng(0)
        y = np.arange(50 * parties) % 10
        np.savez(folder / "data.npz", x=rng.uniform(-1, 1, (len(y), columns)), y=y)
        (folder / "schema.toml").write_text(
            f'[columns]\nx = {{ kind = "array", shape = [{columns}], range = [-1, 1] }}\n'
            f'y = {{ kind = "label", classes = {list(range(10))} }}\n'
        )
        settings += [f"data.source={folder}/data.npz", f"data.schema={folder}/schema.toml"]
        settings += ["data.test-fraction=0", "model.kind=softmax", "model.intercept=false"]
    job = load_job(overrides=[*settings, *options.set])
    watch = Watch()
    marks = Marks(watch)
    for name in ("start_superlink", "await_online", "start_simulation"):
        setattr(carried, name, marks.after(getattr(carried, name), name))
    watch.start()
    result = engines.ENGINES[options.engine](job, out=folder / "run", observer=marks)
    watch.over.set()
    marks.mark("ended")
    lines = [json.loads(line) for line in (folder / "run" / "rounds.jsonl").open()]
    summed = result.summary.secure_aggregation
    return {
        "dimension": result.summary.dimension,
        "round_s": round(statistics.median(line["seconds"] for line in lines), 3),
        "rounds_s": [round(line["seconds"], 3) for line in lines],
        "stages_s": _median([line["stage_seconds"] for line in lines]),
        "set_up_s": [round(s, 2) for s in summed.setup_stage_seconds],
        "bytes_up": lines[-1]["bytes_up"] // parties,
        "bytes_down": lines[-1]["bytes_down"] // parties,
        **marks.report(len(lines)),
        **_traced(options, marks, folder, len(lines)),
    }


def flower(
    options: argparse.Namespace, parties: int, _: tuple[str, str], folder: Path
) -> dict[str, Any]:
    """Flower's SecAgg+, its processes with their own settings; keys and logs under `folder`."""
    from parley.deploy import node_keys, pki
    from parley.deploy.flower import control as desks
    from parley.deploy.flower import environment, network
    from parley.deploy.processes import Supervisor, free_ports

    dimension = options.dimension or 31
    config = {"parties": parties, "threshold": (2 * parties + 2) // 3, "rounds": options.rounds}
    config |= {"dimension": dimension, "marks": str(folder / "marks.json")}
    app = {path.name: path.read_bytes() for path in (_HERE / "secaggplus").glob("p*.*")}
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in config.items()]
    app["pyproject.toml"] += "".join(lines).encode()
    watch = Watch()
    marks = Marks(watch)
    own = environment.flower_environment(folder / "home")
    del own["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"]  # a setting of ours
    simulated = options.engine == "flower"
    watch.start()
    with Supervisor() as supervisor:
        if simulated:
            link = network.start_simulation(
                supervisor, folder / "home", environment={}, logs=folder, scratch=folder
            )
        else:
            authority = folder / "ca.crt", folder / "ca.key"
            pki.make_authority(*authority, name="benchmark")
            pki.make_server_certificate(
                folder / "server.pem",
                folder / "server.key",
                authority=authority[0],
                authority_key=authority[1],
                hosts=["127.0.0.1", "localhost"],
            )
            port, *ports = free_ports(1 + parties)
            process = supervisor.start(
                "SuperLink",
                [
                    _command("flower-superlink"),
                    *("--ssl-ca-certfile", str(authority[0]), "--enable-supernode-auth"),
                    *("--ssl-certfile", str(folder / "server.pem")),
                    *("--ssl-keyfile", str(folder / "server.key")),
                    *("--host", "127.0.0.1", "--port", str(port)),
                ],
                environment=own,
                log=folder / "superlink.log",
            )
            address = f"127.0.0.1:{port}"
            desk = desks.ControlDesk(address=address, ca=authority[0], secret="")  # Flower has none
            link = network.SuperLink(desk=desk, process=process)
        control = link.control()
        _until(control.answers, 60)
        marks.mark("start_superlink")
        if not simulated:
            keys = {f"party-{i}": folder / f"node-{i}" for i in range(parties)}
            for name, key in keys.items():
                _register(control, name, node_keys.make_node_key(key, comment=name))
            for (name, key), port in zip(keys.items(), ports, strict=True):
                supervisor.start(
                    name,
                    [
                        _command("flower-supernode"),
                        *("--root-certificates", str(authority[0]), "--superlink", address),
                        *("--auth-supernode-private-key", str(key)),
                        *("--host", "127.0.0.1", "--port", str(port)),
                    ],
                    environment=own,
                    log=folder / f"{name}.log",
                )
            _until(lambda: len(control.online()) == parties, 240)
        marks.mark("await_online")
        run = control.start(app, supernodes=parties if simulated else None)
        began, ended = folder / "marks.json.began", folder / "marks.json"
        _until(lambda: began.exists() or control.runs(run)[0].finished, 120)
        marks.started()
        _until(lambda: ended.exists() or control.runs(run)[0].finished, options.limit_s)
        marks.round_done(options.rounds)
        control.close()
        rounds = json.loads(ended.read_text())
    watch.over.set()
    marks.mark("ended")
    return {
        "dimension": dimension,
        "round_s": round(statistics.median(seconds for seconds, _ in rounds), 2),
        "rounds_s": [round(seconds, 2) for seconds, _ in rounds],
        "stages_s": _median([stages for _, stages in rounds]),
        **marks.report(len(rounds)),
        **_traced(options, marks, folder, len(rounds)),
    }


def _command(name: str) -> str:
    """One of Flower's commands, beside the Python that runs this."""
    return str(Path(sys.executable).parent / name)


def _register(control: Any, name: str, line: str) -> None:
    """Lets in the SuperNode with that OpenSSH public key."""
    from cryptography.hazmat.primitives import serialization
    from flwr.proto.control_pb2 import RegisterNodeRequest

    public = serialization.load_ssh_public_key(line.encode()).public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    control._client.RegisterNode(RegisterNodeRequest(public_key=public, name=name))


def _traced(options: argparse.Namespace, marks: Marks, folder: Path, rounds: int) -> dict[str, Any]:
    return {"requests": marks.requests(folder / "trace", rounds)} if options.trace else {}


def _until(ready: Callable[[], bool], limit_s: float) -> None:
    from parley.deploy.processes import wait_until

    wait_until(ready, what="Flower", timeout_s=limit_s, poll_s=0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["ours", "flower"])
    parser.add_argument("--engine", choices=["processes", "flower"], default="processes")
    parser.add_argument("--parties", type=int, nargs="+", default=[3])
    parser.add_argument("--protocol", nargs="+", default=["robust"])
    parser.add_argument("--transport", nargs="+", default=["grpc"], choices=["grpc", "flower"])
    parser.add_argument("--dimension", type=int, default=0, help="0: the default job, d = 31")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--set", nargs="+", default=[], help="further keys of the job")
    parser.add_argument("--limit-s", type=float, default=600)
    parser.add_argument("--keep", type=Path, help="a folder that logs and run folders stay in")
    parser.add_argument("--trace", action="store_true", help="count and time every request")
    options = parser.parse_args()
    # An end by SIGTERM unwinds like one by Ctrl-C: the processes are ended on the way.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    work = {"ours": ours, "flower": flower}[options.what]
    protocols = options.protocol if options.what == "ours" else ["secagg+"]
    carriers = options.transport if options.what == "ours" else ["flower"]
    for parties, *way in itertools.product(options.parties, protocols, carriers):
        with tempfile.TemporaryDirectory(
            prefix="processes-", ignore_cleanup_errors=True
        ) as scratch:
            folder = (options.keep or Path(scratch)) / "-".join([str(parties), *way])
            folder.mkdir(parents=True, exist_ok=True)
            if options.trace:
                trace = folder / "trace"
                trace.mkdir()
                os.environ["PARLEY_TRACE"] = str(trace)
                os.environ["PYTHONPATH"] = str(_HERE / "request_trace")
            row = {"what": options.what, "engine": options.engine, "parties": parties}
            row |= dict(zip(("protocol", "transport"), way, strict=True))
            row |= work(options, parties, tuple(way), folder.resolve())
            print(json.dumps(row, allow_nan=False), flush=True)


if __name__ == "__main__":
    main()
