"""Measure MNIST's accuracy with scattering coefficients, and the CPU time that they take.

    python benchmarks/features.py accuracy mnist.npz --seeds 5
    python benchmarks/features.py table
    python benchmarks/features.py seconds mnist.npz

`accuracy` runs examples/mnist-scattering.toml for each budget and seed, and appends a line per run
to benchmarks/features.jsonl: relation, ε, rounds, accuracy on the 10,000 test images. The noise
comes from the operating system's entropy, so figures repeat only in distribution. A seed determines
the split. `--parties 1` is one owner of all images; `--noise-point server` trusts the server.
`table` prints means and 95 % intervals of the existing lines. Rounds and rates were chosen on the
last 10,000 training images, after training on the first 20,000 or 50,000 with the same noise.
"""

import argparse
import os
import tempfile
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

import numpy as np
import scipy.stats
from kept_lines import lines_of, measured

from parley.client.data.party_block import PartyBlock
from parley.client.features.image_scattering import ScatteringTransform
from parley.client.models.integer_gradients import compute_gradients
from parley.client.models.linear_models import LinearModel
from parley.client.models.row_quantization import prepare_rows
from parley.client.models.softmax_loss import SoftmaxLoss
from parley.server.jobs.job_file import load_job
from parley.simulations.engine.fast_engine import simulate

LINES = "features.jsonl"

BUDGETS = {
    ("add-or-remove-one", 2.93): (160, 180),
    ("add-or-remove-one", 2.0): (80, 180),
    ("add-or-remove-one", 0.5): (60, 150),
    ("replace-one", 2.0): (80, 150),
    ("replace-one", 0.5): (40, 80),
    ("replace-one", 0.1): (30, 30),
}
"""(relation, ε) → (rounds, rate)."""


def accuracy(data, *, neighbouring, epsilon, parties, noise_point, rounds, rate, average, seed):
    """Return the figures of one run."""
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
            "run.evaluate-every=0",
            f"privacy.noise-point={noise_point}",
            f"privacy.neighbouring={neighbouring}",
            f"privacy.epsilon={epsilon}",
            f"algorithm.rounds={rounds}",
            f"algorithm.learning-rate={rate}",
            f"algorithm.average={str(average).lower()}",
        ],
    )
    with tempfile.TemporaryDirectory() as folder:
        summary = simulate(job, out=Path(folder) / "run").summary
    return {
        "delta": job.privacy.delta,
        "accuracy": summary.accuracy,
        "seconds_per_round": summary.seconds_per_round,
    }


def table():
    """Print the mean and 95 % interval (Student's t over seeds) of every setting."""
    found = defaultdict(list)
    for line in lines_of(LINES):
        setting = ("neighbouring", "epsilon", "parties", "noise_point", "rounds", "rate", "average")
        found[tuple(line[key] for key in setting)].append(line["accuracy"])
    for setting, accuracies in sorted(found.items()):
        count, mean = len(accuracies), np.mean(accuracies)
        reach = scipy.stats.t.ppf(0.975, count - 1) * scipy.stats.sem(accuracies)
        print(
            *setting,
            f"n = {count}: {mean:.4f} ± {reach:.4f} ({min(accuracies)} to {max(accuracies)})",
        )


def seconds(data):
    """Print the CPU seconds of a thousand images' features, and of a round over 60,000 × 3,969 ×
    10.
    """
    with np.load(data) as loaded:
        images = loaded["x_train"][:1000] / 255
    scattering = ScatteringTransform(height=28, width=28)
    scattering(images[:16])
    began = time.process_time()
    found = scattering(images)
    print(f"scattering: {time.process_time() - began:.2f} ms of CPU an image")
    rows = np.resize(found.reshape(1000, -1), (6000, 3969))
    rows = prepare_rows(rows, intercept=False)
    model = LinearModel(loss=SoftmaxLoss(classes=10), features=3969)
    block = PartyBlock(
        features=rows, labels=np.arange(6000) % 10, offsets=np.array([0, 3000, 6000])
    )
    theta = np.random.default_rng(0).normal(size=model.dimension)
    compute_gradients(model, theta, block, clip=0.3)
    times = []
    for _ in range(5):
        wall, cpu = time.perf_counter(), time.process_time()
        compute_gradients(model, theta, block, clip=0.3)
        times.append((time.process_time() - cpu, time.perf_counter() - wall))
    cpu, wall = np.median(times, axis=0) * 10
    print(f"a round of 60,000 records: {cpu:.2f} s of CPU, {wall:.2f} s here")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["accuracy", "table", "seconds"])
    parser.add_argument("data", type=Path, nargs="?", default=Path("mnist.npz"))
    parser.add_argument("--parties", type=int, default=10)
    parser.add_argument("--noise-point", default="share", choices=["share", "server"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--only", nargs=2, metavar=("RELATION", "EPSILON"))
    given = parser.parse_args()
    if given.what == "seconds":
        seconds(given.data.resolve())
        return
    if given.what == "table":
        table()
        return
    budgets = [(given.only[0], float(given.only[1]))] if given.only else BUDGETS
    own = {"parties": given.parties, "noise_point": given.noise_point, "average": False}
    cases = (
        own
        | {"neighbouring": relation, "epsilon": epsilon, "seed": seed}
        | dict(zip(("rounds", "rate"), BUDGETS[relation, epsilon], strict=True))
        for relation, epsilon in budgets
        for seed in range(given.first, given.first + given.seeds)
    )
    figures = partial(accuracy, given.data.resolve())
    os.chdir(Path(__file__).resolve().parents[1])
    measured(LINES, cases, figures)


if __name__ == "__main__":
    main()
