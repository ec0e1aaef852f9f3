"""A world of an audit is a run of the product, to the last bit; and worlds differ by one unit."""

from dataclasses import replace

import numpy as np
import pytest

from parley.client.algorithms.party_sampling import EVERYONE
from parley.client.algorithms.registry import needs_sum
from parley.client.party.party_session import PartySession
from parley.client.party.refusal_rules import RefusalRules
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.sampling.random_stream import Randomness
from parley.server.jobs.job_file import load_job
from parley.simulations.audit.attack_scores import score_releases
from parley.simulations.audit.audit_job_shrinking import AuditError
from parley.simulations.audit.audit_target import build_target
from parley.simulations.audit.canary_pool import repeat_world
from parley.simulations.audit.neighbouring_worlds import ATTACKS, build_neighbours
from parley.simulations.audit.trial_observations import (
    build_hypotheses,
    compute_reach,
    has_bare_noise,
)
from parley.simulations.audit.world_batch import (
    IdenticalParties,
    WorldRandomness,
    simulate_releases,
)

LINEAR = ("algorithm.rounds=3", "privacy.epsilon=4", "privacy.noise-point=server")
OUTPUT = (
    "algorithm.kind=output-perturbation",
    "model.kind=huber-svm",
    "model.lambda=1",
    "privacy.noise-point=server",
)
NETWORK = (
    "algorithm.kind=fedavg",
    "model.kind=mlp",
    "parties.min-records=100",
    "privacy.epsilon=4",
    "algorithm.rounds=2",
    "dp-sgd.local-steps=1",
    "dp-sgd.sampling-rate=0.5",
)
PLAIN = (*NETWORK, "model.hidden=[]")
STEPS = (
    *NETWORK,
    "algorithm.kind=distributed-dp-sgd",
    "dp-sgd.local-steps=2",
    "privacy.noise-point=server",
)
ADD = "privacy.neighbouring=add-or-remove-one"
SOFTMAX = ("model.kind=softmax", "data.source=digits")


def given(*overrides, seed=5, **shape):
    return build_target(load_job(None, overrides=overrides), seed=seed, **shape)


def one_world(each, worlds, randomness):
    """The releases of one world, as `server.rounds.round_loop` makes them."""
    policy = RefusalRules(units=frozenset({each.unit}), neighbouring=frozenset(Neighbouring))
    session = PartySession(
        block=worlds.inside, algorithm=each.algorithm, rules=policy, randomness=randomness
    )
    state, released = worlds.start, []
    for number in range(each.rounds * each.plan.steps):
        release, step = divmod(number, each.plan.steps)
        plan = each.plan.with_round(each.plan.round_number + release).with_step(step + 1)
        state = worlds.get_sent_state(number + 1) if worlds.get_sent_state else state
        answer = session.answer(plan, state)
        total = np.add.reduce(answer.encoded, axis=0, dtype=plan.encoding.dtype)
        noisy = plan.encoding.decode(total) + plan.draw(
            randomness.open_server_noise(plan.round_number, plan.step)
        )
        released.append(plan.encoding.to_float(noisy))
        divisor = 1 if needs_sum(each.algorithm) else answer.weights.sum()
        state = each.algorithm.update(state, released[-1] / divisor)
    return np.stack(released)


@pytest.mark.parametrize(
    "job",
    [
        LINEAR,
        (*LINEAR, "parties.weights=size"),
        (*LINEAR, *SOFTMAX),
        (*LINEAR, "privacy.noise=l2-laplace"),
        OUTPUT,
        NETWORK,
        (*NETWORK, ADD),
        STEPS,
        (*STEPS, ADD, "parties.count=2"),
    ],
)
def test_a_world_is_what_the_rounds_make_of_its_parties_to_the_last_bit(job):
    each = given(*job)
    worlds = build_neighbours(each, "dirac")
    source = WorldRandomness(seed=5, names=("a",))
    (block,) = simulate_releases(each, worlds, inside=True, count=1, source=source)
    assert np.array_equal(block[0], one_world(each, worlds, source.get_chunk(0)))


