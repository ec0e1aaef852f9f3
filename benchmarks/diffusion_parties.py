"""Measure whether a diffusion model keeps its quality with more parties:
`examples/mnist-diffusion.toml`.

    python benchmarks/diffusion_parties.py PATH/mnist.npz --kept benchmarks/diffusion.jsonl
        [--parties 0 1 10] [--seeds 3] [--steps 200]

6,000 images and a network of 64 units per layer, with the same ε, δ, sampling rate and steps, owned
by one party or by many in equal parts. Each run is a line in the file of `--kept`; existing lines
are not measured again. A line has the mean loss of the records under the released model. It also
has the accuracy on MNIST's test images of a logistic regression, fitted to 3,000 sampled images of
14×14 pixels. Seeds determine a run's noise, coins and draws. 0 parties means the untrained start.
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
from sklearn.linear_model import LogisticRegression

from parley.commands.sample import sample_table
from parley.server.jobs.job_file import load_job
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.engine.fast_engine import simulate

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "diffusion.py"
ROWS, EACH, RECORDS = 3000, 20, 6000


def job_of(folder, source, parties, seed, steps):
    """Return the example's job, with its smaller network in `folder`."""
    code = EXAMPLE.read_text(encoding="utf-8").replace(" 14, 1, 256, ", " 14, 1, 64, ")
    (folder / "diffusion.py").write_text(code)
    overrides = [
        *(f"data.source={source}", f"data.records={RECORDS}", f"run.seed={seed}"),
        f"data.schema={ROOT / 'examples' / 'mnist.schema.toml'}",
        f"model.kind={folder / 'diffusion.py'}:net",
        *(f"parties.count={parties}", f"parties.min-records={RECORDS // parties}"),
        *(f"algorithm.rounds={steps // EACH}", f"dp-sgd.local-steps={EACH}"),
        f"secure-aggregation.min-survivors={parties - parties // 10}",
        "dp-sgd.sampling-rate=0.1",
    ]
    return load_job(ROOT / "examples" / "mnist-diffusion.toml", overrides=overrides)


def untrained(source, seed, steps):
    """Return the loss of the records under the public start."""
    with tempfile.TemporaryDirectory() as name:
        world = load_experiment(job_of(Path(name), source, 1, seed, steps))
        network, records = world.model, world.block
        return {"loss": network.loss(network.start(), records.features, records.labels)}


def one(source, *, parties, seed, steps):
    """Return the figures of one run."""
    if not parties:
        return untrained(source, seed, steps)
    began = time.process_time()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        done = simulate(job_of(folder, source, parties, seed, steps), out=folder / "run")
        taken, noise = time.process_time() - began, done.summary.primary.noise
        model, out = f"{folder / 'diffusion.py'}:net", folder / "drawn.npz"
        sample_table(done.folder, rows=ROWS, seed=seed, out=out, own_models=(model,))
        with np.load(out) as made, np.load(source) as real:
            rows, asked = small(made["x_train"]), small(real["x_test"])
            judge = LogisticRegression(max_iter=100, tol=1e-3).fit(rows, made["y_train"])
            accuracy = judge.score(asked, real["y_test"])
    sigma = noise.scale_of_sum * (noise.shares.inflation if noise.shares else 1)
    figures = {"loss": done.summary.loss, "accuracy": accuracy, "seconds": taken}
    return figures | {"sigma_of_all_shares": sigma, "epsilon": done.summary.primary.epsilon}


def small(images):
    """Return `[n, 196]` images of 14×14, from 0 to 1."""
    blocks = images.reshape(-1, 14, 2, 14, 2).astype(np.float32)
    return blocks.mean(axis=(2, 4)).reshape(len(images), -1) / 255


def main():
    """Write a line for each case without one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--parties", type=int, nargs="+", default=[0, 1, 10])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    told = parser.parse_args()
    cases = (
        {"parties": parties, "seed": seed, "steps": told.steps}
        for seed, parties in product(range(1, told.seeds + 1), told.parties)
    )
    measured(told.kept.resolve(), cases, partial(one, told.source))


if __name__ == "__main__":
    sys.exit(main())
