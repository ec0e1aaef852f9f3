import math
from dataclasses import replace

import numpy as np
import pytest
from plain_gradients import plain_gradients
from plans import with_primary

from parley.client.algorithms.task_codec import decode_task, describe_task
from parley.client.contract.plan_decoding import decode_guarantee
from parley.client.contract.refusals import Declined, Reason
from parley.client.data.party_block import PartyBlock
from parley.client.party.plan_verification import _check_covers
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.threat_model import NOISE_POINTS, Adversary
from parley.privacy.mechanisms.objective_noise import ObjectivePerturbation, compute_objective_noise
from parley.privacy.sampling.random_stream import Randomness
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.planning.job_planner import build_algorithm, build_model, plan_release

PARTIES, RECORDS, FEATURES = 400, 20, 3
FEDERATION = Federation(
    parties=PARTIES, min_records=RECORDS, total_records=PARTIES * RECORDS, max_records=RECORDS
)


def made(*overrides):
    job = load_job(
        overrides=[
            "algorithm.kind=objective-perturbation",
            "privacy.noise-point=party",
            "privacy.epsilon=2",
            f"parties.count={PARTIES}",
            *overrides,
        ]
    )
    algorithm = build_algorithm(job, build_model(job, features=FEATURES - 1, classes=2), FEDERATION)
    return algorithm, plan_release(job, algorithm=algorithm, federation=FEDERATION)


def block_of(parties, records, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(parties * records, FEATURES))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return PartyBlock(
        features=rows,
        labels=rng.choice([-1.0, 1.0], size=len(rows)),
        offsets=np.arange(parties + 1) * records,
    )


def test_known_answers():
    few = compute_objective_noise(epsilon=0.5, records=50, lambda_=0.001, curvature=0.25)
    assert few.log_term == pytest.approx(3.58352, abs=1e-5)
    assert few.regularisation == pytest.approx(0.0365521, abs=1e-7)
    assert few.epsilon == pytest.approx(0.25)
    many = compute_objective_noise(epsilon=0.5, records=50_000, lambda_=0.001, curvature=0.25)
    assert many.log_term == pytest.approx(0.00997508, abs=1e-8)
    assert (many.epsilon, many.regularisation) == (pytest.approx(0.490025, abs=1e-6), 0)


@pytest.mark.parametrize(("epsilon", "lambda_"), [(0.5, 0.1), (0.5, 1e-3), (3.0, 0.01)])
def test_the_density_of_an_optimum_changes_by_no_more_than_is_charged(epsilon, lambda_):
    """At any θ: that of b, |b(θ; D)| against |b(θ; D′)|, and the Jacobian's determinant."""
    algorithm, _ = made(f"privacy.epsilon={epsilon}", f"model.lambda={lambda_}")
    noise = algorithm.compute_objective_noise(RECORDS)
    convexity = lambda_ + noise.regularisation
    rng, worst = np.random.default_rng(1), 0.0
    for trial in range(300):
        block = block_of(1, RECORDS, seed=trial)
        rows, labels = block.features.copy(), block.labels.copy()
        rows[0], labels[0] = -rows[0], labels[0]
        other = PartyBlock(features=rows, labels=labels, offsets=block.offsets)
        theta = rng.normal(size=FEATURES) * rng.choice([0.1, 1, 30])
        logs = []
        for own in (block, other):
            margins = own.features @ theta
            slope = algorithm.model.loss.compute_slopes(margins, own.labels)
            bend = algorithm.model.loss.compute_curvatures(margins, own.labels)
            b = -(own.features.T @ slope + RECORDS * convexity * theta)
            hessian = (own.features * bend[:, None]).T @ own.features
            hessian += RECORDS * convexity * np.eye(FEATURES)
            logs.append(-np.linalg.norm(b) / noise.scale + np.linalg.slogdet(hessian)[1])
        worst = max(worst, abs(logs[0] - logs[1]))
    assert 0.1 * epsilon < worst <= algorithm.objective_epsilon


