"""Sampled parties: who is in a sum, what it costs, and what a party refuses."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from plans import with_primary
from scipy.stats import norm

from parley.client.algorithms.party_sampling import PartySampling
from parley.client.contract.plan_decoding import decode_guarantee
from parley.client.contract.refusals import Declined, Reason
from parley.client.data.party_block import PartyBlock
from parley.client.models.networks import Network
from parley.client.party.plan_verification import _check_covers, _check_sampling
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import BernoulliSteps, PoissonSampledGaussian
from parley.privacy.sampling.random_stream import Randomness
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.planning.job_planner import build_algorithm, plan_release

JOB = (
    "algorithm.kind=fedavg",
    "model.kind=mlp",
    "privacy.unit=party",
    "privacy.epsilon=2",
    "dp-sgd.sampling-rate=0.5",
    "algorithm.rounds=2",
    "parties.count=40",
)
DISTRIBUTED = "algorithm.kind=distributed-dp-sgd"
FEDERATION = Federation(parties=40, min_records=4, total_records=160, max_records=4)
BLOCK = PartyBlock(
    features=np.full((160, 4), 0.5), labels=np.arange(160) % 3, offsets=np.arange(0, 161, 4)
)


def made(*overrides):
    job = load_job(overrides=[*JOB, *overrides])
    network = Network.build("mlp", features=4, classes=3, hidden=(2,))
    algorithm = build_algorithm(job, network, FEDERATION)
    return job, algorithm, plan_release(job, algorithm=algorithm, federation=FEDERATION)


def leaf_of(guarantee):
    ((leaf, _),) = guarantee.event.iterate_leaves()
    return leaf


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("parties.per-round=0",), "probability in"),
        (("parties.per-round=0.0",), "probability in"),
        (("parties.per-round=1.5",), "probability in"),
        (("parties.per-round=nan",), "probability in"),
        (("parties.per-round=-3",), "probability in"),
        (("parties.per-round=true",), "probability in"),
        (("parties.per-round=41",), "≤ parties.count = 40"),
        (("parties.per-round=0.001",), "only noise"),
        (("parties.per-round=4", "parties.presence=hidden"), "drawn in public"),
        (("parties.presence=known",), "it needs parties.per-round"),
        (("parties.per-round=0.5", "privacy.unit=both"), "got 'both'"),
        (("parties.per-round=0.03", "privacy.delta=0.03"), "above privacy.delta = 0.03"),
        (("parties.per-round=0.5", "privacy.unit=record", "parties.presence=known"), "a record"),
        (("privacy.neighbouring=add-or-remove-one",), r"parties\.min-records"),
        ((DISTRIBUTED, "privacy.neighbouring=add-or-remove-one"), r"parties\.min-records"),
    ],
)
def test_a_job_that_samples_parties_wrongly_is_refused(overrides, said):
    with pytest.raises(JobError, match=said):
        load_job(overrides=[*JOB, *overrides])


@pytest.mark.parametrize(
    "kind", ["gradient-perturbation", "output-perturbation", "pathak", "rajkumar-agarwal"]
)
def test_algorithms_that_sample_no_parties_say_so_by_name(kind):
    with pytest.raises(JobError, match=r"per-round = 'all'.*fedavg or distributed-dp-sgd"):
        load_job(overrides=[f"algorithm.kind={kind}", "parties.per-round=0.5"])


def test_coins_fall_with_p_and_a_number_is_drawn_without_replacement():
    _, _, plan = made()
    coins, seeded = PartySampling(rate=0.25), Randomness.from_seed(1)
    block = [coins.sample_parties(BLOCK, plan.with_round(t), seeded) for t in range(1, 251)]
    # 10,000 coins: five deviations of 43 are missed with probability 6·10⁻⁷.
    assert abs(sum(map(np.sum, block)) - 2500) < 5 * 43
    for row in (0, 17):  # alone, a party draws the coin that it has in the block
        own = Randomness.from_seed(1, party=row)
        alone = [
            coins.sample_parties(BLOCK.slice_parties(row, row + 1), plan.with_round(t), own)
            for t in (1, 2)
        ]
        assert [bool(each[0]) for each in alone] == [bool(block[t][row]) for t in (0, 1)]
    drawn = PartySampling(number=10, parties=40, hidden=False)
    public = [
        drawn.sample_parties(BLOCK, plan.with_round(t), Randomness.from_entropy()) for t in (1, 2)
    ]
    again = drawn.sample_parties(BLOCK, plan.with_round(1), Randomness(seed=None, party=3))
    assert [each.sum() for each in public] == [10, 10]
    assert not np.array_equal(*public)
    assert again.tolist() == [public[0][3]]  # everybody knows who it is


def test_who_is_not_in_a_round_gives_zero_and_the_rest_is_divided_by_p():
    _, algorithm, plan = made("parties.per-round=0.3", "run.seed=2")
    state, seeded = algorithm.init(), Randomness.from_seed(2)
    present = algorithm.attendance.sample_parties(BLOCK, plan, seeded)
    values = algorithm.local(state, BLOCK, plan, seeded).values
    assert 0 < present.sum() < 40
    assert np.array_equal(np.any(values, axis=1), present)
    assert np.linalg.norm(values, axis=1).max() <= algorithm.update_bound
    moved = algorithm.update(state, np.full(algorithm.dimension, 0.3))["theta"] - state["theta"]
    assert np.allclose(moved, 1.0)


def delta_of(one, other, *, p, sigma, epsilon):
    """δ at ε between two rounds' sums in units of S, over all coins of who is in them."""
    z = np.linspace(-15 * sigma, 15 * sigma, 60_001)

    def density(gives):
        total = np.zeros_like(z)
        for coins in itertools.product((0, 1), repeat=len(gives)):
            weight = math.prod(p if coin else 1 - p for coin in coins)
            total += weight * norm.pdf(z, np.dot(coins, gives), sigma)
        return total

    excess = density(one) - math.exp(epsilon) * density(other)
    return np.maximum(excess, 0.0).sum() * (z[1] - z[0])


