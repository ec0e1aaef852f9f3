"""How good synthetic tables are, and how long they take: `examples/adult-synthetic.toml`.

    python -P benchmarks/synthetic.py PATH/adult.csv.gz [--epsilon 0.3 1 3] [--seeds 3]

The noise is seeded, to be repeatable. Prints rows of docs/synthetic.md: the mean over the seeds and
the largest distance from it.
"""

import argparse
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np

from parley.client.algorithms.pair_tables import PairTables, named_pairs
from parley.client.algorithms.random_features import RandomFeatures
from parley.client.data.block import PartyBlock
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.sampling.randomness import Randomness
from parley.server.jobs.file import load_job
from parley.server.synthetic.mixture import Mixture, Tables, fit
from parley.simulations.engine.fast import simulate

JOB = Path(__file__).parents[1] / "examples" / "adult-synthetic.toml"
SHOWN = ("tstr_auc", "tstr_trees_auc", "tv1", "tv2", "twin_auc", "independent_auc")


def quality(source, epsilon, seeds):
    """One row."""
    found = []
    for seed in range(1, seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            job = load_job(
                JOB,
                overrides=[
                    f"data.source={source}",
                    f"data.seed={seed}",
                    f"privacy.epsilon={epsilon}",
                    f"algorithm.seed={seed}",
                    f"run.seed={seed}",
                ],
            )
            found.append(simulate(job, out=Path(folder) / "run").summary.synthetic)
    cells = []
    for name in SHOWN:
        values = [getattr(each, name) for each in found]
        mean = fmean(values)
        cells.append(f"{mean:.3f} ± {max(abs(value - mean) for value in values):.3f}")
    print(f"| {epsilon:g} | {' | '.join(cells)} |", flush=True)


def speed():
    """CPU seconds of counting, fitting and drawing, on tables of Adult's size."""
    sizes = (16, 9, 16, 15, 7, 15, 6, 5, 2, 16, 16, 16, 42, 2)
    counted = PairTables(
        sizes=sizes,
        pairs=named_pairs("all", len(sizes)),
        neighbouring=Neighbouring.REPLACE_ONE,
        bound=1e6,
    )
    rng = np.random.default_rng(0)
    records = np.stack([rng.integers(0, size, 24_129) for size in sizes], axis=1)
    parties = np.array_split(records, 30)
    began = time.process_time()
    values = sum(counted.counted(own) for own in parties)
    counting = time.process_time() - began
    began = time.process_time()
    tables = Tables(sizes=sizes, pairs=counted.pairs, values=values)
    mixture = fit(tables, components=300, steps=400, seed=0)
    fitting = time.process_time() - began
    began = time.process_time()
    Mixture.of(sizes, mixture.shares).sample(100_000, rng)
    drawing = time.process_time() - began
    print(
        f"30 parties counted in {counting:.3f} s, fitted in {fitting:.2f} s, "
        f"100,000 rows drawn in {drawing:.2f} s"
    )


def features_speed(parties=30, records=200, wide=100, frequencies=2500):
    """Nanoseconds a feature: all parties in integers, and two loops over them in floats."""
    rng = np.random.default_rng(0)
    rows = (rng.uniform(-1, 1, (parties * records, wide)) / wide**0.5).astype(np.float32)
    labels = rng.integers(0, 10, len(rows))
    own = RandomFeatures(
        features=wide,
        sizes=(),
        classes=10,
        frequencies=frequencies,
        length_scale=3.0,
        seed=0,
        digest="",
        neighbouring=Neighbouring.REPLACE_ONE,
        bound=1e6,
    )
    weights = own.weights()  # and draws them
    offsets = np.arange(parties + 1) * records
    block = PartyBlock(features=rows, labels=labels, offsets=offsets)

    def integers():
        own.local(own.init(), block, None, Randomness.from_seed(1))

    def blocks():
        for begin, end in pairwise(offsets):
            turns = rows[begin:end].astype(np.float64) @ weights
            ones = np.eye(10)[labels[begin:end]]
            ones.T @ np.cos(turns), ones.T @ np.sin(turns)

    def single():
        sums = np.zeros((parties, 10, 2 * frequencies))
        for place, (row, label) in enumerate(zip(rows, labels, strict=True)):
            turns = row.astype(np.float64) @ weights
            sums[place // records, label] += np.concatenate([np.cos(turns), np.sin(turns)])

    ways = {"integers": integers, "parties": blocks, "records": single}
    taken = {name: [] for name in ways}
    for _ in range(3):  # in turn: the machine may be shared
        for name, way in ways.items():
            began = time.process_time()
            way()
            taken[name].append(time.process_time() - began)
    each = {name: 1e9 * min(all) / (len(rows) * 2 * frequencies) for name, all in taken.items()}
    times = {name: value / each["integers"] for name, value in each.items()}
    print(
        f"random features, ns each: {each['integers']:.1f} in integers, {each['parties']:.1f} by a "
        f"loop over parties in double precision ({times['parties']:.1f} times), "
        f"{each['records']:.1f} by one over records ({times['records']:.1f} times)"
    )


def main():
    """Both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.3, 1.0, 3.0])
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    speed()
    features_speed()
    print(f"| ε | {' | '.join(SHOWN)} |\n|{'---|' * (len(SHOWN) + 1)}")
    for epsilon in arguments.epsilon:
        quality(arguments.source, epsilon, arguments.seeds)


if __name__ == "__main__":
    sys.exit(main())
