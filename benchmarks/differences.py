"""Measure how often the test of two means reports a difference where there is none, under the
noise.

    python benchmarks/differences.py [--draws 1500]

It covers four kinds of values in [−1, 1], three pairs of groups, noise of deviation 2, 10 and 40 on
a count and √3 times that on a sum (as in `variance`), and both noise distributions. It prints the
share of draws with p ≤ 0.05, among those in which both groups exceed their noise.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np

from parley.privacy.estimation.mean_differences import compute_differences
from parley.privacy.estimation.noise_intervals import CellNoise

VALUES = {
    "even": lambda rng, n: rng.uniform(-1, 1, n),
    "skew": lambda rng, n: 2 * rng.beta(1, 8, n) - 1,
    "narrow": lambda rng, n: np.clip(rng.normal(0.3, 0.05, n), -1, 1),
    "two values": lambda rng, n: rng.choice([-1.0, 1.0], n, p=[0.9, 0.1]),
}
LAWS = (("gaussian", 1.0), ("laplace", 0.5**0.5))


def main() -> None:
    """Print a row per case."""
    options = argparse.ArgumentParser()
    options.add_argument("--draws", type=int, default=1500)
    draws, rng = options.parse_args().draws, np.random.default_rng(1)
    print("| values | records | noise | known | p ≤ .05 |\n|---|---|---|---|---|")
    for (kind, drawn), sizes, deviation, (law, scale) in itertools.product(
        VALUES.items(), ((100, 100), (1000, 300), (5000, 5000)), (2, 10, 40), LAWS
    ):
        noise, p = CellNoise(law=law, scale=scale * deviation), []
        for _ in range(draws):
            groups = [drawn(rng, size) for size in sizes]
            sums = np.array([[len(t), t.sum(), (2 * t * t - 1).sum()] for t in groups]).T
            added = noise.draw(rng, sums.shape) * np.array([[1], [3**0.5], [3**0.5]])
            scales = {"count_noise": deviation, "sum_noise": 3**0.5 * deviation}
            p.append(compute_differences(*(sums + added), **scales)[0].p)
        known = ~np.isnan(p)
        found = (np.array(p)[known] <= 0.05).mean()
        print(f"| {kind} | {sizes} | {law} {deviation} | {known.mean():.2f} | {found:.4f} |")


if __name__ == "__main__":
    main()