OTHERS = [-1.0, 0.4, 1.0]
ONE_ROUND = (
    "dp-sgd.party-clip-norm=1",
    "parties.per-round=0.25",
    "algorithm.rounds=1",
    "privacy.noise-point=server",
)


def test_the_round_is_charged_as_the_sampled_gaussian_that_it_is():
    """One round, unit party, by integrating the two mixtures for every coin of three others."""
    job, _, plan = made(*ONE_ROUND)
    own = plan.primary
    sigma = own.mechanism.sigma / (own.mechanism.sensitivity / 2)
    assert leaf_of(own) == PoissonSampledGaussian(
        sampling_rate=0.25, noise_multiplier=own.mechanism.multiplier, neighbouring="replace-one"
    )
    epsilon = Composition().add(own.event).compute_lowest_epsilon(own.delta)[1]
    assert epsilon <= job.privacy.epsilon
    round_of = {"p": 0.25, "sigma": sigma, "epsilon": epsilon}
    for value, other in ((1.0, -1.0), (-1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.7, 0.6)):
        assert delta_of([*OTHERS, value], [*OTHERS, other], **round_of) <= own.delta
    # Alone in the round it is the pair that is charged, up to the accountant's grid.
    assert own.delta / 1.2 <= delta_of([1.0], [-1.0], **round_of) <= own.delta


def test_a_party_that_is_added_or_removed_moves_the_sum_by_its_clip_norm_alone():
    """And at the charge of it: one round's two mixtures, integrated over every coin of others."""
    job, algorithm, plan = made(
        "privacy.neighbouring=add-or-remove-one", "parties.min-records=2", *ONE_ROUND
    )
    own, clip, facts = plan.primary, algorithm.update_bound, FEDERATION.to_public_facts("uniform")
    assert own.sensitivity == algorithm.claim(facts).sensitivity == clip
    assert leaf_of(own).neighbouring == "add-or-remove-one"
    assert made(*ONE_ROUND)[1].claim(facts).sensitivity == 2 * clip
    epsilon = Composition().add(own.event).compute_lowest_epsilon(own.delta)[1]
    assert epsilon <= job.privacy.epsilon
    sigma = own.mechanism.sigma / own.mechanism.sensitivity
    round_of = {"p": 0.25, "sigma": sigma, "epsilon": epsilon}
    for others in ([], OTHERS):
        for given in (1.0, -1.0, 0.3):  # a party that is not there gives zero
            here, gone = [given, *others], [0.0, *others]
            assert delta_of(here, gone, **round_of) <= own.delta
            assert delta_of(gone, here, **round_of) <= own.delta
    alone = (([1.0], [0.0]), ([0.0], [1.0]))
    assert own.delta / 1.2 <= max(delta_of(*pair, **round_of) for pair in alone)


