"""Accuracy of MNIST learned on scattering coefficients, and what that takes of CPU.

    PARLEY_FEATURE_CACHE=FOLDER python benchmarks/features.py accuracy mnist.npz --seeds 5
    python benchmarks/features.py seconds mnist.npz

`accuracy` runs examples/mnist-scattering.toml for each budget and seed and appends a line a run to
benchmarks/features.jsonl: relation, ε, rounds, accuracy on the 10,000 test images. Noise is from
the operating system's entropy, so that figures repeat in law and not to the bit; a seed is the
split's. `--parties 1` is one owner of all images.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

from parley.client.data.block import PartyBlock
from parley.client.features.scattering import Scattering
from parley.client.models.linear import LinearModel, Softmax
from parley.server.jobs.file import load_job
from parley.simulations.engine.fast import simulate

HERE = Path(__file__).resolve().parent

BUDGETS = {
    ("add-or-remove-one", 2.0): (100, 400),
    ("add-or-remove-one", 0.5): (60, 200),
    ("replace-one", 2.0): (100, 400),
    ("replace-one", 0.5): (60, 200),
    ("replace-one", 0.1): (30, 100),
}
"""(relation, ε) → (rounds, rate)."""


def accuracy(data, *, parties, seeds, budgets, work):
    os.chdir(HERE.parent)
    for seed in range(seeds):
        for relation, epsilon in budgets:
            rounds, rate = BUDGETS[relation, epsilon]
            job = load_job(
                "examples/mnist-scattering.toml",
                overrides=[
                    f"data.source={data}",
                    f"data.test-source={data}",
                    f"data.seed={seed}",
                    f"parties.count={parties}",
                    f"parties.min-records={60_000 // parties}",
                    f"secure-aggregation.min-survivors={max(1, parties * 9 // 10)}",
                    "secure-aggregation.masked-check=false",
                    "run.evaluate-every=10",
                    f"privacy.neighbouring={relation}",
                    f"privacy.epsilon={epsilon}",
                    f"algorithm.rounds={rounds}",
                    f"algorithm.learning-rate={rate}",
                ],
            )
            summary = simulate(job, out=work / f"{relation}-{epsilon}-{parties}-{seed}").summary
            line = {
                "neighbouring": relation,
                "epsilon": epsilon,
                "delta": job.privacy.delta,
                "parties": parties,
                "rounds": rounds,
                "seed": seed,
                "accuracy": summary.accuracy,
                "seconds_per_round": summary.seconds_per_round,
            }
            text = json.dumps(line, allow_nan=False)
            print(text, flush=True)
            with (HERE / "features.jsonl").open("a", encoding="utf-8") as file:
                file.write(text + "\n")


def seconds(data):
    """CPU seconds of a thousand images' features, and of a round over 60,000 × 3,969 × 10."""
    with np.load(data) as loaded:
        images = loaded["x_train"][:1000] / 255
    scattering = Scattering(height=28, width=28)
    scattering(images[:16])
    began = time.process_time()
    found = scattering(images)
    print(f"scattering: {time.process_time() - began:.2f} ms of CPU an image")
    rows = np.resize(found.reshape(1000, -1), (6000, 3969))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) * 1.0001
    model = LinearModel(loss=Softmax(classes=10), features=3969)
    block = PartyBlock(
        features=rows, labels=np.arange(6000) % 10, offsets=np.array([0, 3000, 6000])
    )
    theta = np.random.default_rng(0).normal(size=model.dimension)
    model.gradient_sums(theta, block, clip=0.3)
    times = []
    for _ in range(5):
        wall, cpu = time.perf_counter(), time.process_time()
        model.gradient_sums(theta, block, clip=0.3)
        times.append((time.process_time() - cpu, time.perf_counter() - wall))
    cpu, wall = np.median(times, axis=0) * 10
    print(f"a round of 60,000 records: {cpu:.2f} s of CPU, {wall:.2f} s here")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["accuracy", "seconds"])
    parser.add_argument("data", type=Path)
    parser.add_argument("--parties", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs=2, metavar=("RELATION", "EPSILON"))
    parser.add_argument("--work", type=Path, default=Path("feature-runs"))
    given = parser.parse_args()
    if given.what == "seconds":
        seconds(given.data.resolve())
        return
    budgets = [(given.only[0], float(given.only[1]))] if given.only else list(BUDGETS)
    accuracy(
        given.data.resolve(),
        parties=given.parties,
        seeds=given.seeds,
        budgets=budgets,
        work=given.work.resolve(),
    )


if __name__ == "__main__":
    main()
