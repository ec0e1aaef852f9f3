"""Faults planted in one function are refuted and confirmed; the code as it is never.

Each fault replaces one function of the product for one test.
"""

import pkgutil
from dataclasses import replace

import numpy as np
import pytest

from parley.client.algorithms import party_sampling
from parley.client.algorithms.gradient_perturbation import GradientPerturbation
from parley.client.dp_sgd import batch_sums, grid_noise, poisson_batches, torch_clipping
from parley.privacy.mechanisms.gaussian import Gaussian
from parley.privacy.mechanisms.noise_shares import Shares
from parley.privacy.sampling.random_stream import NoiseStream, Randomness
from parley.secure_agg.encoding import EncodingError
from parley.server.jobs.job_file import load_job
from parley.simulations.audit import guarantee_audit
from parley.simulations.audit.guarantee_audit import (
    Effort,
    audit,
    audit_guarantee,
    list_job_targets,
)

GRADIENT = (
    "privacy.noise-point=server",
    "privacy.epsilon=4",
    "algorithm.rounds=2",
    "algorithm.clip-norm=0.4",
)
ONE_ROUND = (
    "privacy.noise-point=server",
    "privacy.epsilon=4",
    "algorithm.rounds=1",
    "algorithm.clip-norm=0.1",
)
DP_SGD = (
    "algorithm.kind=fedavg",
    "model.kind=mlp",
    "parties.min-records=100",
    "privacy.epsilon=4",
    "algorithm.rounds=2",
    "dp-sgd.local-steps=1",
    "dp-sgd.sampling-rate=1",
)


def verdict(job, *, trials, method, attack="dirac", **shape):
    effort = Effort(trials=trials, seed=21, methods=(method,), attacks=(attack,))
    (report,) = audit(load_job(None, overrides=job), effort, **shape)
    return report.verdict


def noise_times(monkeypatch, factor):
    drawn = Gaussian.draw_many

    def other(self, count, stream):
        return drawn(replace(self, sigma=self.sigma * factor), count, stream)

    monkeypatch.setattr(Gaussian, "draw_many", other)


@pytest.mark.parametrize(
    ("factor", "trials", "method"),
    [
        (2 / 3, 20_000, "mu"),
        (2 / 3, 300, "factor"),
        (1 / 2, 4_000, "mu"),  # a sensitivity of half the truth
        (5**-0.5, 2_700, "mu"),  # a share σ/k for σ/√k
        (1 / 5, 300, "mu"),  # noise for the average put on the sum
        (1 / 5, 2_000, "pair"),
        (0.9, 3_000, "factor"),
    ],
)
def test_too_little_noise_is_refuted(monkeypatch, factor, trials, method):
    assert verdict(GRADIENT, trials=trials, method=method) == "not-refuted"
    noise_times(monkeypatch, factor)
    assert verdict(GRADIENT, trials=trials, method=method) == "refuted"


def test_far_too_much_noise_is_loose(monkeypatch):
    noise_times(monkeypatch, 1.2)
    assert verdict(GRADIENT, trials=2_000, method="factor") == "loose"


def test_a_seed_that_rounds_share_is_refuted_by_switching_the_canary_off(monkeypatch):
    own = Randomness.open_server_noise
    monkeypatch.setattr(Randomness, "open_server_noise", lambda self, number, step=1: own(self, 1))
    job = ("privacy.noise-point=server", "privacy.epsilon=4", "algorithm.rounds=4")
    assert verdict(job, trials=100, method="mu", attack="on-off") == "refuted"
    # A canary that is always there cannot see it.
    assert verdict(job, trials=100, method="mu") == "not-refuted"
    assert verdict(job, trials=400, method="white") == "refuted"


