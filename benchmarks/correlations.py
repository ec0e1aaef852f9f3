"""Measure the coverage of correlation and regression intervals, and the level of their p-values.

    python benchmarks/correlations.py [--draws 400] [--heavy-tails]

Each draw has new records: three numbers and an outcome, all normal (with --heavy-tails exponential,
the outcome's errors too), and a category of three. The outcome depends on the first number and on
the category; the third number is independent of all. One release has K = 5 columns, replace-one,
with Gaussian noise at δ = 1e-6 or Laplace noise. Coverage is of the whole population's regression
coefficients and correlations, over those that are released. Level is how often p < 0.05 for the
third number's coefficient, and for its correlations with the others.
"""

from __future__ import annotations

import argparse

import numpy as np

from parley.client.data.query_party_block import RawPartyBlock
from parley.client.data.schema import Schema
from parley.client.queries.base import QueryFacts
from parley.client.queries.correlations import CorrelationsQuery
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.calibration.noise_calibration import compute_gaussian_sigma
from parley.privacy.estimation.noise_intervals import CellNoise
from parley.privacy.sensitivity.bounded_sets import compute_sensitivity

SCHEMA = Schema.from_toml(
    """
[columns]
age = { kind = "numeric", range = [-85, 85] }
dose = { kind = "numeric", range = [-85, 85] }
noise = { kind = "numeric", range = [-85, 85] }
arm = { kind = "categorical", categories = ["a", "b", "c"], missing = "a" }
cost = { kind = "numeric", range = [-110, 110] }
y = { kind = "label", positive = "yes", negative = "no" }
"""
)
ASKED = CorrelationsQuery(of=("age", "dose", "noise", "arm", "cost"), regressions=("cost ~ .",))
WEIGHT = 4096


def drawn(records: int, rng: np.random.Generator, heavy: bool) -> RawPartyBlock:
    one = (
        (lambda: rng.exponential(size=records) - 1) if heavy else (lambda: rng.normal(size=records))
    )
    shared = one()
    age, dose = 20 * shared + 20 * one(), 20 * shared + 20 * one()
    arm = rng.choice(3, records, p=[0.5, 0.3, 0.2])
    found = {
        "age": age,
        "dose": dose,
        "noise": 30 * one(),
        "arm": arm,
        "cost": 0.6 * age + 12 * (arm == 1) + 30 * one(),
    }
    ends = {name: 110 if name == "cost" else 85 for name in found}
    columns = {name: np.clip(part, -ends[name], ends[name]) for name, part in found.items()}
    return RawPartyBlock(schema=SCHEMA, columns=columns, offsets=np.array([0, records]))


def noise_of(law: str, epsilon: float) -> CellNoise:
    moved = compute_sensitivity(ASKED.build_record_set(SCHEMA, WEIGHT), Neighbouring.REPLACE_ONE)
    if law == "laplace":
        return CellNoise(law=law, scale=moved.l1 / epsilon, sampling=True)
    sigma = compute_gaussian_sigma(
        "exact", sensitivity=moved.compute_l2(), epsilon=epsilon, delta=1e-6, rounds=1
    )
    return CellNoise(law=law, scale=sigma, sampling=True)


def answered(block: RawPartyBlock, noise: CellNoise, rng: np.random.Generator | None):
    (vector,) = ASKED.compute_party_vectors(block, WEIGHT)
    if rng is not None:
        vector = vector + np.rint(noise.draw(rng, vector.shape)).astype(np.int64)
    facts = QueryFacts(
        schema=SCHEMA, neighbouring=Neighbouring.REPLACE_ONE, records=len(block.columns["age"])
    )
    return (read(vector, WEIGHT, noise, facts) for read in (ASKED.answer, ASKED.derive_tables))


def truth(heavy: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a population's coefficients and correlations, and which of those have the third
    number.
    """
    exact = CellNoise(law="laplace", scale=1.0)
    table, beside = answered(drawn(2 * 10**6, np.random.default_rng(2), heavy), exact, None)
    pairs = zip(table["column"], table["with"], strict=True)
    free = np.array(["noise" in pair for pair in pairs])
    coefficients = np.asarray(beside["cost ~ ."]["coefficient"]).copy()
    coefficients[3] = 0.0
    return coefficients, np.where(free, 0.0, np.asarray(table["value"])), free


def measured(records: int, law: str, epsilon: float, draws: int, heavy: bool, known) -> str:
    rng, noise = np.random.default_rng(1), noise_of(law, epsilon)
    slopes, true, free = known
    held, level, correlated, told, wide, width = [], [], [], [], [], []
    for _ in range(draws):
        table, beside = answered(drawn(records, rng, heavy), noise, rng)
        fitted = {name: np.asarray(part) for name, part in beside["cost ~ ."].items()}
        known = np.isfinite(fitted["coefficient"])
        told.append(known[1])
        held += ((fitted["from"] <= slopes) & (fitted["to"] >= slopes))[known].tolist()
        level += (fitted["p"][3:4] < 0.05)[known[3:4]].tolist()
        width += (fitted["to"] - fitted["from"])[1:2][known[1:2]].tolist()
        value, low, high, p = (np.asarray(table[name]) for name in ("value", "low", "high", "p"))
        known = np.isfinite(value)
        correlated += ((low <= true) & (true <= high))[known].tolist()
        wide += (p < 0.05)[known & free].tolist()
    return (
        f"| {records:,} | {epsilon:g}, {law} | {np.mean(told):.0%} | {_share(held)} | "
        f"{_share(level)} | {np.median(width or [np.nan]) / 2:.2g} | {_share(correlated)} | "
        f"{_share(wide)} |"
    )


def _share(found: list[bool]) -> str:
    return f"{np.mean(found):.1%}" if found else "–"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--heavy-tails", action="store_true")
    given = parser.parse_args()
    print("| records | ε, noise | told | coefficients | level | ± | correlations | level |")
    print("|---|---|---|---|---|---|---|---|")
    population = truth(given.heavy_tails)
    for records, epsilon in ((2000, 1.0), (5000, 0.5), (5000, 1.0), (20_000, 1.0), (50_000, 1.0)):
        for law in ("gaussian", "laplace"):
            how = (records, law, epsilon, given.draws, given.heavy_tails)
            print(measured(*how, population), flush=True)
