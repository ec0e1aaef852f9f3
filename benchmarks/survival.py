"""Measure a survival curve's error, the coverage of its bands, and the level of its log-rank test.

    python benchmarks/survival.py [--draws 2000]

Each draw has new records: exponential times, censored uniformly between 2 and 14 units and at 10,
in 20 intervals, with Laplace noise of scale 2/ε (replace-one). The error is the largest at any
interval's end, compared with the Kaplan–Meier curve of the same records with exact times, for one
group, mean of 50. Bands, level and power (a hazard ratio of 1.3) are for two groups of equal size,
over all draws and intervals.
"""

from __future__ import annotations

import argparse

import numpy as np

from parley.client.data.query_party_block import RawPartyBlock
from parley.client.data.schema import Schema
from parley.client.queries.base import QueryFacts
from parley.client.queries.survival import Survival
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.noise_intervals import CellNoise

SCHEMA = Schema.from_toml(
    """
[columns]
time = { kind = "numeric", range = [0, 10], outside = "refuse" }
died = { kind = "numeric", range = [0, 1] }
arm = { kind = "categorical", categories = ["a", "b"], missing = "a" }
y = { kind = "label", positive = "yes", negative = "no" }
"""
)
HAZARD, ENDS = 0.12, np.linspace(0.5, 10, 20)


def drawn(records: int, ratio: float, rng: np.random.Generator) -> RawPartyBlock:
    arm = rng.integers(0, 2, records)
    died = rng.exponential(1 / (HAZARD * np.where(arm, ratio, 1.0)))
    seen = np.minimum(rng.uniform(2, 14, records), 10)
    columns = {"time": np.minimum(died, seen), "died": (died <= seen) * 1.0, "arm": arm}
    return RawPartyBlock(schema=SCHEMA, columns=columns, offsets=np.array([0, records]))


def told(query: Survival, block: RawPartyBlock, epsilon: float, rng: np.random.Generator):
    """Return `answer` and `derive_tables` of one release, with intervals of the noise and of
    both.
    """
    (vector,) = query.compute_party_vectors(block, 1)
    stop = -np.expm1(-epsilon / 2)
    noisy = vector + rng.geometric(stop, len(vector)) - rng.geometric(stop, len(vector))
    facts = QueryFacts(
        schema=SCHEMA, neighbouring=Neighbouring.REPLACE_ONE, records=len(block.columns["time"])
    )
    both = [CellNoise(law="laplace", scale=2 / epsilon, sampling=which) for which in (False, True)]
    tables = [query.answer(noisy, 1, noise, facts) for noise in both]
    without = query.answer(vector, 1, CellNoise(law="laplace", scale=0.01), facts)["value"]
    return tables, query.derive_tables(noisy, 1, both[0], facts), np.asarray(without)


def exact(block: RawPartyBlock) -> np.ndarray:
    """Return `[20]` Kaplan–Meier estimates of exact times, which are all distinct."""
    order = np.argsort(block.columns["time"])
    left = np.arange(len(order), 0, -1)
    curve = np.cumprod(1 - block.columns["died"][order] / left)
    places = np.searchsorted(block.columns["time"][order], ENDS, side="right") - 1
    return np.where(places < 0, 1.0, curve[places])


def measured(records: int, epsilon: float, draws: int) -> str:
    rng, alone = np.random.default_rng(1), Survival(column="time", event="died", bins=20)
    errors = []
    for _ in range(50):
        block = drawn(records, 1.0, rng)
        value = np.asarray(told(alone, block, epsilon, rng)[0][0]["value"])
        errors.append(np.nanmax(np.abs(value - exact(block))))
    by_arm = Survival(column="time", event="died", bins=20, by=("arm",))
    true, held, known, p = np.tile(np.exp(-HAZARD * ENDS), 2), [], [], []
    for _ in range(draws):
        tables, beside, without = told(by_arm, drawn(records, 1.0, rng), epsilon, rng)
        known.append(np.isfinite(tables[0]["value"]))
        held.append(
            [
                (t["low"] <= s) & (s <= t["high"])
                for t, s in zip(tables, (without, true), strict=True)
            ]
        )
        p.append(beside["log-rank test"]["p"][0])
    found = [
        told(by_arm, drawn(records, 1.3, rng), epsilon, rng)[1]["log-rank test"]["p"][0]
        for _ in range(draws)
    ]
    share = (np.array(held) * np.array(known)[:, None]).sum(axis=(0, 2)) / np.sum(known)
    return (
        f"| {records:,} | {epsilon:g} | {np.mean(errors):.4f} | {share[0]:.1%} | {share[1]:.1%} | "
        f"{np.mean(known):.0%} | {np.nanmean(np.array(p) < 0.05):.1%} | "
        f"{np.nanmean(np.array(found) < 0.05):.0%} |"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    given = parser.parse_args()
    print("| records | ε | largest error | noise band | both | told | level | power |")
    print("|---|---|---|---|---|---|---|---|")
    for records, epsilon in ((5000, 1.0), (5000, 0.5), (1000, 1.0), (1000, 0.5), (300, 1.0)):
        print(measured(records, epsilon, given.draws), flush=True)
