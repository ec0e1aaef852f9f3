"""Faults planted in the way of DP-SGD inside a party are refuted; the code as it is never."""

from dataclasses import replace

import numpy as np
import pytest

from parley.client.algorithms import attendance
from parley.client.dp_sgd import batches, noise, steps
from parley.privacy.sampling.stream import Randomness
from parley.server.jobs.file import load_job
from parley.simulations.audit.measure import Effort, audit

JOB = (
    "algorithm.kind=fedavg",
    "model.kind=mlp",
    "model.hidden=[]",
    "parties.min-records=100",
    "privacy.epsilon=4",
    "algorithm.rounds=2",
    "dp-sgd.local-steps=1",
)
SAMPLED = (*JOB, "privacy.epsilon=2", "algorithm.rounds=1", "dp-sgd.sampling-rate=0.25")
WHOLE = (*JOB, "dp-sgd.sampling-rate=1")
SEEN = (*WHOLE, "privacy.epsilon=6", "algorithm.rounds=1", "parties.per-round=0.4")


def one_coin_for_all(sizes, rate, streams):
    """A party's records are in its batch together or not at all."""
    return np.repeat(streams[0].words(len(sizes)) < rate * 2.0**64, sizes)


def coins_at_twice_the_rate(sizes, rate, streams):
    return OWN_BATCHES(sizes, 2 * rate, streams)


def parties_at_twice_the_rate(count, rate, stream):
    return OWN_COINS(count, 2 * rate, stream)


def noise_of_one_party(values, deviation, scale, streams):
    """Drawn once a step, and added to all parties' sums."""
    own = np.zeros_like(values[:1])
    noise.add_noise(own, deviation, scale, streams[:1])
    values += own


def noise_of_the_first_round(self, number, row=0):
    del number
    return OWN_NOISE(self, 1, row)


def clip_of_the_mean(network, training, layout, batch, **more):
    """The mean of a batch is clipped, and no record's gradient."""
    sums, signs = OWN_SUMS(network, replace(training, clip_norm=1e3), layout, batch, **more)
    means = sums.norm(dim=1, keepdim=True) / np.bincount(batch.owners)[:, None]
    return sums * (training.clip_norm / means.clamp_min(1e-300)).clamp_max(1), signs


OWN_BATCHES, OWN_NOISE, OWN_SUMS = batches.batches_of, Randomness.party_noise, steps.batch_sums
OWN_COINS = attendance._coins


@pytest.mark.parametrize(
    ("where", "fault", "job", "attack", "method", "trials"),
    [
        pytest.param(
            *(
                "client.dp_sgd.training.batches_of",
                one_coin_for_all,
                SAMPLED,
                "crowd",
                "profile",
                2_000,
            ),
            marks=pytest.mark.heavy,  # the accounts of a profile take ten seconds
        ),
        pytest.param(
            *("client.dp_sgd.training.batches_of", coins_at_twice_the_rate, SAMPLED),
            *("dirac", "profile", 20_000),
            marks=pytest.mark.heavy,
        ),
        pytest.param(
            *("client.algorithms.attendance._coins", parties_at_twice_the_rate, SEEN),
            *("dirac", "profile", 1_000),
            marks=pytest.mark.heavy,
        ),
        ("client.dp_sgd.training.add_noise", noise_of_one_party, WHOLE, "dirac", "white", 300),
        (
            "privacy.sampling.stream.Randomness.party_noise",
            noise_of_the_first_round,
            WHOLE,
            "on-off",
            "mu",
            100,
        ),
        (
            "client.dp_sgd.training.batch_sums",
            clip_of_the_mean,
            (*WHOLE, "dp-sgd.clip-norm=0.1"),
            "dirac",
            "mu",
            100,
        ),
    ],
)
def test_a_fault_in_dp_sgd_inside_a_party_is_refuted(
    monkeypatch, where, fault, job, attack, method, trials
):
    effort = Effort(trials=trials, seed=21, methods=(method,), attacks=(attack,))

    def verdict() -> str:
        (report,) = audit(load_job(None, overrides=job), effort)
        return report.verdict

    assert verdict() == "not-refuted"
    monkeypatch.setattr(f"parley.{where}", fault)
    assert verdict() == "refuted"