def test_a_keystream_that_repeats_inside_a_vector_is_not_white(monkeypatch):
    words = NoiseStream.draw_words

    def half(self, count):
        drawn = words(self, -(-count // 2))
        return np.concatenate([drawn, drawn])[:count]

    assert verdict(GRADIENT, trials=1_100, method="white") == "not-refuted"
    monkeypatch.setattr(NoiseStream, "draw_words", half)
    assert verdict(GRADIENT, trials=1_100, method="white") == "refuted"


def test_gradients_that_are_clipped_after_averaging_are_refuted(monkeypatch):
    def averaged_first(self, state, block, plan, randomness):
        unclipped = replace(self, lipschitz=self.model.lipschitz)
        given = unclipped.local(state, block, plan, randomness)
        norms = np.linalg.norm(given.values, axis=1, keepdims=True)
        given.values[:] *= np.minimum(1, self.lipschitz / np.maximum(norms, 1e-300))
        return given

    own = GradientPerturbation.local
    shape = {"records": 10, "trials": 200, "method": "mu"}
    assert verdict(ONE_ROUND, **shape) == "not-refuted"
    monkeypatch.setattr(
        GradientPerturbation,
        "local",
        lambda self, *rest: (averaged_first if self.clip_norm else own)(self, *rest),
    )
    assert verdict(ONE_ROUND, **shape) == "refuted"


def test_a_share_too_small_for_what_it_is_part_of_is_refuted_in_the_view_of_the_colluders(
    monkeypatch,
):
    """σ/k for σ/√k, k = 3 of five parties; readers see five, and the noise of five."""
    job = (*GRADIENT, "privacy.noise-point=share", "parties.count=5")
    effort = Effort(trials=3_000, methods=("mu",), attacks=("dirac",))
    assert [each.verdict for each in audit(load_job(None, overrides=job), effort)] == [
        "not-refuted", "not-refuted",
    ]  # fmt: skip
    add = Shares.add

    def less(self, mechanism, vectors, streams):
        add(replace(self, scale=self.scale / self.honest**0.5), mechanism, vectors, streams)

    monkeypatch.setattr(Shares, "add", less)
    colluders, _ = audit(load_job(None, overrides=job), effort)
    assert colluders.claim.against == "server-and-colluders"
    assert colluders.verdict == "refuted"


def test_a_keystream_that_parties_share_is_not_white(monkeypatch):
    job = (*GRADIENT, "privacy.noise-point=share", "parties.count=5")
    effort = Effort(trials=600, methods=("white",), attacks=("dirac",))
    given = next(list_job_targets(load_job(None, overrides=job), seed=None))
    assert audit_guarantee(given, effort).verdict == "not-refuted"
    add = Shares.add

    def alike(self, mechanism, vectors, streams):
        one = np.zeros_like(vectors[:1])
        add(self, mechanism, one, streams[:1])
        vectors += one

    monkeypatch.setattr(Shares, "add", alike)
    assert audit_guarantee(given, effort).verdict == "refuted"


def test_gradients_that_nobody_clips_are_not_even_encoded(monkeypatch):
    """A canary of ten times the clip, in a sum whose grid has no room for it."""
    own = GradientPerturbation.local

    def unclipped(self, *rest):
        return own(replace(self, lipschitz=self.model.lipschitz), *rest)

    monkeypatch.setattr(GradientPerturbation, "local", unclipped)
    with pytest.raises(EncodingError, match="Expected"):
        verdict(ONE_ROUND, trials=100, method="mu")


def test_written_gradients_that_nobody_clips_are_refuted(monkeypatch):
    """An audit of chains of linear layers would not see it."""
    job = (*DP_SGD, "dp-sgd.per-example-method=vmap", "dp-sgd.clip-norm=0.1", "model.hidden=[]")
    monkeypatch.setattr(torch_clipping, "clip_rows", lambda rows, clip: None)
    assert verdict(job, trials=20, method="mu") == "refuted"


def test_the_second_look_has_fresh_trials_and_the_same_event(monkeypatch):
    noise_times(monkeypatch, 1 / 5)
    looked, counted = [], []
    own, find = guarantee_audit.run_worlds, guarantee_audit.METHODS["mu"].find_bound

    def watched(*rest, **more):
        looked.append((*more["source"].names[-2:], more["count"]))
        return own(*rest, **more)

    def noted(seen):
        counted.append(seen.event)
        return find(seen)

    monkeypatch.setattr(guarantee_audit, "run_worlds", watched)
    monkeypatch.setitem(
        guarantee_audit.METHODS, "mu", replace(guarantee_audit.METHODS["mu"], find_bound=noted)
    )
    assert verdict(GRADIENT, trials=300, method="mu") == "refuted"
    assert looked == [
        ("pilot", "in", 150), ("pilot", "out", 150), ("count", "in", 150), ("count", "out", 150),
        ("confirm", "in", 1200), ("confirm", "out", 1200),
    ]  # fmt: skip
    assert counted[0] is counted[1]


WHOLE = (*DP_SGD, "model.hidden=[]")
CLIPPED = (*WHOLE, "dp-sgd.clip-norm=0.1")
SAMPLED = (*WHOLE, "privacy.epsilon=2", "algorithm.rounds=1", "dp-sgd.sampling-rate=0.25")
SEEN = (*WHOLE, "privacy.epsilon=6", "algorithm.rounds=1", "parties.per-round=0.4")
OF_PARTIES = (
    *(*WHOLE, "privacy.unit=party", "parties.count=100", "privacy.noise-point=server"),
    *("parties.per-round=0.25", "algorithm.rounds=1", "privacy.epsilon=1"),
)


def fixed_batches(sizes, rate, streams):
    """Of the mean length, and charged as Poisson's."""
    keys = np.stack([stream.draw_words(sizes[0]) for stream in streams])
    return (np.argsort(np.argsort(keys, axis=1), axis=1) < round(rate * sizes[0])).ravel()


def one_coin_for_all(sizes, rate, streams):
    """A party's records are in its batch together or not at all."""
    return np.repeat(streams[0].draw_words(len(sizes)) < rate * 2.0**64, sizes)


def coins_at_twice_the_rate(sizes, rate, streams):
    return OWN_BATCHES(sizes, 2 * rate, streams)


def everyone(self, block, plan, randomness):
    return np.ones(block.parties, dtype=bool)


def parties_at_twice_the_rate(count, rate, stream):
    return OWN_COINS(count, 2 * rate, stream)


def noise_of_one_party(values, deviation, scale, streams):
    """Drawn once a step, and added to all parties' sums."""
    own = np.zeros_like(values[:1])
    grid_noise.add_noise(own, deviation, scale, streams[:1])
    values += own


def noise_of_the_first_round(self, number, row=0):
    del number
    return OWN_NOISE(self, 1, row)


def clip_of_the_mean(network, training, layout, batch, **more):
    """The mean of a batch is clipped, and no record's gradient."""
    sums, signs = OWN_SUMS(network, replace(training, clip_norm=1e3), layout, batch, **more)
    means = sums.norm(dim=1, keepdim=True) / np.bincount(batch.owners)[:, None]
    return sums * (training.clip_norm / means.clamp_min(1e-300)).clamp_max(1), signs


OWN_BATCHES, OWN_NOISE, OWN_SUMS = (
    poisson_batches.draw_joint_batches,
    Randomness.open_training_noise,
    batch_sums.compute_batch_sums,
)
OWN_COINS = party_sampling._flip_coins


HEAVY = [pytest.mark.heavy]  # the accounts of a profile take ten seconds
BATCHES, ATTENDANCE = (
    "client.dp_sgd.local_training.draw_joint_batches",
    "client.algorithms.party_sampling",
)
STREAM = "privacy.sampling.random_stream.Randomness"
FAULTS = [
    (BATCHES, fixed_batches, SAMPLED, "crowd", "profile", 4_000, HEAVY),
    (BATCHES, one_coin_for_all, SAMPLED, "crowd", "profile", 2_000, HEAVY),
    (BATCHES, coins_at_twice_the_rate, SAMPLED, "dirac", "profile", 20_000, HEAVY),
    (
        f"{ATTENDANCE}.PartySampling.sample_parties",
        everyone,
        OF_PARTIES,
        "party",
        "profile",
        300,
        HEAVY,
    ),
    (
        f"{ATTENDANCE}._flip_coins",
        parties_at_twice_the_rate,
        SEEN,
        "dirac",
        "profile",
        1_000,
        HEAVY,
    ),
    (
        "client.dp_sgd.local_training.add_noise",
        noise_of_one_party,
        WHOLE,
        "dirac",
        "white",
        300,
        [],
    ),
    (f"{STREAM}.open_training_noise", noise_of_the_first_round, WHOLE, "on-off", "mu", 100, []),
    (
        "client.dp_sgd.local_training.compute_batch_sums",
        clip_of_the_mean,
        CLIPPED,
        "dirac",
        "mu",
        100,
        [],
    ),
]


def test_every_fault_has_its_place_in_the_code():
    """Also those that only heavy tests plant."""
    for where, *_ in FAULTS:
        assert callable(pkgutil.resolve_name(f"parley.{where}"))


@pytest.mark.parametrize(
    ("where", "fault", "job", "attack", "method", "trials"),
    [pytest.param(*row, marks=marks, id=row[1].__name__) for *row, marks in FAULTS],
)
def test_a_fault_in_dp_sgd_or_in_who_attends_is_refuted(
    monkeypatch, where, fault, job, attack, method, trials
):
    asked = {"trials": trials, "method": method, "attack": attack}
    assert verdict(job, **asked) == "not-refuted"
    monkeypatch.setattr(f"parley.{where}", fault)
    assert verdict(job, **asked) == "refuted"
