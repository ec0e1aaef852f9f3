"""How far noise moves gradient steps: against the steps themselves, one impulse at a time."""

import itertools
import math

import numpy as np
import pytest

from parley.client.algorithms.gradient_perturbation import GradientPerturbation
from parley.client.algorithms.iterative_algorithm import HasNoiseGain
from parley.client.algorithms.noise_propagation import compute_noise_gain
from parley.client.models.linear_models import LinearModel
from parley.client.models.logistic_loss import LogisticLoss
from parley.client.models.softmax_loss import SoftmaxLoss
from parley.privacy.accounting.threat_model import Neighbouring

PLAIN = {
    "rounds": 6,
    "learning_rate": 0.5,
    "momentum": 0.0,
    "nesterov": False,
    "average": False,
    "lambda_": 0.0,
}


def algorithm(model=None, **settings):
    return GradientPerturbation(
        model=model or LinearModel(loss=LogisticLoss(), features=5),
        lipschitz=settings.pop("lipschitz", 1.0),
        weights="uniform",
        **{**PLAIN, **settings},
    )


def moved(steps, curvature, done):
    """sd of the model along each direction, by the algorithm's own update on a quadratic."""
    total = np.zeros(len(curvature))
    for noisy in range(done):
        state = steps.init()
        for at in range(done):
            state = steps.update(state, curvature * state["theta"] + (at == noisy))
        total += steps.model_of(state) ** 2
    return np.sqrt(total)


@pytest.mark.parametrize(
    ("momentum", "nesterov", "average", "lambda_"),
    list(itertools.product((0.0, 0.8), (False, True), (False, True), (0.0, 0.1))),
)
def test_no_direction_moves_further_and_one_moves_as_far(momentum, nesterov, average, lambda_):
    steps = algorithm(momentum=momentum, nesterov=nesterov, average=average, lambda_=lambda_)
    curvature = np.linspace(0, 0.125, 5)  # up to half of the loss's ¼
    for done in (2, 6):
        sd = moved(steps, curvature, done)
        gain = steps.compute_noise_gain(done)
        assert sd.max() <= gain * (1 + 1e-12)
        assert sd.max() == pytest.approx(gain, rel=1e-3)


def test_where_no_record_lies_noise_adds_up_as_a_walk():
    assert compute_noise_gain(**PLAIN, smoothness=1, done=6) == pytest.approx(0.5 * math.sqrt(6))
    pulled = compute_noise_gain(**{**PLAIN, "lambda_": 0.2}, smoothness=0, done=6)
    assert pulled == pytest.approx(0.5 * math.sqrt(sum(0.9 ** (2 * k) for k in range(6))))


def test_steps_that_would_diverge_along_one_direction_are_bounded_along_the_others():
    fast = {**PLAIN, "rounds": 60, "learning_rate": 6.0, "momentum": 0.9, "nesterov": True}
    steady = compute_noise_gain(**fast, smoothness=0, done=60)
    assert compute_noise_gain(**fast, smoothness=0.25, done=60) == pytest.approx(steady)
    assert compute_noise_gain(**fast, smoothness=0.5, done=60) > 10 * steady


def test_noise_on_logistic_steps_moves_the_model_by_the_gain_and_no_more():
    rng = np.random.default_rng(7)
    rows = np.eye(5)[rng.choice(5, 400, p=(0.4, 0.3, 0.2, 0.1, 0.0))]  # of the last: no record
    labels = np.where(rng.random(400) < rows @ (0.9, 0.6, 0.4, 0.1, 0.5), 1.0, -1.0)
    steps = algorithm(learning_rate=4.0, momentum=0.5, nesterov=True, rounds=8)
    found = []
    for _ in range(2000):
        state = steps.init()
        for _ in range(8):
            slopes = -labels / (1 + np.exp(labels * (rows @ state["theta"])))
            noise = rng.normal(0, 0.05, 5)
            state = steps.update(state, slopes @ rows / 400 + noise)
        found.append(steps.model_of(state))
    ratio = np.std(found, axis=0) / (0.05 * steps.compute_noise_gain(8))
    assert (ratio < 1.05).all()
    assert ratio[-1] > 0.95  # as far as the bound says
    assert ratio[0] < 0.8  # where most records are, they pull back


def test_nothing_is_claimed_where_the_bound_is_not_proved():
    softmax = LinearModel(loss=SoftmaxLoss(classes=3), features=5)
    assert isinstance(algorithm(), HasNoiseGain)
    assert algorithm(lipschitz=0.5).compute_noise_gain(6) == algorithm().compute_noise_gain(6)
    assert algorithm(softmax, lipschitz=2**0.5).compute_noise_gain(6) is not None
    assert algorithm(softmax, lipschitz=0.5).compute_noise_gain(6) is None
    private = algorithm(neighbouring=Neighbouring.ADD_OR_REMOVE_ONE)
    assert private.compute_noise_gain(6) is None