def test_an_update_is_no_longer_than_its_clip_norm_however_few_or_many_records_it_is_of():
    """Under add-or-remove-one sizes are private, and a party divides by its own all the same."""
    _, algorithm, plan = made(
        "privacy.neighbouring=add-or-remove-one", "parties.min-records=2", "dp-sgd.local-steps=4",
        "dp-sgd.learning-rate=50", "run.seed=1",
    )  # fmt: skip
    offsets = np.concatenate([[0, 1, 3], np.linspace(13, 160, 38).astype(np.int64)])
    block = PartyBlock(features=BLOCK.features, labels=BLOCK.labels, offsets=offsets)
    values = algorithm.local(algorithm.init(), block, plan, Randomness.from_seed(1)).values
    lengths = np.linalg.norm(values, axis=1)
    assert lengths.max() <= algorithm.update_bound
    assert lengths[:3].min() > 0


def test_both_accounts_are_there_and_the_job_says_which_is_charged():
    from parley.server.records.guarantee_costs import build_accounts

    for presence, rate, other in (
        ("hidden", 0.25, "attendance-known"),
        ("known", 1.0, "attendance-hidden"),
    ):
        job, _, plan = made("parties.per-round=0.25", f"parties.presence={presence}")
        own = plan.primary
        assert own.mechanism.sampling_rate == rate
        assert own.mechanism.attendance == 0.25
        spent = Composition().add(own.event, count=job.rounds).compute_lowest_epsilon(own.delta)[1]
        rows = build_accounts(
            plan, own.unit, epsilon=spent, delta=own.delta, contributions=[40, 40]
        )
        assert rows[0].charged
        assert rows[1].adversary == other
        assert not rows[1].charged
        # Whoever knows is charged for the rounds that a party may be in, of two: by Gaussians.
        known = rows[0] if presence == "known" else rows[1]
        assert spent <= 2
        mu = 2 / own.mechanism.multiplier
        deltas = [gaussian_delta(known.epsilon, mu=mu * math.sqrt(j)) for j in (1, 2)]
        assert np.dot([2 * 0.25 * 0.75, 0.25**2], deltas) == pytest.approx(own.delta, rel=2e-3)
        assert rows[1].epsilon > 2 if presence == "hidden" else rows[1].epsilon < 1.8
    step = PoissonSampledGaussian(
        sampling_rate=1.0, noise_multiplier=own.mechanism.multiplier, neighbouring="replace-one"
    )
    assert leaf_of(own) == BernoulliSteps(probability=0.25, event=step, count=1)
    assert own.mechanism.sigma < 0.9 * made()[2].primary.mechanism.sigma


