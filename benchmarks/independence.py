"""Measure how often the test of independence finds independent columns dependent, under the noise.

    python benchmarks/independence.py [--tables 2000]

It covers five tables of margins, 300 and 3,000 records, noise of deviation 2, 10 and 40 per cell,
and both noise distributions. It prints the share of sampled tables with p ≤ 0.05, and with p ≤
0.01.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np

from parley.privacy.estimation.independence_test import run_independence_test
from parley.privacy.estimation.noise_intervals import CellNoise

MARGINS = (
    ((0.5, 0.5), (0.5, 0.5)),
    ((0.9, 0.1), (0.7, 0.3)),
    ((0.97, 0.03), (0.95, 0.05)),
    ((0.5, 0.3, 0.2), (0.4, 0.3, 0.2, 0.1)),
    ((0.6, 0.2, 0.1, 0.05, 0.05), (0.4, 0.3, 0.2, 0.05, 0.05)),
)


def main() -> None:
    """Print a row per case."""
    options = argparse.ArgumentParser()
    options.add_argument("--tables", type=int, default=2000)
    tables, rng = options.parse_args().tables, np.random.default_rng(1)
    print("| margins | records | noise | p ≤ .05 | p ≤ .01 |\n|---|---|---|---|---|")
    laws = (("gaussian", 1.0), ("laplace", 0.5**0.5))
    for margins, records, (law, scale), deviation in itertools.product(
        MARGINS, (300, 3000), laws, (2, 10, 40)
    ):
        shares, noise = np.outer(*margins), CellNoise(law=law, scale=scale * deviation)
        p = []
        for _ in range(tables):
            drawn = rng.multinomial(records, shares.ravel()).reshape(shares.shape)
            p.append(
                run_independence_test(drawn + noise.draw(rng, shares.shape), noise, draws=99).p
            )
        found = " | ".join(f"{np.mean(np.array(p) <= level):.4f}" for level in (0.05, 0.01))
        print(f"| {margins} | {records} | {law} {deviation} | {found} |")


if __name__ == "__main__":
    main()
