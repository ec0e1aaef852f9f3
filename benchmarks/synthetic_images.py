"""Measure the quality of synthetic images: `examples/mnist-synthetic.toml`, with several seeds.

    python benchmarks/synthetic_images.py PATH/mnist.npz [--seeds 3] [--kept FILE.jsonl]

Logistic regression and a small convolutional network are fitted to 10,000 of the images, and tested
on MNIST's test images. The noise is seeded for repeatability. The metrics of the run's report are
skipped, because they take as long again. One seed takes two minutes of one core. Existing lines of
`--kept` are not measured again.
"""

import argparse
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from kept_lines import measured
from sklearn.linear_model import LogisticRegression
from torch import nn

from parley.server.jobs.job_file import load_job
from parley.simulations.engine import fast_engine

JOB = Path(__file__).parents[1] / "examples" / "mnist-synthetic.toml"
ROWS = 10_000


def convolutional(images, labels, asked, truth, seed):
    """Return the accuracy of two convolutions and a linear layer, after five epochs of Adam."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 49, 10),
    )
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    pixels = torch.from_numpy(images[:, None].astype(np.float32) / 255)
    wanted = torch.from_numpy(labels.astype(np.int64))
    for _ in range(5):
        for batch in torch.randperm(len(pixels)).split(100):
            loss = nn.functional.cross_entropy(net(pixels[batch]), wanted[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        pixels = torch.from_numpy(asked[:, None].astype(np.float32) / 255)
        told = torch.cat([net(each).argmax(1) for each in pixels.split(1000)])
    return float((told.numpy() == truth).mean())


def logistic(images, labels, asked, truth):
    """Return the accuracy of logistic regression, as in a run's report."""
    rows, asked = (each.reshape(len(each), -1) / np.float32(255) for each in (images, asked))
    return LogisticRegression(max_iter=100, tol=1e-3).fit(rows, labels).score(asked, truth)


def one_seed(source, *, seed):
    """Return the figures of one run."""
    with np.load(source) as real:
        test, truth = real["x_test"], real["y_test"]
    with tempfile.TemporaryDirectory() as folder:
        overrides = [f"data.source={source}", f"data.test-source={source}"]
        overrides += [f"algorithm.seed={seed}", f"run.seed={seed}", f"algorithm.rows={ROWS}"]
        began = time.process_time()
        fast_engine.simulate(load_job(JOB, overrides=overrides), out=Path(folder) / "run")
        taken = time.process_time() - began
        with np.load(Path(folder) / "run" / "synthetic.npz") as made:
            images, labels = made["x_train"], made["y_train"]
    return {
        "logistic regression": logistic(images, labels, test, truth),
        "convolutional network": convolutional(images, labels, test, truth, seed),
        "seconds of the run": taken,
    }


def main():
    """Print one line per figure: the mean over the seeds, and the largest distance from it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kept", type=Path, default=Path(os.devnull))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    fast_engine.add_table_metrics = lambda summary, table, *_: summary.with_fields(synthetic=table)
    cases = ({"seed": seed} for seed in range(1, arguments.seeds + 1))
    lines = measured(arguments.kept.resolve(), cases, partial(one_seed, arguments.source))
    for name in list(lines[0])[1:]:
        values = [each[name] for each in lines]
        mean = fmean(values)
        print(f"{name}: {mean:.3f} ± {max(abs(value - mean) for value in values):.3f}")


if __name__ == "__main__":
    sys.exit(main())
