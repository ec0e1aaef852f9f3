"""Measure the error of a real run's noisy metrics, from noisy counts of held-out records.

    python benchmarks/judging.py adult.csv.gz [--draws 50]

Adult among 30 parties (examples/adult.toml), with 6,032 records held out. The model is trained
once, and the release after its rounds is drawn repeatedly. Its plan, its counts and its noise
shares are the product's own. Errors of the AUC are relative to the one of ungrouped scores.
Intervals are for the same records in the same intervals of probability.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parley.client.data.party_block import PartyBlock
from parley.privacy.sampling.random_stream import NoiseStream, Randomness
from parley.server.jobs.job_file import load_job
from parley.server.planning.evaluation_planner import build_held_out_counts, plan_evaluation
from parley.server.planning.job_planner import build_algorithm
from parley.server.records.evaluation_summary import estimate_count_noise
from parley.server.records.histogram_evaluation import evaluate_counts
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.data.simulated_experiment import Experiment
from parley.simulations.engine.fast_engine import simulate
from parley.simulations.metrics.evaluation import evaluate_predictions

_FIGURES = ("auc", "accuracy", "recall", "precision")


def row(
    source: str, world: Experiment, theta: NDArray[np.float64], *, epsilon: float, draws: int
) -> str:
    """Return a row for one ε: intervals, error and bias of the AUC, half-widths, coverage."""
    job = _job(source, f"evaluation.epsilon={epsilon}").resolve_auto(
        world.federation, world.data.classes
    )
    counts = build_held_out_counts(
        job, build_algorithm(job, world.model, world.federation), world.federation
    )
    plan = plan_evaluation(job, counts, parties=job.parties.count, run_id="benchmark")
    ends = np.array([0, len(world.test_labels)])
    whole = PartyBlock(features=world.test_features, labels=world.test_labels, offsets=ends)
    given = counts.local({"theta": theta}, whole, plan, Randomness.from_seed(0)).values[0]
    known = {"labels": world.data.label_names, "edges": counts.edges}
    exact = evaluate_counts(given.reshape(-1, 2), within=0.0, **known)
    within = estimate_count_noise(plan, plan.parties)
    errors, halves, hits = [], [], np.zeros(len(_FIGURES))
    for draw in range(draws):
        stream = NoiseStream.from_seed(draw, "benchmark")
        noise = (
            plan.encoding.decode(plan.add_central_noise(plan.parties, stream)) / plan.encoding.scale
        )
        found = evaluate_counts((given + noise).reshape(-1, 2), within=within, **known)
        errors.append(found.auc - evaluate_predictions(world.predict_held_out(theta)).auc)
        halves.append([np.ptp(found.within[name]) / 2 for name in _FIGURES])
        hits += [
            low - 1e-12 <= getattr(exact, name) <= high + 1e-12
            for name, (low, high) in ((name, found.within[name]) for name in _FIGURES)
        ]
    rms, bias = math.sqrt(np.square(errors).mean()), np.mean(errors)
    widths = " | ".join(f"± {half:.3f}" for half in np.mean(halves, axis=0))
    held = ", ".join(f"{share:.2f}" for share in hits / draws)
    return (
        f"| {epsilon:g} | {len(counts.edges) + 1} | {rms:.4f} | {bias:+.4f} | {widths} | {held} |"
    )


def _job(source: str, *more: str):
    keys = ("run.seed=1", "secure-aggregation.masked-check=false", "privacy.delta=1e-5")
    asked = ("evaluation.kind=federated", *more) if more else ()
    return load_job("examples/adult.toml", overrides=[f"data.source={source}", *keys, *asked])


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("source")
    options.add_argument("--draws", type=int, default=50)
    given = options.parse_args()
    world = load_experiment(_job(given.source))
    with tempfile.TemporaryDirectory() as folder:
        theta = simulate(_job(given.source), out=Path(folder)).theta
    print("| ε | intervals | rms error of the AUC | bias | AUC | accuracy | recall | precision |")
    for epsilon in (1.0, 0.5, 0.1):
        print(row(given.source, world, theta, epsilon=epsilon, draws=given.draws))


if __name__ == "__main__":
    main()
