"""Gradient perturbation under add-or-remove-one: what a record moves, and what is refused."""

import numpy as np
import pytest

from parley.client.algorithms.base import PublicFacts
from parley.client.algorithms.gradient_perturbation import GradientPerturbation
from parley.client.data.party_block import PartyBlock
from parley.client.models.integer_gradients import MAX_RECORDS
from parley.client.models.linear_models import LinearModel
from parley.client.models.logistic_loss import LogisticLoss
from parley.client.models.row_quantization import prepare_rows
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.sampling.random_stream import Randomness
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.planning.job_planner import build_algorithm, build_model, plan_release

FEDERATION = Federation(parties=4, min_records=500, total_records=2000, max_records=500)


def made(*overrides):
    job = load_job(
        overrides=[
            "model.kind=softmax",
            "parties.count=4",
            "parties.min-records=500",
            "privacy.neighbouring=add-or-remove-one",
            "algorithm.clip-norm=0.25",
            "algorithm.rounds=10",
            *overrides,
        ]
    )
    model = build_model(job, features=7, classes=3)
    algorithm = build_algorithm(job, model, FEDERATION)
    return algorithm, plan_release(job, algorithm=algorithm, federation=FEDERATION)


def block_of(rows, labels):
    return PartyBlock(features=rows, labels=labels, offsets=np.array([0, len(rows)]))


def contribution(algorithm, plan, theta, rows, labels):
    state = {**algorithm.init(), "theta": theta}
    return algorithm.local(state, block_of(rows, labels), plan, Randomness.from_seed(1)).values[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", [0.0, 3.0, 1e6, 1e200])
def test_the_measured_sensitivity_is_the_claimed_one_wherever_the_record_stands(dtype, length):
    """1,300 records; the one that goes moves those behind it."""
    algorithm, plan = made()
    claim = algorithm.claim(FEDERATION.to_public_facts("uniform"))
    assert claim.sensitivity == pytest.approx(0.25 / 500, rel=1e-5)
    assert claim.sensitivity <= 0.25 / 500
    rng = np.random.default_rng(2)
    rows = prepare_rows(rng.normal(size=(1300, 7)).astype(dtype) * 9, intercept=True)
    labels = rng.integers(0, 3, len(rows))
    theta = rng.normal(size=algorithm.dimension)
    theta *= length / np.linalg.norm(theta)
    whole = contribution(algorithm, plan, theta, rows, labels)
    largest = 0.0
    for gone in (0, 7, 1023, len(rows) - 1):
        kept = np.delete(np.arange(len(rows)), gone)
        less = contribution(algorithm, plan, theta, rows[kept], labels[kept])
        largest = max(largest, float(np.linalg.norm(whole - less)))
    assert largest <= claim.covered_sensitivity
    if length < 10:  # unsure of every record: each gradient is clipped
        assert largest >= 0.999 * claim.sensitivity


def test_half_the_noise_of_replace_one():
    plans = [made(*extra)[1] for extra in ((), ("privacy.neighbouring=replace-one",))]
    ours, theirs = (plan.primary.mechanism.scale / plan.encoding.scale for plan in plans)
    assert ours == pytest.approx(theirs / 2, rel=1e-3)


def test_a_partys_own_number_of_records_changes_nothing_that_it_claims():
    algorithm, plan = made()
    facts = [
        PublicFacts(
            parties=4, min_records=500, total_records=2000, max_records=n, weights="uniform"
        )
        for n in (1, 500, 10**6, MAX_RECORDS)
    ]
    assert len({algorithm.claim(each) for each in facts}) == 1
    with pytest.raises(ValueError, match=f"at most {MAX_RECORDS}"):
        algorithm.claim(
            PublicFacts(
                parties=4,
                min_records=500,
                total_records=2000,
                max_records=MAX_RECORDS + 1,
                weights="uniform",
            )
        )
    many = np.tile(np.eye(1, 8), (9000, 1))
    given = contribution(algorithm, plan, np.zeros(24), many, np.zeros(9000, int))
    assert np.abs(given).max() == algorithm.bound  # 18 times n: clamped


def test_nesterovs_step_looks_ahead_by_the_momentum():
    steps = {}
    for nesterov in (False, True):
        algorithm = GradientPerturbation(
            model=LinearModel(loss=LogisticLoss(), features=1),
            lambda_=0.5,
            lipschitz=1.0,
            weights="uniform",
            rounds=4,
            learning_rate=0.1,
            momentum=0.9,
            average=False,
            nesterov=nesterov,
        )
        state = algorithm.init()
        for average in (1.0, -2.0):
            state = algorithm.update(state, np.array([average]))
        steps[nesterov] = float(algorithm.model_of(state)[0])
    # v = 1, θ = −.1; then g = −2 − .05, v = .9 − 2.05.
    assert steps[False] == pytest.approx(-0.1 + 0.1 * 1.15)
    # θ = −.19; g = −2 − .095, v = .9 − 2.095; the step is g + .9 v.
    assert steps[True] == pytest.approx(-0.19 + 0.1 * (2.095 + 0.9 * 1.195))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["parties.min-records=auto"], "parties.min-records, a public number"),
        (["parties.weights=size"], "weights = 'uniform'"),
        (["algorithm.nesterov=true", "algorithm.momentum=0"], "algorithm.momentum > 0"),
        (["algorithm.kind=output-perturbation", "algorithm.clip-norm=auto"], "neighbouring"),
    ],
)
def test_a_job_that_cannot_be_private_so_is_refused(overrides, said):
    with pytest.raises(JobError, match=said):
        made(*overrides)


def test_the_relation_is_part_of_the_task():
    algorithm, _ = made()
    assert algorithm.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE
    with pytest.raises(ValueError, match="sizes are private"):
        GradientPerturbation(**{**vars(algorithm), "weights": "size"})
