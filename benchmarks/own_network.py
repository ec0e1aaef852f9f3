"""Measure the CPU seconds of ten parties that train a user's own CNN class on MNIST.

    python benchmarks/own_network.py mnist.npz [--network small] [--rounds 20] [--records 10000]

The network is a class with a forward pass, so torch.func.vmap computes each record's gradient. The
run is `parley.run(X, y, model=Net, epsilon=8, parties=10, rounds=20, baseline=False)`. Seconds are
CPU time of the process, by `resource`; wall time depends on what else runs. mnist.npz is
the file of Keras (x_train, y_train). One line of JSON is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import parley
from parley.version import __version__


class Small(nn.Module):
    """One convolution and a linear layer, 2,530 parameters."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 8, 2)
        self.last = nn.Linear(200, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return `[b, K]` scores of `[b, 784]` rows."""
        maps = torch.relu(self.conv(x.view(-1, 1, 28, 28)))
        scores: Tensor = self.last(nn.functional.max_pool2d(maps, 2).flatten(1))
        return scores


class Large(nn.Module):
    """The network of DP-SGD papers: two convolutions, two linear layers, 26,010 parameters."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 8, 2, padding=3)
        self.second = nn.Conv2d(16, 32, 4, 2)
        self.hidden = nn.Linear(512, 32)
        self.last = nn.Linear(32, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return `[b, K]` scores of `[b, 784]` rows."""
        x = nn.functional.max_pool2d(torch.relu(self.first(x.view(-1, 1, 28, 28))), 2, 1)
        x = nn.functional.max_pool2d(torch.relu(self.second(x)), 2, 1)
        scores: Tensor = self.last(torch.relu(self.hidden(x.flatten(1))))
        return scores


NETWORKS = {"small": Small, "large": Large}


def count_cpu_seconds() -> float:
    """Return the CPU seconds of this process so far, of all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run once and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mnist", type=Path)
    parser.add_argument("--network", choices=NETWORKS, default="small")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--set", action="append", default=[], help="section.key=value of the job")
    options = parser.parse_args()
    with np.load(options.mnist) as whole:
        x = whole["x_train"][: options.records] / 255.0
        y = whole["y_train"][: options.records]
    job = dict(text.split("=", 1) for text in options.set)
    warnings.simplefilter("ignore")  # the schema is inferred
    before, begin = count_cpu_seconds(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = parley.run(
            x, y, job=job, model=NETWORKS[options.network], epsilon=8, parties=10,
            rounds=options.rounds, baseline=False, out=Path(folder) / "run",
        )  # fmt: skip
    cpu, wall = count_cpu_seconds() - before, time.perf_counter() - begin
    figures = {
        "network": options.network,
        "rounds": options.rounds,
        "records": options.records,
        "cpu_s": round(cpu, 1),
        "import_cpu_s": round(before, 1),
        "wall_s": round(wall, 1),
        "max_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "accuracy": run.accuracy,
        "job": job,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 1),
        "versions": f"Parley {__version__}, torch {torch.__version__}, numpy {np.__version__}",
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
