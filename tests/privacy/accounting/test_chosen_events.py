"""Events that answers choose: what an account's ε is worth then (docs/privacy.md, section 7)."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.events import Gaussian, Pure
from parley.privacy.accounting.gaussian_curve import gaussian_epsilon
from parley.privacy.calibration.inverses import gaussian_mu

EPSILON, DELTA, SHARE = 1.0, 1e-5, 0.3
X = np.linspace(-12, 12, 60_001)
WEIGHTS = np.exp(-(X**2) / 2) / math.sqrt(2 * math.pi) * (X[1] - X[0])


def beyond(loss, epsilon, of):
    """E (1 − e^(ε − loss − L))⁺ of a Gaussian's or a randomised response's loss L."""
    left = epsilon - loss
    if isinstance(of, Gaussian):
        near, far = of.mu / 2 - left / of.mu, -of.mu / 2 - left / of.mu
        return ndtr(near) - np.exp(left) * ndtr(far)
    true = math.exp(of.epsilon) / (1 + math.exp(of.epsilon))
    ends = ((true, of.epsilon), (1 - true, -of.epsilon))
    return sum(share * np.maximum(0, -np.expm1(left - loss)) for share, loss in ends)


def test_a_choice_between_kinds_of_noise_costs_what_the_docs_say_and_one_of_sizes_nothing():
    mu = gaussian_mu(EPSILON, DELTA)
    first = Gaussian(mu=mu * math.sqrt(SHARE))
    loss = first.mu**2 / 2 + first.mu * X  # of the first answer; it decides what is asked next
    more = Gaussian(mu=math.sqrt(mu**2 - first.mu**2) * (1 - 1e-9))
    pure = Pure(epsilon=(EPSILON - gaussian_epsilon(first.mu, DELTA)) * (1 - 1e-9))
    small = [Gaussian(mu=more.mu * share) for share in (0.25, 0.5, 0.75)]
    for each in (more, pure, *small):  # the account has room for any of them
        assert Composition.of([first, each]).epsilon(DELTA)[1] <= EPSILON

    def delta(*choices, epsilon=EPSILON):
        by_loss = np.array([beyond(loss, EPSILON, each) for each in choices]).argmax(axis=0)
        found = np.array([beyond(loss, epsilon, each) for each in choices])
        return float(WEIGHTS @ found[by_loss, np.arange(len(X))]) / DELTA

    assert delta(more) == pytest.approx(1, rel=1e-6)
    assert delta(pure) < 0.7
    assert delta(more, *small) <= 1 + 1e-6  # of one kind: what is proved
    assert delta(more, pure) == pytest.approx(1.55, abs=0.01)
    assert delta(more, pure, epsilon=1.021 * EPSILON) > 1 > delta(more, pure, epsilon=1.023)
