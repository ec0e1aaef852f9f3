"""Measure the quality and speed of synthetic tables: `examples/adult-synthetic.toml`.

    python benchmarks/synthetic.py quality PATH/adult.csv.gz --kept benchmarks/synthetic.jsonl
        [--kind marginals random-features] [--epsilon 0.3 1 3] [--seeds 3]
    python benchmarks/synthetic.py speed

`quality` adds a line per run to the file of `--kept`, and measures no run again. The noise is
seeded for repeatability. benchmarks/synthetic_table.py creates the table of docs/synthetic.md from
the lines.
"""

import argparse
import sys
import tempfile
import time
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from kept_lines import measured

from parley.client.algorithms.kernel_mean_embedding import RandomFeatures
from parley.client.algorithms.pair_tables import PairTables, list_pairs
from parley.client.data.party_block import PartyBlock
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.sampling.random_stream import Randomness
from parley.server.jobs.job_file import load_job
from parley.server.synthetic.mixture_generator import Mixture, ReleasedTables, fit
from parley.simulations.engine.fast_engine import simulate

JOB = Path(__file__).parents[1] / "examples" / "adult-synthetic.toml"


def one(source, *, method, epsilon, seed):
    """Return the figures of one run, by the names of its report."""
    overrides = [
        f"data.source={source}",
        f"data.seed={seed}",
        f"privacy.epsilon={epsilon}",
        f"algorithm.kind={method}",
        f"algorithm.seed={seed}",
        f"run.seed={seed}",
    ]
    if method == "random-features":
        overrides.append("algorithm.steps=1000")
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        told = simulate(load_job(JOB, overrides=overrides), out=Path(folder) / "run").summary
    figures = {
        name: value
        for name, value in told.synthetic.model_dump().items()
        if name.endswith(("_auc", "tv1", "tv2", "_accuracy")) and value is not None
    }
    return figures | {"seconds": time.process_time() - began}


def speed():
    """Print the CPU seconds of counting, fitting and sampling, on tables of Adult's size."""
    sizes = (16, 9, 16, 15, 7, 15, 6, 5, 2, 16, 16, 16, 42, 2)
    counted = PairTables(
        sizes=sizes,
        pairs=list_pairs("all", len(sizes)),
        neighbouring=Neighbouring.REPLACE_ONE,
        bound=1e6,
    )
    rng = np.random.default_rng(0)
    records = np.stack([rng.integers(0, size, 24_129) for size in sizes], axis=1)
    parties = np.array_split(records, 30)
    began = time.process_time()
    values = sum(counted.count_cells(own) for own in parties)
    counting = time.process_time() - began
    began = time.process_time()
    tables = ReleasedTables(sizes=sizes, pairs=counted.pairs, values=values)
    mixture = fit(tables, components=300, steps=400, seed=0)
    fitting = time.process_time() - began
    began = time.process_time()
    Mixture.from_shares(sizes, mixture.shares).sample(100_000, rng)
    drawing = time.process_time() - began
    print(
        f"30 parties counted in {counting:.3f} s, fitted in {fitting:.2f} s, "
        f"100,000 rows drawn in {drawing:.2f} s"
    )


def features_speed(parties=30, records=1000, wide=100, frequencies=5000):
    """Print the CPU seconds of all parties' random features, the minimum of three."""
    rng = np.random.default_rng(0)
    rows = (rng.uniform(-1, 1, (parties * records, wide)) / wide**0.5).astype(np.float32)
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
    own.compute_weights()  # draws them
    offsets = np.arange(parties + 1) * records
    block = PartyBlock(features=rows, labels=rng.integers(0, 10, len(rows)), offsets=offsets)
    taken = []
    for _ in range(3):
        began = time.process_time()
        own.local(own.init(), block, None, Randomness.from_seed(1))
        taken.append(time.process_time() - began)
    each = 1e9 * min(taken) / (len(rows) * 2 * frequencies)
    print(f"random features of all parties: {min(taken):.1f} s, {each:.1f} ns a feature")


def main():
    """Run one of the benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ways = parser.add_subparsers(dest="way", required=True)
    ways.add_parser("speed")
    figures = ways.add_parser("quality")
    figures.add_argument("source")
    figures.add_argument("--kept", type=Path, required=True)
    figures.add_argument("--kind", nargs="+", default=["marginals", "random-features"])
    figures.add_argument("--epsilon", type=float, nargs="+", default=[0.3, 1.0, 3.0])
    figures.add_argument("--seeds", type=int, default=3)
    told = parser.parse_args()
    if told.way == "speed":
        speed()
        features_speed()
    else:
        cases = (
            {"method": kind, "epsilon": epsilon, "seed": seed}
            for seed, kind, epsilon in product(range(1, told.seeds + 1), told.kind, told.epsilon)
        )
        measured(told.kept.resolve(), cases, partial(one, told.source))


if __name__ == "__main__":
    sys.exit(main())
