"""DP-SGD on a GPU: the CUDA tests, time per step next to Opacus, and accuracy next to Opacus.

    python benchmarks/gpu.py mnist.npz [--device cuda] [--seeds 5] [--parts tests,speed,accuracy]

`tests` runs tests/client/test_device.py, which skips its CUDA tests without a device.
`speed` times whole training steps of one party (batch, gradients, exact integer noise from the
operating system, step) and steps of Opacus with the same network and batch size, in turns, with
the device synchronised before the clock is read. Opacus takes its batch as given.
`accuracy` trains the bundled CNN (26,010 parameters) on MNIST at ε = 2, δ = 1e-5 for one record
(add or remove): one party with DP-SGD, ten parties with distributed DP-SGD, and Opacus with the
same sampling rate, number of steps, noise multiplier, clip norm and learning rate. It prints the
mean over the seeds and a 95 % t-interval. Everything takes under ten minutes on one H200.
"""

from __future__ import annotations

import argparse
import copy
import platform
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
from dp_sgd_parties import private_step
from scipy.stats import t as student
from torch import nn

from parley.client.dp_sgd.local_training import train_party
from parley.client.dp_sgd.training_data import PartyData
from parley.client.dp_sgd.training_settings import LocalTraining
from parley.client.models.networks import Network
from parley.privacy.sampling.random_stream import NoiseStream
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import load_job
from parley.server.planning.job_planner import build_algorithm
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.data.network_experiment import NetworkExperiment
from parley.simulations.engine.fast_engine import simulate

ROOT = Path(__file__).resolve().parents[1]
RECORDS, SAMPLING_RATE, CLIP_NORM = 60_000, 0.02, 1.0
OPACUS_MODES = ("hooks", "ghost", "functorch")


def run_tests() -> None:
    """Run the CUDA tests and print pytest's closing line, or all it printed if one failed."""
    # Without the suite's conftest.py: a GPU machine may lack what other tests need.
    options = ["-q", "--noconftest", "-o", "addopts=--import-mode=importlib"]
    command = [sys.executable, "-m", "pytest", *options, "tests/client/test_device.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    output = (done.stdout + done.stderr).strip()
    print(output[-3000:] if done.returncode else output.splitlines()[-1], flush=True)


def synchronize(device: str) -> None:
    """Wait until the device has done all its work."""
    if device == "cuda":
        torch.cuda.synchronize()


def median_milliseconds(
    contenders: dict[str, Callable[[], int]], device: str, rounds: int
) -> dict[str, float]:
    """Return each contender's median milliseconds per step; a call returns its number of steps."""
    for contender in contenders.values():
        contender()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            synchronize(device)
            began = time.perf_counter()
            steps = contender()
            synchronize(device)
            times[name].append((time.perf_counter() - began) / steps)
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def build_training(steps: int, micro_batch: int, method: str) -> LocalTraining:
    """Return the settings of a party's training with batches of q·n records."""
    return LocalTraining(
        steps=steps, sampling_rate=0.1, clip_norm=CLIP_NORM, noise_multiplier=1.0, optimiser="sgd",
        learning_rate=0.1, momentum=0.0, per_example_method=method, micro_batch=micro_batch,
    )  # fmt: skip


def time_steps(device: str, rounds: int, steps: int) -> None:
    """Print milliseconds per step for two networks and two batch sizes."""
    for kind, hidden in (("cnn", ()), ("mlp", (1000,))):
        for batch in (256, 2048):
            network = Network.build(
                kind, features=784, classes=10, hidden=hidden, precision="float32", device=device
            )
            records = 10 * batch
            rows = np.random.default_rng(0).random((records, 784)) / 28
            labels = torch.randint(0, 10, (records,), device=network.device)
            features, start = network.to_tensor(rows), network.start()
            x, y = features[:batch].clone(), labels[:batch].clone()

            def train(
                network: Network = network, start: Any = start, features: Any = features,
                labels: Any = labels, batch: int = batch,
                method: str = "vmap" if kind == "cnn" else "exact",
            ) -> int:  # fmt: skip
                party = PartyData(
                    features=features, labels=labels, divisor=len(labels),
                    batches=NoiseStream.from_entropy(), noise=NoiseStream.from_entropy(),
                )  # fmt: skip
                train_party(network, start, party, build_training(steps, batch, method))
                return steps

            contenders: dict[str, Callable[[], int]] = {"Parley": train}
            if kind == "mlp":
                contenders["Parley, gradients by torch"] = lambda f=train: f(method="vmap")  # type: ignore[misc]
            for mode in OPACUS_MODES:
                step = private_step(copy.deepcopy(network.module).to(device), x, y, mode)
                contenders[f"Opacus {mode}"] = lambda s=step: (s(), 1)[1]  # type: ignore[misc]
            medians = median_milliseconds(contenders, device, rounds)
            line = ", ".join(f"{name} {value:.2f}" for name, value in medians.items())
            print(f"{kind}, d = {network.dimension}, B = {batch}, {device}: {line} ms", flush=True)


def build_job(data: str, device: str, parties: int, seed: int, rounds: int) -> Job:
    """Return the job of one party (DP-SGD) or of several (distributed DP-SGD)."""
    kind = "fedavg" if parties == 1 else "distributed-dp-sgd"
    keys = {
        "data.source": data, "data.test-source": data, "data.test-fraction": 0,
        "data.schema": ROOT / "examples" / "mnist.schema.toml",
        "data.test-schema": ROOT / "examples" / "mnist-test.schema.toml",
        "model.kind": "cnn", "algorithm.kind": kind, "algorithm.rounds": rounds,
        "parties.count": parties, "parties.min-records": RECORDS // parties,
        "dp-sgd.sampling-rate": SAMPLING_RATE, "dp-sgd.local-epochs": 1,
        "dp-sgd.clip-norm": CLIP_NORM, "dp-sgd.learning-rate": 0.5, "dp-sgd.momentum": 0,
        "dp-sgd.precision": "float32", "privacy.epsilon": 2, "privacy.delta": 1e-5,
        "privacy.neighbouring": "add-or-remove-one", "data.seed": seed, "run.device": device,
        "run.evaluate-every": 0,
    }  # fmt: skip
    if parties > 1:
        keys |= {"privacy.noise-point": "share", "dp-sgd.learning-rate": 0.5}
        keys["secure-aggregation.min-survivors"] = parties
    return load_job(overrides=[f"{key}={value}" for key, value in keys.items()])


def train_opacus(job: Job, device: str, seed: int, rounds: int) -> float:
    """Return the test accuracy of Opacus with the sampling, noise and steps of the job's party."""
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    world = load_experiment(job)
    algorithm: Any = build_algorithm(job, world.model, world.federation)
    sigma, network = algorithm.training.noise_multiplier, world.model
    theta = algorithm.init()["theta"]
    network.use(network.rows(theta).clone())
    model = GradSampleModule(copy.deepcopy(network.module).to(device))
    optimiser = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5), noise_multiplier=sigma,
        max_grad_norm=CLIP_NORM, expected_batch_size=int(SAMPLING_RATE * RECORDS),
    )  # fmt: skip
    features = network.rows(world.block.features)
    labels = torch.as_tensor(np.asarray(world.block.labels, np.int64), device=features.device)
    generator = torch.Generator(device=features.device).manual_seed(seed)
    for _ in range(rounds * round(1 / SAMPLING_RATE)):
        drawn = torch.rand(len(labels), generator=generator, device=features.device)
        batch = torch.nonzero(drawn < SAMPLING_RATE).ravel()
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(features[batch]), labels[batch]).backward()
        optimiser.step()
    with torch.no_grad():
        scores = model(network.rows(world.test_features))
    predicted = scores.argmax(1).cpu().numpy()
    return float((predicted == np.asarray(world.test_labels)).mean())


