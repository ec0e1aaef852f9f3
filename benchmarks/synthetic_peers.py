"""Compare Adult's synthetic table with those of one curator who holds every record.

    python benchmarks/synthetic_peers.py PATH/adult.csv.gz --kept benchmarks/synthetic.jsonl
        [--epsilon 0.3 1 3] [--seeds 3] [--mst-python PATH/python]

- Independent columns: each column is counted as diffprivlib's `histogram` does it (two-sided
  geometric noise, ε/14 each, add-or-remove-one, which is the weaker promise), and sampled
  independently.
- MST (McKenna, Miklau & Sheldon 2021, arXiv:2108.04978) of dpmm, also add-or-remove-one. dpmm pins
  another numpy, so it runs in its own environment, with the interpreter --mst-python.

All are fitted to the same codes and evaluated by the metrics of a run's report. Each is a line of
the file of `--kept`, as in benchmarks/synthetic.py; no line is measured again.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from functools import cache, partial
from itertools import product
from pathlib import Path

import numpy as np
from kept_lines import measured

JOB = Path(__file__).parents[1] / "examples" / "adult-synthetic.toml"
MST = """
import sys, numpy as np, pandas as pd
from dpmm.models.mst import MSTGM
source, sizes, epsilon, delta, seed, out = sys.argv[1:]
sizes = [int(each) for each in sizes.split(",")]
names = [f"c{at}" for at in range(len(sizes))]
frame = pd.DataFrame(np.load(source), columns=names)
model = MSTGM(epsilon=float(epsilon), delta=float(delta), domain=dict(zip(names, sizes)), n_jobs=1)
model.set_random_state(np.random.RandomState(int(seed)))
model.fit(frame)
np.save(out, model.generate(len(frame))[names].to_numpy(np.int64))
"""


def records(source, seed):
    """Return codes of training and of held-out records, and the number of values of each column."""
    from parley.client.algorithms.pair_tables import encode_rows
    from parley.client.data.class_indices import to_classes
    from parley.client.data.record_discretization import build_coded_columns
    from parley.client.data.schema import Schema
    from parley.server.jobs.job_file import load_job
    from parley.simulations.data.experiment_loading import load_experiment

    job = load_job(JOB, overrides=[f"data.source={source}", f"data.seed={seed}"])
    world = load_experiment(job)
    sizes = tuple(
        column.size for column in build_coded_columns(Schema.from_toml(world.data.schema))
    )
    train = encode_rows(world.block.features, world.block.labels, sizes)
    test = encode_rows(world.test_features, to_classes(world.test_labels, 0)[0], sizes)
    return train, test, sizes


def independent(train, sizes, epsilon, seed):
    """Sample every column from its own noisy histogram."""
    rng = np.random.default_rng(seed)
    drawn, stays = np.empty_like(train), 1 - np.exp(-epsilon / len(sizes))
    for at, size in enumerate(sizes):
        noise = rng.geometric(stays, size) - rng.geometric(stays, size)
        counts = np.bincount(train[:, at], minlength=size) + noise
        shares = np.maximum(counts, 0) / np.maximum(counts, 0).sum()
        drawn[:, at] = rng.choice(size, len(train), p=shares)
    return drawn


def mst(train, sizes, epsilon, seed, python):
    """Sample from MST in its own environment."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "train.npy", Path(folder) / "drawn.npy"
        np.save(source, train)
        listed = ",".join(map(str, sizes))
        told = [str(source), listed, str(epsilon), "1e-5", str(seed), str(out)]
        subprocess.run([python, "-c", MST, *told], check=True)
        return np.load(out)


def figures(drawn, train, test, sizes):
    """Return the metrics, by the names of a run's report."""
    from parley.simulations.metrics.synthetic_quality import (
        compute_variation,
        evaluate_logistic,
        evaluate_trees,
    )

    found = evaluate_logistic(drawn, test, sizes) | evaluate_trees(drawn, test, sizes)
    told = {f"tstr_{name}": value for name, value in found.items()}
    return told | dict(zip(("tv1", "tv2"), compute_variation(drawn, train, sizes), strict=True))


def main():
    """Write a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.3, 1.0, 3.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--mst-python", default=None)
    arguments = parser.parse_args()
    ways = {"independent columns": independent}
    if arguments.mst_python:
        ways["MST (dpmm)"] = lambda *told: mst(*told, arguments.mst_python)
    else:
        print("MST: no --mst-python")
    dealt = cache(partial(records, arguments.source))

    def one(*, method, epsilon, seed):
        train, test, sizes = dealt(seed)
        began = time.perf_counter()
        drawn = ways[method](train, sizes, epsilon, seed)
        taken = time.perf_counter() - began
        return {"seconds": taken} | figures(drawn, train, test, sizes)

    cases = (
        {"method": name, "epsilon": epsilon, "seed": seed}
        for seed, name, epsilon in product(range(1, arguments.seeds + 1), ways, arguments.epsilon)
    )
    measured(arguments.kept.resolve(), cases, one)


if __name__ == "__main__":
    sys.exit(main())
