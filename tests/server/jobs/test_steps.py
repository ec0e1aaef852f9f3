"""Steps by a rule: public numbers alone, and what a job gives stays."""

import numpy as np
import pytest

from parley.client.models.losses import LOSSES
from parley.server.jobs.file import load_job, render_job
from parley.server.jobs.section import JobError
from parley.server.jobs.steps import LOSSES as RULED
from parley.server.planning.federation import Federation
from parley.server.planning.release import algorithm_for, model_for


def job(*overrides):
    return load_job(overrides=["algorithm.rounds=auto", *overrides])


@pytest.mark.parametrize(
    ("lambda_", "rounds", "momentum"), [(1e-3, 60, 11 / 13), (1e-2, 26, 0.672), (10, 10, 0.006)]
)
def test_known_answers(lambda_, rounds, momentum):
    own = job(f"model.lambda={lambda_}").algorithm
    assert (own.rounds, own.nesterov, own.average, own.clip_norm) == (rounds, True, False, 0.5)
    assert own.momentum == pytest.approx(momentum, abs=1e-3)


def test_its_numbers_are_those_of_the_losses():
    assert set(RULED) == set(LOSSES)
    for kind, numbers in RULED.items():
        if kind.startswith("own-"):
            continue  # its L_s is its code's, which nobody runs to count steps
        planned = load_job(overrides=[f"model.kind={kind}"])
        federation = Federation(parties=5, min_records=9, total_records=45, max_records=9)
        loss = model_for(planned, features=3, classes=3).loss
        slope, curvature = numbers({})
        assert curvature == loss.smoothness
        algorithm_for(planned, model_for(planned, features=3, classes=3), federation)
        if slope is not None:
            assert slope == np.abs(loss.slope(np.zeros(2), np.array([-1.0, 1.0]))).max()


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