def format_interval(values: list[float]) -> str:
    """Return the mean and a 95 % t-interval over seeds, in percent."""
    mean, count = statistics.fmean(values), len(values)
    if count < 2:
        return f"{100 * mean:.2f} %"
    half = student.ppf(0.975, count - 1) * statistics.stdev(values) / count**0.5
    return f"{100 * mean:.2f} ± {100 * half:.2f} %"


def compare_accuracy(data: str, device: str, seeds: int, rounds: int) -> None:
    """Print mean accuracies of one party, ten parties and Opacus."""
    # The non-private baseline would take longer than the private training.
    NetworkExperiment.compute_optimum = lambda self: self.algorithm.model.start()  # type: ignore[method-assign,union-attr]
    steps = rounds * round(1 / SAMPLING_RATE)
    for name, parties in (("Parley, one party", 1), ("Parley, ten parties", 10), ("Opacus", 0)):
        accuracies: list[float] = []
        seconds: list[float] = []
        charged = "the noise of the first row"
        for seed in range(seeds):
            job = build_job(data, device, max(1, parties), seed, rounds)
            began = time.perf_counter()
            if parties:
                with tempfile.TemporaryDirectory() as folder:
                    summary = simulate(job, out=Path(folder) / "run").summary
                accuracies.append(float(summary.accuracy or 0.0))
                charged = f"charged ε = {summary.primary.epsilon:.4f}"
            else:
                accuracies.append(train_opacus(job, device, seed, rounds))
            seconds.append(time.perf_counter() - began)
        print(
            f"{name}: {format_interval(accuracies)} over {seeds} seeds, {charged}, "
            f"{steps} steps, {statistics.median(seconds):.1f} s per run with loading",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="mnist.npz")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=4, help="epochs of the accuracy runs")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--steps", type=int, default=10, help="steps per timed call")
    parser.add_argument("--parts", default="tests,speed,accuracy")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    name = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor()
    print(f"{name}, torch {torch.__version__}, Python {platform.python_version()}", flush=True)
    parts = options.parts.split(",")
    if "tests" in parts:
        run_tests()
    if "speed" in parts:
        time_steps(options.device, options.repeats, options.steps)
    if "accuracy" in parts:
        compare_accuracy(options.data, options.device, options.seeds, options.rounds)


if __name__ == "__main__":
    main()
