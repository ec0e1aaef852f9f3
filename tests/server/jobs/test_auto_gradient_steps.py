"""Steps by a rule: public facts alone, and what a job gives stays."""

from dataclasses import replace

import pytest

import parley
from parley.server.jobs.auto_gradient_steps import choose_gradient_steps
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job, render_job
from parley.server.jobs.section_base import JobError

TEN = Federation(parties=10, min_records=2413, total_records=24130, max_records=2413, numbers=6)
ADULT = ("parties.count=10", "privacy.epsilon=0.5", "privacy.delta=1e-5")


def job(*overrides):
    return load_job(overrides=list(overrides))


def settled(*overrides, parties=TEN, classes=0):
    return job(*ADULT, *overrides).resolve_auto(parties, classes)


@pytest.mark.parametrize(
    ("overrides", "classes", "rounds", "momentum", "rate", "clip", "lambda_"),
    [
        ((), 0, 58, 0.9138, 3.951, 0.5, 3.762e-5),
        (("privacy.epsilon=0.01",), 0, 10, 0.5, 3.833, 0.5, 1.304e-3),
        (("privacy.epsilon=100",), 0, 120, 0.9583, 6.0, 0.5, 5e-7),
        (("model.kind=softmax",), 3, 69, 0.9275, 1.973, 0.7071, 5.32e-5),
        (("model.kind=ridge",), 0, 120, 0.9541, 0.9872, 0.1416, 4.263e-5),
    ],
)
def test_known_answers(overrides, classes, rounds, momentum, rate, clip, lambda_):
    own = settled(*overrides, classes=classes)
    steps = own.algorithm
    targets = "model.kind=ridge" in overrides
    assert (steps.rounds, steps.nesterov, steps.average) == (rounds, True, targets)
    assert not targets or own.model.radius == 8
    numbers = (steps.momentum, steps.learning_rate, steps.clip_norm, own.model.lambda_)
    assert numbers == pytest.approx((momentum, rate, clip, lambda_), rel=0.02)


def test_more_signal_buys_more_steps_and_less_regularisation():
    ruled = [
        choose_gradient_steps(signal=each, lipschitz=1.0, curvature=0.25, targets=False)
        for each in (1, 10, 100, 1000, 10_000)
    ]
    assert [each.rounds for each in ruled] == sorted(each.rounds for each in ruled)
    assert [each.lambda_ for each in ruled] == sorted((e.lambda_ for e in ruled), reverse=True)
    assert all(each.learning_rate <= 6 and 0 <= each.momentum < 1 for each in ruled)


@pytest.mark.parametrize(
    ("overrides", "times"),
    [
        (("privacy.noise-point=server",), 1.291),  # no shares that collude or drop out
        (("privacy.noise-point=party",), 0.408),  # √(1/10) of a server's
        (("privacy.neighbouring=add-or-remove-one", "parties.min-records=2413"), 2),
        (("model.class-weights=[1, 2]",), 1),  # the clip is twice as long, and so is the noise
    ],
)
def test_the_way_is_as_long_as_the_noise_that_the_job_really_has_allows(overrides, times):
    plain, other = settled(), settled(*overrides)
    heavier = other.algorithm.clip_norm / plain.algorithm.clip_norm
    assert plain.model.lambda_ / other.model.lambda_ * heavier == pytest.approx(times, rel=0.01)


def test_private_sizes_do_not_reach_the_rule():
    private = ("privacy.neighbouring=add-or-remove-one", "parties.min-records=2413")
    larger = replace(TEN, total_records=99_999, max_records=50_000)
    assert settled(*private, parties=larger) == settled(*private)
    assert settled(parties=larger) != settled()


def test_what_a_job_gives_stays_and_the_numbers_stand_in_the_one_that_a_run_keeps(tmp_path):
    given = settled("algorithm.momentum=0.5", "algorithm.clip-norm=2", "model.lambda=0.1")
    assert (given.algorithm.momentum, given.algorithm.clip_norm) == (0.5, 2)
    assert (given.algorithm.rounds, given.model.lambda_) == (58, 0.1)
    assert "rounds = 58" in render_job(given)
    assert given.resolve_auto(TEN, 0) == given
    run = parley.run(job(f"run.out={tmp_path}"))
    kept = load_job(run.folder / "job.toml")
    assert kept.rounds == run.summary.rounds == parley.plan(job()).rounds
    assert parley.run(None, resume=run.folder).summary.rounds == kept.rounds


def test_what_takes_no_steps_has_one_round():
    assert job("algorithm.kind=output-perturbation").rounds == 1
    with pytest.raises(JobError, match="resolved job"):
        _ = job().rounds


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("privacy.delta=0", "privacy.noise=laplace-l1"), "laplace-l1 at δ = 0"),
        (("privacy.noise=l2-laplace",), "l2-laplace at δ = 1e-05"),
        (("algorithm.kind=rajkumar-agarwal",), "not rajkumar-agarwal's"),
        (("algorithm.kind=output-perturbation",), "not output-perturbation's"),
    ],
)
def test_where_no_rule_applies_defaults_are_what_they_were_and_the_plan_says_why(overrides, said):
    own = job(*overrides).resolve_auto()
    assert own.is_resolved
    assert own.rounds == (own.algorithm.releases or 10)
    assert (own.model.features, own.model.has_intercept, own.model.regularisation) == (
        *("none", True),
        0.01,
    )
    assert said in parley.plan(job(*overrides)).chosen[0]


@pytest.mark.parametrize(
    ("epsilon", "features", "intervals"), [(0.01, "none", 0), (0.2, "hats", 4), (0.5, "hats", 8)]
)
def test_numbers_are_hats_where_the_signal_pays_for_them(epsilon, features, intervals):
    own = settled(f"privacy.epsilon={epsilon}").model
    assert (own.features, own.feature_settings.get("intervals", 0)) == (features, intervals)
    assert own.has_intercept is (features == "none")


def test_features_that_a_job_names_and_columns_that_are_no_numbers_or_too_many_stay():
    arrays, many = replace(TEN, numbers=0), replace(TEN, numbers=140)
    assert settled(parties=arrays).model.feature_map == {}
    assert settled(parties=many).model.feature_map == {}
    assert settled("model.features=none").model.feature_map == {}
    named = settled("model.features=bins", "algorithm.rounds=7")
    assert (named.model.feature_map["name"], named.model.has_intercept) == ("bins", True)
    assert settled("algorithm.rounds=7").model.features == "hats"
    with pytest.raises(JobError, match="resolved job"):
        _ = job("algorithm.rounds=7").model.feature_map
