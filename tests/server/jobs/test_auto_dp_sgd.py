"""The rule of networks' steps: known answers, and each key that a job gives."""

from dataclasses import replace

import pytest

from parley.server.jobs.auto_settings import compute_signal
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job

TEN = Federation(parties=10, min_records=6000, total_records=60_000, max_records=6000)
"""A = 60,000 · μ(2, 1e-5)/2 · √(6/10) = 11,655 in shares, with six honest of seven survivors."""

JOB = ("model.kind=mlp", "parties.count=10", "privacy.epsilon=2", "privacy.delta=1e-5")


def settled(*overrides, parties=TEN, kind="distributed-dp-sgd"):
    return load_job(overrides=[*JOB, f"algorithm.kind={kind}", *overrides]).resolve_auto(
        parties, 10
    )


def test_the_steps_of_ten_parties_are_those_of_the_derivation():
    job = settled()
    found = job.dp_sgd
    assert (job.rounds, found.local_steps, found.momentum, found.clip_norm) == (25, 10, 0.5, 0.5)
    assert found.sampling_rate == pytest.approx(4096 / 60_000)
    # τ = A/5 = rate · C · T/(1 − β)
    assert found.learning_rate * 0.5 * 250 / 0.5 == pytest.approx(11_655 / 5, rel=1e-3)


def test_noise_inside_the_parties_buys_a_shorter_way():
    job = settled(kind="fedavg")
    found = job.dp_sgd
    way = found.learning_rate * 0.5 * job.rounds * found.local_steps
    assert way == pytest.approx(11_655 / 5 * (1 / 6) ** 0.5, rel=1e-3)
    assert (found.local_steps, found.momentum) == (5, 0.0)
    one = Federation(parties=1, min_records=60_000, total_records=60_000, max_records=60_000)
    assert settled("parties.count=1", kind="fedavg", parties=one).rounds >= 20


def test_whole_data_that_are_few_are_in_every_step():
    few = Federation(parties=10, min_records=143, total_records=1437, max_records=144)
    assert settled(parties=few).dp_sgd.sampling_rate == 1.0


@pytest.mark.parametrize("kind", ["fedavg", "distributed-dp-sgd"])
@pytest.mark.parametrize("what", ["neighbouring=add-or-remove-one", "unit=party"])
def test_private_sizes_do_not_reach_the_rule(kind, what):
    private = (f"privacy.{what}", "parties.min-records=6000")
    larger = replace(TEN, total_records=99_999, max_records=50_000)
    assert settled(*private, kind=kind, parties=larger) == settled(*private, kind=kind)
    assert settled(parties=larger, kind=kind) != settled(kind=kind)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("algorithm.rounds", 7),
        ("dp-sgd.sampling-rate", 0.125),
        ("dp-sgd.local-steps", 3),
        ("dp-sgd.clip-norm", 0.1),
        ("dp-sgd.learning-rate", 0.25),
        ("dp-sgd.momentum", 0.75),
    ],
)
@pytest.mark.parametrize("kind", ["fedavg", "distributed-dp-sgd"])
def test_a_number_in_the_job_overrides_its_own_key(key, value, kind):
    job = settled(f"{key}={value}", kind=kind)
    section, name = key.split(".")
    assert job.to_values()[section][name] == value
    found = job.dp_sgd
    if name != "learning-rate":  # which goes along: the way is the budget's
        steps = job.rounds * found.local_steps
        way = found.learning_rate * found.clip_norm * steps / (1 - found.momentum)
        honest = 6 if kind == "distributed-dp-sgd" else 1
        assert way == pytest.approx(11_655 / 5 * (honest / 6) ** 0.5, rel=1e-3)


def test_a_settled_job_is_read_again_and_stays_as_it_is():
    for more in (
        (),
        ("privacy.unit=party",),
        ("dp-sgd.local-epochs=2",),
        ("dp-sgd.batch-size=64",),
    ):
        sizes = ("parties.min-records=6000",)
        job = settled(*sizes, *more)
        again = load_job(values=job.to_values())
        assert again == job
        assert again.resolve_auto(TEN, 10) == job
        assert again.explain_auto(TEN, 10) == ()


def test_a_party_is_clipped_to_the_way_of_a_round():
    whole = Federation(parties=10_000, min_records=1, total_records=10_000, max_records=6)
    job = settled(
        "parties.count=10000", "privacy.unit=party", "parties.min-records=1", kind="fedavg",
        parties=whole,
    )  # fmt: skip
    assert job.dp_sgd.clip_norm == "auto"  # no record's gradient is clipped
    way = job.dp_sgd.party_clip_norm * job.rounds
    assert way == pytest.approx(compute_signal(job, whole, job.privacy.budgets[0])[0] / 5, rel=1e-3)


def test_what_was_chosen_is_said():
    job = load_job(overrides=[*JOB, "algorithm.kind=distributed-dp-sgd"])
    facts, steps = job.explain_auto(TEN, 10)
    assert "signal-to-noise ratio A = 1.17e+04" in facts
    assert "25 rounds" in steps
    assert "clip norm 0.5" in steps