@pytest.mark.parametrize("coins", [(), ("parties.count=8", "parties.per-round=0.5")])
def test_parties_alike_are_computed_in_a_few_worlds_and_are_what_each_would_compute(coins):
    job = (*PLAIN, "privacy.unit=party", "privacy.noise-point=server", *coins)
    each = given(*job, seed=None)
    worlds = build_neighbours(each, "party")
    m, count = each.shape.parties, 40
    block = repeat_world(worlds.inside, count)
    alike, randomness = IdenticalParties(each.algorithm, m), Randomness.from_entropy()
    values = alike.local(worlds.start, block, each.plan, randomness).values
    everyone = replace(each.algorithm, attendance=EVERYONE)
    whole = everyone.local(worlds.start, block, each.plan, randomness).values
    present = values.any(axis=1)
    assert np.array_equal(values[present], whole[present])
    share = present.reshape(count, m).mean()
    assert share == 1 if not coins else 0.2 < share < 0.8


def test_parties_alike_are_weighed_as_each_would_be():
    each = given("parties.weights=size", "parties.count=4", "algorithm.rounds=2", seed=None)
    block = repeat_world(build_neighbours(each, "dirac").inside, 40)
    shares = []
    for algorithm in (each.algorithm, IdenticalParties(each.algorithm, each.shape.parties)):
        own = algorithm.local(each.algorithm.init(), block, each.plan, Randomness.from_entropy())
        shares.append(own.apply_weights(each.plan, 2 * block.sizes))
    assert np.array_equal(*shares)


def test_parties_whose_answers_differ_from_world_to_world_are_each_computed_by_themselves():
    each = given(*PLAIN, seed=None)
    block = repeat_world(build_neighbours(each, "dirac").inside, 10)
    randomness = Randomness.from_entropy()
    values = (
        IdenticalParties(each.algorithm, 1)
        .local(each.algorithm.init(), block, each.plan, randomness)
        .values
    )
    assert len(np.unique(values[:, 0])) == 10  # the noise inside each of them


def test_worlds_are_independent_and_a_seed_repeats_them_all():
    each = given(*LINEAR)
    worlds = build_neighbours(each, "dirac")
    first, again = (
        np.concatenate(
            list(
                simulate_releases(
                    each, worlds, inside=True, count=50, source=WorldRandomness(seed=5)
                )
            )
        )
        for _ in range(2)
    )
    assert np.array_equal(first, again)
    assert len(np.unique(first[:, 0, 0])) == 50
    other = WorldRandomness(seed=5).with_names("other")
    (block,) = simulate_releases(each, worlds, inside=True, count=50, source=other)
    assert not np.array_equal(first, block)
    sources = [WorldRandomness(seed=seed, names=(name,)) for seed in (1, 2) for name in ("a", "b")]
    assert len({source.get_chunk(number).seed for source in sources for number in (0, 1)}) == 8


@pytest.mark.parametrize("job", [LINEAR, OUTPUT, NETWORK, PLAIN, (*NETWORK, ADD), STEPS])
@pytest.mark.parametrize("attack", ["dirac", "crowd", "on-off"])
def test_neighbours_differ_by_one_record(job, attack):
    each = given(*job)
    if not ATTACKS[attack].is_applicable(each):
        with pytest.raises(AuditError, match="an attack that fits"):
            build_neighbours(each, attack)
        return
    worlds = build_neighbours(each, attack)
    inside, outside = worlds.inside, worlds.outside
    assert np.linalg.norm(inside.features, axis=1).max() <= 1 + 1e-12
    if each.guarantee.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE:
        assert np.array_equal(inside.features[1:], outside.features)
        assert np.array_equal(inside.labels[1:], outside.labels)
        return
    same = (inside.features == outside.features).all(axis=1) & (inside.labels == outside.labels)
    assert (~same).sum() == 1
    assert np.array_equal(inside.offsets, outside.offsets)


