"""Measure the coverage of regression's 95 % intervals and the level of its p-values, by simulation.

    python benchmarks/regression.py --draws 400

Records have three numeric and two categorical covariates; the last has no effect. Each draw has new
records and new noise, Gaussian under replace-one at δ = 1e-6, in the four steps of a session.
Counts are overdispersed (variance μ + μ²/2). An interval holds if it contains the coefficient of
the records' distribution, so noise and sampling count together.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parley.client.data.query_party_block import RawPartyBlock
from parley.client.data.schema import Schema
from parley.client.queries.base import AnsweredQuery, QueryFacts
from parley.client.queries.regression.regression_query import SHARES, RegressionQuery
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.calibration.inverse_curves import compute_gaussian_mu
from parley.privacy.estimation.noise_intervals import CellNoise
from parley.privacy.sensitivity.bounded_sets import compute_sensitivity

SCHEMA = Schema.from_toml(
    """
[columns]
a = { kind = "numeric", range = [-1, 1] }
b = { kind = "numeric", range = [-1, 1] }
c = { kind = "numeric", range = [-1, 1] }
d = { kind = "categorical", categories = ["no", "yes"], missing = "no" }
e = { kind = "categorical", categories = ["no", "yes"], missing = "no" }
time = { kind = "numeric", range = [0, 1], outside = "refuse" }
count = { kind = "numeric", range = [0, 100] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)
OF = ("a", "b", "c", "d", "e")
BETA = np.array([1.0, -0.5, 0.3, 0.7, 0.0])
DELTA, WEIGHT = 1e-6, 4096
REPLACED = Neighbouring.REPLACE_ONE
YES, NO = 0, 1
"""Codes of `sick`."""

Columns = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Case:
    """One family, with records that follow it."""

    query: RegressionQuery
    drawn: Callable[[np.random.Generator, NDArray[np.float64]], Columns]
    records: int
    epsilon: float
    effect: float = 1.0


def sick(base: float) -> Callable[[np.random.Generator, NDArray[np.float64]], Columns]:
    """Return a generator of events with this log odds without effects."""

    def drawn(rng: np.random.Generator, x: NDArray[np.float64]) -> Columns:
        chance = 1 / (1 + np.exp(-(base + x @ BETA)))
        return {"sick": np.where(rng.random(len(x)) < chance, YES, NO)}

    return drawn


def counted(rng: np.random.Generator, x: NDArray[np.float64]) -> Columns:
    """Draw counts, with mean 0.8 without effects."""
    mean = 0.8 * np.exp(0.6 * x @ BETA) * rng.gamma(2, 0.5, len(x))
    return {"count": rng.poisson(mean).astype(np.float64)}


def timed(rng: np.random.Generator, x: NDArray[np.float64]) -> Columns:
    """Draw exponential times with hazard ½ without effects; half are censored before the end."""
    times = rng.exponential(1, len(x)) / (0.5 * np.exp(x @ BETA))
    ends = np.minimum(rng.uniform(0.3, 1.5, len(x)), 1)
    happened = np.where(times <= ends, YES, NO)
    return {"time": np.minimum(times, ends), "sick": happened}


LOGISTIC = RegressionQuery(column="sick", of=OF, family="logistic", occurred="yes")
POISSON = RegressionQuery(column="count", of=OF, family="poisson", cap=10.0)
NEGATIVE = RegressionQuery(
    column="count", of=OF, family="negative-binomial", cap=10.0, dispersion=0.5
)
HAZARDS = RegressionQuery(
    column="time", of=OF, family="hazards", event="sick", occurred="yes", bins=10
)
CASES = (
    Case(LOGISTIC, sick(-0.5), 10_000, 1.0),
    Case(LOGISTIC, sick(-0.5), 20_000, 1.0),
    Case(POISSON, counted, 20_000, 2.0, 0.6),
    Case(NEGATIVE, counted, 20_000, 4.0, 0.6),
    Case(HAZARDS, timed, 10_000, 1.0),
)


def block_of(case: Case, rng: np.random.Generator) -> RawPartyBlock:
    """Generate new records."""
    x = np.clip(rng.normal(0, 0.35, (case.records, 5)), -1, 1)
    x[:, 3:] = rng.random((case.records, 2)) < 0.4
    columns: Columns = {name: x[:, at] for at, name in enumerate(OF[:3])}
    columns |= {name: x[:, 3 + at].astype(np.intp) for at, name in enumerate(OF[3:])}
    columns |= case.drawn(rng, x)
    return RawPartyBlock(schema=SCHEMA, columns=columns, offsets=np.array([0, case.records]))


def table_of(case: Case, rng: np.random.Generator) -> dict[str, NDArray[np.float64]]:
    """Return the answer of four steps."""
    block, query, steps = block_of(case, rng), case.query, list[AnsweredQuery]()
    mu = compute_gaussian_mu(case.epsilon, DELTA)
    for share in SHARES:
        total = sum(query.compute_party_vectors(block, WEIGHT), np.int64(0))
        scale = compute_sensitivity(
            query.build_record_set(SCHEMA, WEIGHT), REPLACED
        ).compute_l2() / (mu * math.sqrt(share / 100))
        noise = CellNoise(law="gaussian", scale=scale, sampling=True)
        noisy = total + np.rint(rng.normal(0, scale, total.shape)).astype(np.int64)
        steps.append(AnsweredQuery(query=query, noisy=noisy, weight=WEIGHT, noise=noise))
        if len(steps) < len(SHARES):
            query = query.build_next_step(steps, SCHEMA)
    facts = QueryFacts(schema=SCHEMA, neighbouring=REPLACED, records=case.records)
    found = query.answer(steps[-1].noisy, WEIGHT, steps[-1].noise, facts)
    parts = ("value", "low", "high", "p")
    return {name: np.asarray(found[name], dtype=np.float64) for name in parts}


def main() -> None:
    """Print a row per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=400)
    draws = parser.parse_args().draws
    print("| family | records | ε | told | interval holds | p < .05 of no effect | half-width |")
    print("|---|---|---|---|---|---|---|")
    for case in CASES:
        held, level, widths = [], [], []
        for seed in range(draws):
            table = table_of(case, np.random.default_rng(seed))
            if np.isnan(table["value"]).any():
                continue
            truth = case.effect * BETA
            held.append((table["low"] <= truth) & (truth <= table["high"]))
            level.append(table["p"][-1] < 0.05)
            widths.append((table["high"] - table["low"]) / 2)
        print(
            f"| {case.query.family} | {case.records:,} | {case.epsilon:g} | "
            f"{100 * len(held) / draws:.0f}% | {100 * np.mean(held):.1f}% | "
            f"{100 * np.mean(level):.1f}% | "
            f"{', '.join(f'{each:.2f}' for each in np.median(widths, axis=0))} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
