"""Steps by a rule: public numbers alone, and what a job gives stays."""

import numpy as np
import pytest

from parley.client.models.losses import LOSSES
from parley.server.jobs.file import load_job, render_job
from parley.server.jobs.section import JobError


def job(*overrides):
    return load_job(overrides=["algorithm.rounds=auto", *overrides])


@pytest.mark.parametrize(
    ("lambda_", "rounds", "momentum"), [(1e-3, 60, 11 / 13), (1e-2, 26, 0.672), (10, 10, 0.006)]
)
def test_known_answers(lambda_, rounds, momentum):
    own = job(f"model.lambda={lambda_}").algorithm
    assert (own.rounds, own.nesterov, own.average, own.clip_norm) == (rounds, True, False, 0.5)
    assert own.momentum == pytest.approx(momentum, abs=1e-3)


def test_a_slope_at_zero_that_is_stated_is_that_of_the_loss():
    loss = LOSSES["logistic"]()
    assert loss.slope_at_zero == np.abs(loss.slope(np.zeros(2), np.array([-1.0, 1.0]))).max()
    assert [name for name, each in LOSSES.items() if each.slope_at_zero is not None] == ["logistic"]


@pytest.mark.parametrize(("kind", "rounds"), [("ridge", 51), ("huber-svm", 51), ("softmax", 36)])
def test_other_losses_have_their_own_curvature(kind, rounds):
    own = job(f"model.kind={kind}").algorithm
    assert (own.rounds, own.clip_norm) == (rounds, "auto")


def test_what_a_job_gives_stays_and_the_numbers_stand_in_it():
    given = job("algorithm.momentum=0.5", "algorithm.clip-norm=auto")
    assert (given.algorithm.momentum, given.algorithm.clip_norm) == (0.5, "auto")
    assert "rounds = 26" in render_job(given)
    heavy = job("model.class-weights=[1, 4]").algorithm
    assert heavy.clip_norm == 2.0


def test_what_takes_no_steps_has_one_round_and_networks_are_refused():
    assert job("algorithm.kind=output-perturbation").rounds == 1
    with pytest.raises(JobError, match=r"algorithm\.rounds"):
        job("algorithm.kind=fedavg", "model.kind=mlp")