def test_neighbours_of_unit_party_differ_in_one_party_and_its_update_is_clipped():
    each = given(*NETWORK, "privacy.unit=party")
    worlds = build_neighbours(each, "party")
    same, own = worlds.inside.labels == worlds.outside.labels, each.shape.records
    assert not same[:own].any()
    assert same[own:].all()
    unclipped = replace(each.algorithm, update_bound=1e9)
    update = unclipped.local(worlds.start, worlds.inside, each.plan, Randomness.from_entropy())
    assert np.linalg.norm(update.values[0]) > 10 * each.guarantee.clip_norm
    assert compute_reach(each, build_hypotheses(each, worlds)) > 0.999


@pytest.mark.parametrize(
    ("job", "least"),
    [
        (LINEAR, 0.9999),
        ((*LINEAR, "algorithm.clip-norm=0.4"), 0.9999),
        ((*LINEAR, *SOFTMAX), 0.9999),
        ((*LINEAR, "model.kind=huber-svm"), 0.9999),
        (OUTPUT, 0.9989),
        (NETWORK, 0.998),
        ((*NETWORK, "model.hidden=[9, 9, 9]", "dp-sgd.clip-norm=50"), 0.998),
        (PLAIN, 0.997),
        (STEPS, 0.998),
        ((*NETWORK, ADD), 0.998),
    ],
)
def test_the_canaries_use_all_of_the_sensitivity_and_no_more(job, least):
    each = given(*job)
    used = compute_reach(each, build_hypotheses(each, build_neighbours(each, "dirac")))
    assert least < used <= 1 + 1e-9


@pytest.mark.parametrize("relation", ["privacy.neighbouring=replace-one", ADD])
def test_a_release_ahead_of_the_rounds_is_audited_by_itself(relation):
    job = load_job(None, overrides=[*NETWORK, "model.kind=pca-mlp", relation])
    ahead = build_target(job, stage="principal components", seed=5)
    assert ahead.algorithm.kind == "second-moments"
    assert (ahead.plan.round_number, ahead.rounds) == (0, 1)
    found = compute_reach(ahead, build_hypotheses(ahead, build_neighbours(ahead, "dirac")))
    assert found == pytest.approx(1, abs=1e-2)  # rows are cut to 2^-12, towards zero
    rounds = build_target(job, seed=5)
    # Together they are what the job may cost, each less than that.
    assert (
        ahead.spent.add(rounds.charged.event, count=rounds.rounds).compute_lowest_epsilon(1e-5)[1]
        <= 4 + 1e-9
    )
    assert max(ahead.epsilon, rounds.epsilon) < 4
    with pytest.raises(AuditError, match="a release of rounds, got 'principal components'"):
        build_target(load_job(None, overrides=NETWORK), stage="principal components")


def test_a_claim_of_noise_inside_a_party_is_not_held_against_its_share_of_the_sums_noise():
    """Found by the hunt: `loose`, though the noise was what it should be."""
    both = ("privacy.unit=both", "privacy.noise-point=share", "parties.count=7")
    each = given(*PLAIN, *both, seed=None)
    assert each.charged.in_training
    assert each.plan.shared_guarantee is not None
    assert not has_bare_noise(each)
    assert has_bare_noise(given(*PLAIN))
    assert has_bare_noise(given(*STEPS))


def test_noise_that_a_later_clip_cuts_is_not_taken_for_too_little_of_it():
    """Found by the hunt: a budget so small that a party's clip S cuts the noise inside it."""
    both = ("privacy.unit=both", ADD, "privacy.noise-point=server", "parties.count=2")
    for epsilon, bare in ((0.05, False), (4, True)):
        own = (f"privacy.epsilon={epsilon}", "dp-sgd.party-clip-norm=0.5")
        each = given(*NETWORK, *both, *own)
        assert each.charged.in_training
        assert has_bare_noise(each) == bare


