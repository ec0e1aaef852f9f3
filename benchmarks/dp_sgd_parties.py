"""Time a round of DP-SGD in many small parties: Parley, a loop with Opacus, and Flower with Opacus.

    python benchmarks/dp_sgd_parties.py [--rounds 9] [--flower-python PYTHON]

100 parties of 50 records, network 64-32-10, five steps of expected batch 50, clip 1, σ = 1.
Parley's time includes all of a party's work in a round: batches, gradients, and exact integer noise
from the system's entropy. With q = 1 every step takes all 50 records, as the other contenders do;
with q = 0.5 it draws Poisson batches from 100. Opacus takes its noise from torch's generator and
its batches as given. Its engine is created before the timing (steps), or inside it (created in
every round, as by a party without state).

All contenders may use every core. Parley trains chunks of parties in threads, torch's threads are
set to one and to all for Opacus, and Flower's simulation (Ray) has one actor per CPU. They take
turns in one process, and each round starts with another one; Flower waits in its own processes. CPU
times are of all threads, and of Flower's whole process group.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

PARTIES, RECORDS, STEPS, CLIP, SIGMA, RATE = 100, 50, 5, 1.0, 1.0, 0.1
MODES = ("hooks", "ghost")  # functorch took twice as long
FLOWER = "Flower with Opacus hooks"
Step = Callable[[], Any]


def plain_model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def private_step(model: nn.Module, x: torch.Tensor, y: torch.Tensor, mode: str) -> Step:
    """Return one step of Opacus on a given batch."""
    from opacus import PrivacyEngine

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=len(y))
    made = PrivacyEngine(accountant="rdp").make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
        criterion=nn.CrossEntropyLoss(),
        data_loader=loader,
        noise_multiplier=SIGMA,
        max_grad_norm=CLIP,
        poisson_sampling=False,
        grad_sample_mode=mode,
    )
    network, optimiser = made[0], made[1]
    criterion = made[2] if mode == "ghost" else nn.CrossEntropyLoss()

    def step() -> None:
        optimiser.zero_grad()
        criterion(network(x), y).backward()
        optimiser.step()

    return step


def data(records: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((PARTIES, records, 64)) / 8, rng.integers(0, 10, (PARTIES, records))


def ours(precision: str, rate: float) -> Step:
    from parley.client.dp_sgd.batch_sums import split_party_chunks
    from parley.client.dp_sgd.local_training import train_parties
    from parley.client.dp_sgd.training_data import TrainingParties
    from parley.client.dp_sgd.training_settings import LocalTraining
    from parley.client.models.networks import Network
    from parley.privacy.sampling.random_stream import NoiseStream

    network = Network.build("mlp", features=64, classes=10, hidden=(32,), precision=precision)  # type: ignore[arg-type]
    records = round(RECORDS / rate)
    rows, classes = data(records)
    x, y = network.to_tensor(rows), torch.as_tensor(classes)
    config = LocalTraining(
        steps=STEPS,
        sampling_rate=rate,
        clip_norm=CLIP,
        noise_multiplier=SIGMA,
        optimiser="sgd",
        learning_rate=RATE,
        momentum=0.0,
        per_example_method="exact",
        micro_batch=4096,
    )
    start = network.start()

    def one_round() -> None:
        batches: list[NoiseStream] = []
        noise: list[NoiseStream] = []
        for first, last in split_party_chunks(network, PARTIES, config):
            batches += [NoiseStream.from_entropy()] * (last - first)
            noise += [NoiseStream.from_entropy()] * (last - first)
        parties = TrainingParties(
            features=x.flatten(0, 1),
            labels=y.flatten(),
            offsets=np.arange(PARTIES + 1) * records,
            divisors=np.full(PARTIES, records),
            batches=batches,
            noise=noise,
        )
        train_parties(network, start, parties, config)

    return one_round


def opacus_loop(mode: str, threads: int, *, made: bool) -> Step:
    """Return a loop over the parties with this many torch threads; `made` creates the engine
    beforehand.
    """
    rows, classes = data(RECORDS)
    x, y = torch.as_tensor(rows, dtype=torch.float32), torch.as_tensor(classes)

    def step_of(party: int) -> Step:
        return private_step(plain_model(), x[party], y[party], mode)

    ready = [step_of(party) for party in range(PARTIES)] if made else []

    def one_round() -> None:
        torch.set_num_threads(threads)
        for party in range(PARTIES):
            step = ready[party] if made else step_of(party)
            for _ in range(STEPS):
                step()

    return one_round


def flower_server() -> None:
    """Run Flower's simulation: a round per input line, and its seconds as an output line."""
    from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation

    client, server = ClientApp(), ServerApp()
    paths = [str(Path(name).resolve()) for name in ("features.npy", "labels.npy")]
    for path, part in zip(paths, data(RECORDS), strict=True):
        np.save(path, part)
    make, step_of = plain_model, private_step

    @client.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        warnings.filterwarnings("ignore")
        party = int(context.node_config["partition-id"])
        rows, classes = (np.load(path, mmap_mode="r")[party] for path in paths)
        model = make()
        model.load_state_dict(message.content["model"].to_torch_state_dict())
        x, y = torch.tensor(rows, dtype=torch.float32), torch.tensor(classes)
        step = step_of(model, x, y, "hooks")
        for _ in range(STEPS):
            step()
        return Message(RecordDict({"model": ArrayRecord(model.state_dict())}), reply_to=message)

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        theta = {name: value.numpy() for name, value in make().state_dict().items()}
        while len(nodes := list(grid.get_node_ids())) < PARTIES:
            time.sleep(0.1)
        for line in sys.stdin:
            begin = time.perf_counter()
            arrays = {name: Array(value) for name, value in theta.items()}
            content = RecordDict({"model": ArrayRecord(arrays)})
            asked = [Message(content, node, "train", group_id=line.strip()) for node in nodes]
            answers = [r.content["model"] for r in grid.send_and_receive(asked)]
            if len(answers) != PARTIES:
                raise RuntimeError(f"Expected {PARTIES} replies, got {len(answers)}.")
            theta = {n: np.mean([a[n].numpy() for a in answers], axis=0) for n in theta}
            print(json.dumps({"seconds": time.perf_counter() - begin}), flush=True)

    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=PARTIES,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )


def started(python: str, folder: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, str(Path(__file__).resolve()), "--flower-server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def flower_round(child: subprocess.Popen[str]) -> float:
    print("go", file=child.stdin, flush=True)
    for line in child.stdout or ():
        if line.startswith('{"seconds"'):
            return float(json.loads(line)["seconds"])
    raise RuntimeError("Expected Flower's simulation to answer, but it ended.")


def cpu_of_group(group: int) -> float:
    """Return the CPU seconds so far of the living processes of a group."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process ended meanwhile
            fields = path.read_text().rpartition(")")[2].split()
            ticks += (int(fields[2]) == group) * (int(fields[11]) + int(fields[12]))
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--flower-python", help="an interpreter with flwr[simulation] and opacus")
    parser.add_argument("--flower-server", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    if options.flower_server:
        flower_server()
        return
    contenders: dict[str, Step] = {
        "ours, float64, q = 1": ours("float64", 1.0),
        "ours, float32, q = 1": ours("float32", 1.0),
        "ours, float64, q = .5": ours("float64", 0.5),
        "ours, float32, q = .5": ours("float32", 0.5),
    }
    for threads in sorted({1, len(os.sched_getaffinity(0))}):
        for mode in MODES:
            for part, made in (("steps", True), ("all", False)):
                name = f"Opacus {mode}, {part}, threads: {threads}"
                contenders[name] = opacus_loop(mode, threads, made=made)
    wall: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="flower-", ignore_cleanup_errors=True) as folder:
        flower = started(options.flower_python, folder) if options.flower_python else None
        try:
            for number in range(options.rounds + 1):  # the first warms up
                order = list(contenders.items())
                first = number % len(order)
                for name, one_round in order[first:] + order[:first]:
                    for _ in range(5 if name.startswith("ours") else 1):
                        begin, cpu_begin = time.perf_counter(), time.process_time()
                        one_round()
                        if number:
                            wall.setdefault(name, []).append(time.perf_counter() - begin)
                            cpu.setdefault(name, []).append(time.process_time() - cpu_begin)
                if flower:
                    before = cpu_of_group(flower.pid)
                    seconds = flower_round(flower)
                    if number:
                        wall.setdefault(FLOWER, []).append(seconds)
                        cpu.setdefault(FLOWER, []).append(cpu_of_group(flower.pid) - before)
                    time.sleep(1)  # wait until its processes are idle
        finally:
            if flower:
                os.killpg(
                    flower.pid, signal.SIGKILL
                )  # it has its own group, so this ends its workers, too
                flower.wait()
    base = (
        statistics.median(wall["ours, float64, q = 1"]),
        statistics.median(wall["ours, float32, q = 1"]),
    )
    print("median ms: wall, CPU; wall over ours in float64 and in float32 (q = 1)")
    for name in [*contenders, *([FLOWER] if flower else [])]:
        times = wall[name]
        middle = statistics.median(times)
        used = 1e3 * statistics.median(cpu[name])
        print(
            f"{name:34}{1e3 * middle:9.1f}{used:9.1f}"
            f"{middle / base[0]:8.1f}×{middle / base[1]:8.1f}×",
            flush=True,
        )


if __name__ == "__main__":
    main()
