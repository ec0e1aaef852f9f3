"""Counts of right answers: one record is in one cell, whatever stands beside it."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from parley.client.algorithms.held_out_counts import HeldOutCounts
from parley.client.contract.assumptions import REMEMBERED
from parley.client.data.block import PartyBlock
from parley.client.models.linear import LinearModel
from parley.client.models.losses import Softmax
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.sampling.stream import Randomness


@dataclass(frozen=True)
class Crowd:
    """A model whose answers depend on who else is asked: of an odd number it says 1, else 0."""

    features: int = 3
    classes: int = 2
    kind: str = "mlp"

    def predict(self, theta, rows):
        return np.full(len(rows), len(rows) % 2)


def test_that_ones_own_network_remembers_nobody_is_assumed_and_said():
    counts = HeldOutCounts(
        learner=Learner(Crowd()), by_class=False, neighbouring=Neighbouring.REPLACE_ONE
    )
    assert counts.assumption == ""
    assert replace(counts, learner=Learner(Crowd(kind="net.py:build"))).assumption == REMEMBERED


@dataclass(frozen=True)
class Learner:
    model: object
    kind: str = "gradient-perturbation"


def counts(model, theta, features, labels):
    algorithm = HeldOutCounts(
        learner=Learner(model), by_class=True, neighbouring=Neighbouring.ADD_OR_REMOVE_ONE
    )
    block = PartyBlock(features=features, labels=labels, offsets=np.array([0, len(labels)]))
    given = algorithm.local({"theta": theta}, block, None, Randomness.from_seed(1))
    return given.values[0]


def moved(model, theta, features, labels, gone):
    kept = np.delete(np.arange(len(labels)), gone)
    one = counts(model, theta, features, labels)
    two = counts(model, theta, features[kept], labels[kept])
    return np.abs(one - two)


@pytest.mark.parametrize("gone", [0, 7, 39])
def test_a_record_that_is_gone_takes_no_answer_but_its_own_with_it(gone):
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(40, 3)), rng.integers(0, 2, 40)
    assert moved(Crowd(), np.zeros(6), features, labels, gone).sum() == 1


def test_a_model_that_stands_on_the_edge_for_every_record_gives_nobody_away():
    """θ whose classes tie up to the last bits: a product's shape would decide the answers."""
    rng = np.random.default_rng(1)
    model = LinearModel(loss=Softmax(classes=4), features=37)
    for _ in range(30):
        features = rng.normal(size=(67, 37)).astype(rng.choice([np.float32, np.float64]))
        row = rng.normal(size=37)
        theta = np.stack([row, row * (1 + 2**-52), np.nextafter(row, 0), row[::-1]]).ravel()
        labels = rng.integers(0, 4, 67)
        assert moved(model, theta, features, labels, rng.integers(67)).sum() == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_a_model_that_is_not_finite_says_the_same_of_every_record(bad):
    model = LinearModel(loss=Softmax(classes=2), features=3)
    features, labels = np.random.default_rng(0).normal(size=(9, 3)), np.arange(9) % 2
    given = counts(model, np.array([bad, 1, -bad, 0, bad, 2]), features, labels)
    assert given.tolist() == [5, 0, 0, 4]


def test_a_linear_model_says_what_it_predicts():
    rng = np.random.default_rng(2)
    model = LinearModel(loss=Softmax(classes=3), features=5)
    features, theta = rng.normal(size=(400, 5)) / 3, rng.normal(size=15)
    labels = model.predict(theta, features)
    given = counts(model, theta, features, labels)
    assert given[::2].sum() == 400