def gaussian_delta(epsilon, *, mu):
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(("kind", "together"), [("fedavg", 4), ("distributed-dp-sgd", 1)])
def test_a_record_is_charged_for_the_rounds_that_its_party_is_in_by_one_coin_each(kind, together):
    """A block of local steps has one coin; of steps that are sums each has its own."""
    from parley.server.records.guarantee_costs import build_accounts

    steps = ("dp-sgd.local-steps=4", "privacy.unit=record")
    job = (f"algorithm.kind={kind}", *steps)
    (_, _, whole), (made_job, _, sampled) = (
        made(*job, *more) for more in ((), ("parties.per-round=0.1",))
    )
    ((coin, times),) = sampled.primary.event.iterate_leaves()
    mechanism = sampled.primary.mechanism
    assert coin == BernoulliSteps(probability=0.1, event=mechanism.step, count=together)
    assert times * together == 4
    assert (
        sampled.primary.event.sampler_distance == whole.primary.event.sampler_distance
    )  # drawn in every round
    ((step, _),) = whole.primary.event.iterate_leaves()
    assert mechanism.step.sampling_rate == step.sampling_rate == 0.5
    assert mechanism.step.noise_multiplier < 0.75 * step.noise_multiplier
    own = sampled.primary
    spent = Composition().add(own.event, count=made_job.rounds).compute_lowest_epsilon(own.delta)[1]
    assert 1.99 < spent <= 2
    rows = build_accounts(sampled, own.unit, epsilon=spent, delta=own.delta, contributions=[40, 40])
    assert [(row.adversary, row.epsilon, row.charged) for row in rows[:2]] == [
        (str(own.against), spent, True),
        ("attendance-either", spent, False),
    ]
    _, _, always = made(*job, "parties.per-round=1.0")
    assert always.primary.event == whole.primary.event


def test_a_coin_that_is_seen_is_charged_less_the_rarer_it_is_at_the_same_noise():
    job = ("privacy.unit=record", "dp-sgd.local-steps=2", "dp-sgd.noise-multiplier=3")
    epsilons = [
        Composition().add(plan.primary.event, count=2).compute_lowest_epsilon(1e-5)[1]
        for p in (0.05, 0.2, 1.0)
        for plan in [made(*job, f"parties.per-round={p}")[2]]
    ]
    assert epsilons == sorted(set(epsilons))


def test_a_party_declines_amplification_that_its_task_does_not_have():
    """Drill: a server that has the same parties in every round and charges them as sampled."""
    _, everyone, plain = made()
    _, sampled, plan = made("parties.per-round=0.25")
    mechanism = plan.primary.mechanism
    facts = FEDERATION.to_public_facts("uniform")
    _check_sampling(plan, sampled.claim(facts))
    for algorithm, offered in (
        (everyone, plan),
        (sampled, plain),
        (
            sampled,
            with_primary(plan, mechanism=replace(mechanism, sampling_rate=1.0, hidden=False)),
        ),
        (
            sampled,
            with_primary(plan, mechanism=replace(mechanism, attendance=0.1, sampling_rate=0.1)),
        ),
        (replace(everyone, attendance=PartySampling(number=1, parties=40, hidden=False)), plan),
    ):
        with pytest.raises(Declined) as declined:
            _check_sampling(offered, algorithm.claim(facts))
        assert declined.value.reason is Reason.MECHANISM
    with pytest.raises(ValueError, match="do not hide a party"):
        decode_guarantee(
            replace(plan.primary, mechanism=mechanism).to_json()
            | {"mechanism": {**plan.primary.to_json()["mechanism"], "hidden": False}}
        )


@pytest.mark.parametrize("kind", ["fedavg", "distributed-dp-sgd"])
@pytest.mark.parametrize("offered", ["parties.per-round=0.05", "parties.per-round=1.0"])
def test_a_party_declines_another_coin_for_its_records_than_its_tasks(kind, offered):
    """Drill: a server whose task has p = 0.1 and whose plan claims another p, and its noise."""
    job = (f"algorithm.kind={kind}", "privacy.unit=record", "dp-sgd.noise-multiplier=3")
    _, task, plan = made(*job, "parties.per-round=0.1")
    claim = task.claim(FEDERATION.to_public_facts("uniform"))
    _check_covers(plan, claim)
    _, _, other = made(*job, offered)
    with pytest.raises(Declined) as declined:
        _check_covers(other, claim)
    assert declined.value.reason is Reason.MECHANISM


def test_no_record_is_charged_as_though_its_partys_coin_hid_it():
    _, _, plan = made(
        "algorithm.kind=distributed-dp-sgd", "privacy.unit=record", "parties.per-round=0.1"
    )
    hidden = replace(plan.primary.mechanism, hidden=True, sampling_rate=0.1)
    with pytest.raises(ValueError, match="may show whether the record"):
        with_primary(plan, mechanism=hidden)
    assert decode_guarantee(plan.primary.to_json()) == plan.primary
