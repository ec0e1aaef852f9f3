"""NaN is no signal: whatever a server chose and a record holds, a party answers within its bound.

A party that stopped where a gradient overflows would tell one bit of its records that no noise
covers. Here a server chooses θ, rates and the model, and one record is anything that rows may be.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.client.contract.ring_noise_tail import TAIL_PROBABILITY
from parley.client.data.party_block import PartyBlock
from parley.client.models.contribution_clipping import build_ball, clip_rows
from parley.client.models.row_quantization import prepare_rows
from parley.client.party.party_session import PartySession
from parley.client.party.refusal_rules import RefusalRules
from parley.privacy.accounting.rounding import to_fraction
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.sampling.random_stream import Randomness
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job
from parley.server.jobs.network_algorithms import build_network
from parley.server.planning.job_planner import build_algorithm, build_model, plan_release

P, SIZES = 16, (30, 40, 50)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(1e-6, 1e6), st.integers(1, 40))
def test_a_row_of_anything_is_in_the_ball_in_whole_numbers(seed, norm, wide):
    """No row is longer than `norm`, in rationals; short ones are kept but for the grid."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(30, wide)) * norm * 10.0 ** rng.uniform(-4, 12, (30, 1))
    odd = rng.random(rows.shape) < 0.02
    rows[odd] = rng.choice([np.nan, np.inf, 5e-324, -1.8e308, norm], odd.sum())
    rows[0] = norm / math.sqrt(wide)
    before, (ball, bits) = rows.copy(), build_ball(wide, norm)
    clip_rows(rows, norm)
    exactly = Fraction(2) ** bits
    for own, old in zip(rows.tolist(), before, strict=True):
        whole = [Fraction(x) * exactly for x in own]
        assert all(x.denominator == 1 for x in whole)
        assert (
            sum(x * x for x in whole)
            <= ball.radius.l2_squared
            <= (to_fraction(norm) * exactly) ** 2
        )
        with np.errstate(over="ignore"):
            length = np.linalg.norm(old)
        kept = old * min(1.0, norm / max(length, 1e-300)) if np.isfinite(length) else np.zeros(wide)
        assert np.abs(own - kept).max() <= norm * 2.0**-24


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(1e-3, 1e3), st.integers(1, 40))
def test_clipping_brings_two_rows_no_further_apart_but_for_its_grid(seed, norm, wide):
    """A record's guarantee is of sums that are clipped by party."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(2, 200, wide)) * norm * 10.0 ** rng.uniform(-2, 2, (200, 1))
    rows[1] = rows[0] + (rows[1] - rows[0]) * 10.0 ** rng.uniform(-9, 0, (200, 1))
    before = np.linalg.norm(rows[0] - rows[1], axis=1)
    for each in rows:
        clip_rows(each, norm)
    unit = 2.0 ** -build_ball(wide, norm)[1]
    after = np.linalg.norm(rows[0] - rows[1], axis=1)
    assert (after <= before * (1 + 1e-12) + math.sqrt(wide) * unit).all()


FEDAVG = [
    "algorithm.kind=fedavg",
    "model.kind=mlp",
    "model.hidden=[4]",
    "dp-sgd.sampling-rate=1.0",
    "dp-sgd.local-steps=2",
    "privacy.delta=1e-3",
    "privacy.epsilon=4",
]
UNITS = {
    "record": [],
    "party": ["privacy.unit=party"],
    "both": ["privacy.unit=both", "privacy.party-epsilon=4", "privacy.party-delta=1e-3"],
}
LINEAR = {
    kind: [f"model.kind={kind}", "model.intercept=false"]
    for kind in ("logistic", "huber-svm", "softmax", "ridge")
}
NETWORKS = {
    **{f"fedavg {unit}": [*FEDAVG, *more] for unit, more in UNITS.items()},
    "fedavg vmap": [*FEDAVG, "dp-sgd.per-example-method=vmap"],
    "fedavg float64": [*FEDAVG, "dp-sgd.precision=float64"],
    "fedavg fraction": [*FEDAVG, "dp-sgd.clipped-fraction-share=0.1"],
    "fedavg diverging": FEDAVG,
    "fedavg party diverging": [*FEDAVG, *UNITS["party"]],
}
IN_SHARES = {
    "logistic in shares": LINEAR["logistic"],
    "softmax in shares": LINEAR["softmax"],
    "fedavg party in shares": NETWORKS["fedavg party"],
    "fedavg both in shares": NETWORKS["fedavg both"],
}
JOBS = {
    **LINEAR,
    **IN_SHARES,
    "clipped": [*LINEAR["softmax"], "algorithm.clip-norm=0.5"],
    **NETWORKS,
}
HOSTILE = {
    "zero": np.zeros,
    "ordinary": lambda d: np.random.default_rng(0).normal(size=d),
    "float32's largest": lambda d: np.full(d, 3.4e38) * (-1.0) ** np.arange(d),
    "beyond float32": lambda d: np.full(d, 1e200) * (-1.0) ** (np.arange(d) // 3),
    "float64's largest": lambda d: np.full(d, 1.79e308) * (-1.0) ** (np.arange(d) // 5),
    "denormal": lambda d: np.full(d, 5e-324),
}
ROWS = {
    "large": [1e308] * P,
    "alternating": [1e308, -1e308] * (P // 2),
    "denormal": [5e-324] * P,
    "minus zero": [-0.0] * P,
    "one": [1.0] + [0.0] * (P - 1),
}


def world(name: str):
    """A block of parties, the algorithm and a plan that they accept."""
    job = load_job(
        overrides=[
            f"parties.count={len(SIZES)}", "run.seed=1", "algorithm.rounds=2",
            "secure-aggregation.min-survivors=1",
            # A share of noise lies on a contribution: without it, a bound is held to its digits.
            f"privacy.noise-point={'share' if name in IN_SHARES else 'server'}", *JOBS[name],
        ]
    )  # fmt: skip
    rng = np.random.default_rng(5)
    rows = prepare_rows(rng.normal(size=(sum(SIZES), P)), intercept=False)
    classes = 3 if job.model.kind == "softmax" else 2
    labels = rng.integers(0, classes, len(rows))
    federation = Federation.from_sizes(np.array(SIZES))
    if job.algorithm.kind == "fedavg":
        model = build_network(job, features=P, classes=2)
    else:
        model = build_model(job, features=P, classes=classes if classes > 2 else 0)
        if job.model.kind in ("logistic", "huber-svm"):
            labels = 2.0 * labels - 1
        if job.model.kind == "ridge":
            labels = model.loss.to_nearest_labels(rng.normal(size=len(rows)) * 1e300)
    algorithm = build_algorithm(job, model, federation)
    plan = plan_release(job, algorithm=algorithm, federation=federation, run_id="r")
    if "diverging" in name:  # a server may say one rate and bound, and mean another
        algorithm = replace(algorithm, training=replace(algorithm.training, learning_rate=1e300))
    block = PartyBlock(features=rows, labels=labels, offsets=np.cumsum([0, *SIZES]))
    return block, algorithm, plan.with_round(1)


POLICY = RefusalRules(units=frozenset(Unit))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", JOBS)
def test_no_theta_and_no_record_makes_a_party_fail(name: str) -> None:
    whole, algorithm, plan = world(name)
    bound = plan.encoding.bound * (1 + 1e-6)
    if plan.shared_guarantee is not None:
        bound += plan.compute_noise_tail(TAIL_PROBABILITY) / plan.encoding.scale
    for row in ROWS.values():
        features = whole.features.copy()
        features[0] = prepare_rows(np.array([row]), intercept=False)[0]
        block = PartyBlock(features=features, labels=whole.labels, offsets=whole.offsets)
        for parties in (block, block.take([0])):  # one alone is trained in another way
            drawn = Randomness.from_entropy()
            session = PartySession(
                block=parties, algorithm=algorithm, rules=POLICY, randomness=drawn
            )
            for made in HOSTILE.values():
                theta = made(algorithm.model.dimension)
                if name == "ridge":  # others are refused
                    theta = algorithm.model.project(theta * 1e-300)
                answer = session.answer(plan, {"theta": theta})
                assert answer.failed == ()
                assert answer.refused == {}
                values = plan.encoding.to_float(plan.encoding.decode(answer.encoded))
                assert np.abs(values).max() <= bound