def test_an_audit_changes_what_epsilon_does_not_depend_on_and_says_so():
    asked = load_job(None, overrides=[*LINEAR, "algorithm.momentum=0.5"])
    each = build_target(asked, seed=None)
    assert each.job.privacy == asked.privacy
    assert each.job.algorithm.clip_norm == asked.algorithm.clip_norm
    assert each.rounds == asked.rounds
    assert each.epsilon == pytest.approx(4, rel=1e-9)
    assert "algorithm.learning-rate = 1e-09" in each.changed
    assert not each.plan.seeded


def test_what_cannot_be_audited_is_refused_with_what_can():
    with pytest.raises(AuditError, match="never part of a deployment"):
        given("run.engine=processes")
    with pytest.raises(AuditError, match=r"fits this job \(dirac, on-off\), got 'party'"):
        build_neighbours(given(*LINEAR), "party")
    with pytest.raises(AuditError, match="a unit of record, got party"):
        build_target(load_job(None, overrides=LINEAR), Unit.PARTY)


def test_parties_are_in_a_world_by_their_own_coins_where_these_amplify() -> None:
    job = (
        *("algorithm.kind=fedavg", "model.kind=mlp", "model.hidden=[]", "privacy.unit=party"),
        *("parties.count=1000", "parties.min-records=100", "algorithm.rounds=2"),
        *("privacy.epsilon=4", "privacy.noise-point=server"),
    )
    given = build_target(load_job(None, overrides=[*job, "parties.per-round=0.3"]), seed=3)
    assert given.shape.parties == 4  # one of them is in a sum on average, or more
    worlds = build_neighbours(given, "party")
    expected = build_hypotheses(given, worlds)
    assert compute_reach(given, expected) == pytest.approx(
        1, abs=1e-4
    )  # everyone is in what is expected
    (seen,) = simulate_releases(
        given, worlds, inside=True, count=60, source=WorldRandomness(seed=3)
    )
    apart = expected.inside - expected.outside
    along = ((seen - expected.base) * apart).sum(axis=2) / (apart**2).sum(axis=1) * 2
    # 1 where the party is in the sum, else 0, with noise of deviation σ/S: the mean is p.
    deviation = expected.scale / np.linalg.norm(apart[0]) * 2
    error = np.hypot(deviation, 0.46) / np.sqrt(along.size)
    assert along.mean() == pytest.approx(0.3, abs=5 * error)
    # Where it is drawn in public, it is in every sum.
    known = build_target(load_job(None, overrides=[*job, "parties.per-round=20"]))
    assert known.algorithm.attendance.includes_everyone
    assert known.epsilon == pytest.approx(4, rel=1e-3)


def test_an_absent_party_is_seen_and_says_nothing_of_its_records() -> None:
    job = (
        *("algorithm.kind=fedavg", "model.kind=mlp", "model.hidden=[]", "parties.count=1000"),
        *("parties.min-records=100", "algorithm.rounds=2", "privacy.epsilon=4"),
        *("dp-sgd.sampling-rate=1", "dp-sgd.local-steps=1", "parties.per-round=0.3"),
    )
    given = build_target(load_job(None, overrides=job), seed=3)
    assert given.epsilon == pytest.approx(4, rel=1e-3)
    assert given.by_coins
    worlds = build_neighbours(given, "dirac")
    expected = build_hypotheses(given, worlds)
    # Of a step at 1 the noise covers 2C: everyone is in what is expected.
    assert compute_reach(given, expected) == pytest.approx(1, abs=0.01)
    (seen,) = simulate_releases(
        given, worlds, inside=True, count=200, source=WorldRandomness(seed=3)
    )
    there = seen.any(axis=2)
    assert there.mean() == pytest.approx(0.3, abs=5 * 0.46 / there.size**0.5)
    scores = score_releases(seen, expected)
    assert (scores[~there.any(axis=1)] == 0).all()
    assert (scores[there.any(axis=1)] != 0).all()
    assert not has_bare_noise(given)