@pytest.mark.parametrize(("scaled", "right"), [(1.0, True), (2 / 3, False), (1.5, False)])
def test_the_noise_inside_has_the_scale_that_is_charged_and_no_other(scaled, right):
    algorithm, plan = made()
    block = block_of(PARTIES, RECORDS)
    given = algorithm.local(algorithm.init(), block, plan, Randomness.from_seed(7)).values
    noise = algorithm.compute_objective_noise(RECORDS)
    gradient = plain_gradients(algorithm.model, np.zeros(FEATURES), block)
    assert gradient.shape == given.shape
    lengths = []
    for party, theta in enumerate(given):
        own = block.take(np.array([party]))
        pull = plain_gradients(algorithm.model, theta, own)[0]
        lengths.append(
            np.linalg.norm(RECORDS * (pull + (algorithm.lambda_ + noise.regularisation) * theta))
        )
    # ‖b‖ is Gamma(d, scale): its mean over 400 parties is within 5 deviations of itself.
    told = np.mean(lengths) / (FEATURES * noise.scale * scaled)
    assert bool(abs(told - 1) < 5 / math.sqrt(PARTIES * FEATURES)) is right


def test_what_it_costs_is_both_noises_and_within_the_budget():
    algorithm, plan = made()
    own = plan.primary
    assert isinstance(own.mechanism, ObjectivePerturbation)
    spent = Composition.from_events([own.event]).compute_epsilons(own.delta)["pure"]
    assert 2 * (1 - 1e-9) < spent <= 2
    assert own.mechanism.epsilon + algorithm.objective_epsilon <= 2
    assert own.noise_point is NOISE_POINTS["party"]
    assert own.against is Adversary.OTHERS
    assert own.shares.honest == 1
    assert decode_guarantee(own.to_json()) == own


def test_weights_of_classes_are_refused_with_what_takes_them():
    sets = ("algorithm.kind=objective-perturbation", "privacy.noise-point=party")
    with pytest.raises(JobError, match=r"class-weights = \[\] .*gradient-.* got \[1.0, 3.0\]"):
        load_job(overrides=[*sets, "model.class-weights=[1, 3]"])


def test_noise_too_large_for_the_sampler_of_a_coarse_ring_gets_a_finer_one():
    sets = ["parties.count=1000", "algorithm.kind=objective-perturbation", "model.lambda=0.001"]
    sets += ["privacy.noise-point=party", "privacy.epsilon=0.01", "privacy.delta=1e-3"]
    job = load_job(overrides=sets)
    parties = Federation(parties=1000, min_records=50, max_records=50, total_records=50_000)
    algorithm = build_algorithm(job, build_model(job, features=121, classes=2), parties)
    plan = plan_release(job, algorithm=algorithm, federation=parties)
    # On 32 bits a share's jitter would be 2^44: no sampler takes it, which a round found out.
    assert (plan.encoding.ring_bits, plan.guarantees[0].shares.ring_unit) == (64, 1)


def test_a_party_declines_a_plan_that_charges_less_than_its_objective_costs():
    algorithm, plan = made()
    there = decode_task(describe_task(algorithm))
    claim = there.claim(FEDERATION.to_public_facts("uniform"))
    _check_covers(plan, claim)
    cheaper = replace(plan.primary.mechanism, objective_epsilon=algorithm.objective_epsilon / 2)
    with pytest.raises(Declined) as declined:
        _check_covers(with_primary(plan, mechanism=cheaper), claim)
    assert declined.value.reason is Reason.MECHANISM


def test_noise_for_itself_is_never_taken_for_a_part_of_it():
    _, plan = made()
    own = plan.primary
    with pytest.raises(ValueError, match="all of the noise"):
        replace(own, shares=replace(own.shares, honest=2))
    with pytest.raises(ValueError, match="shares"):
        replace(own, shares=None)


def test_other_losses_and_a_pull_that_no_solver_could_certify_are_refused():
    algorithm, _ = made()
    with pytest.raises(ValueError, match="in the objective"):
        replace(algorithm, objective_epsilon=1e-6).claim(FEDERATION.to_public_facts("uniform"))
    with pytest.raises(ValueError, match="uniform"):
        algorithm.claim(FEDERATION.to_public_facts("size"))


@pytest.mark.parametrize("towards", [0.0, math.inf])
def test_a_party_whose_logarithms_round_otherwise_has_the_bound_of_the_plan(monkeypatch, towards):
    algorithm, plan = made()
    for name in ("log", "log1p", "exp", "expm1"):
        own = getattr(math, name)
        monkeypatch.setattr(
            math, name, lambda x, own=own: math.nextafter(own(x), towards if own(x) else 0.0)
        )
    noise = algorithm.compute_objective_noise(RECORDS)
    assert algorithm._compute_entry_bound(noise, RECORDS) == plan.encoding.bound
