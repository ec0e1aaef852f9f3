"""Counts by label and score: one record is in one cell, whatever stands beside it."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from parley.client.algorithms.held_out_histogram import HeldOutCounts
from parley.client.algorithms.score_edges import choose_edges
from parley.client.contract.assumptions import OWN_NETWORK
from parley.client.data.party_block import PartyBlock
from parley.client.models.huber_svm import HuberSVM
from parley.client.models.linear_models import LinearModel
from parley.client.models.logistic_loss import LogisticLoss
from parley.client.models.softmax_loss import SoftmaxLoss
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.sampling.random_stream import Randomness

EDGES = choose_edges(records=24_000, epsilon=1.0)


@dataclass(frozen=True)
class Crowd:
    """A model whose answers depend on who else is asked: of an odd number it is sure, else not."""

    features: int = 3
    classes: int = 2
    kind: str = "mlp"

    def compute_margins(self, theta, rows):
        return np.full((len(rows), 2), [0.0, 4.0 * (len(rows) % 2)])

    def compute_probabilities(self, margins):
        return margins


def test_that_ones_own_network_remembers_nobody_is_assumed_and_said():
    counts = HeldOutCounts(
        learner=Learner(Crowd()), edges=EDGES, neighbouring=Neighbouring.REPLACE_ONE
    )
    assert counts.assumption == ""
    assert replace(counts, learner=Learner(Crowd(kind="net.py:build"))).assumption == OWN_NETWORK


@dataclass(frozen=True)
class Learner:
    model: object
    kind: str = "gradient-perturbation"


def counts(model, theta, features, labels, edges=EDGES):
    algorithm = HeldOutCounts(
        learner=Learner(model), edges=edges, neighbouring=Neighbouring.ADD_OR_REMOVE_ONE
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
    model = LinearModel(loss=SoftmaxLoss(classes=4), features=37)
    for _ in range(30):
        features = rng.normal(size=(67, 37)).astype(rng.choice([np.float32, np.float64]))
        row = rng.normal(size=37)
        theta = np.stack([row, row * (1 + 2**-52), np.nextafter(row, 0), row[::-1]]).ravel()
        labels = rng.integers(0, 4, 67)
        assert moved(model, theta, features, labels, rng.integers(67)).sum() == 1


@pytest.mark.parametrize("loss", [LogisticLoss(), HuberSVM(), SoftmaxLoss(classes=2)])
def test_a_model_that_stands_on_an_edge_for_every_record_gives_nobody_away(loss):
    rng = np.random.default_rng(3)
    model = LinearModel(loss=loss, features=2)
    theta = np.array([0.0, 1.0] if loss.outputs == 1 else [0.0, -0.5, 0.0, 0.5])
    for edge in EDGES:
        margin = np.log(edge / (1 - edge))
        near = margin * (1 + rng.integers(-3, 4, 41) * 2.0**-52)
        features, labels = np.stack([rng.normal(size=41), near], axis=1), rng.integers(0, 2, 41)
        assert moved(model, theta, features, labels, rng.integers(41)).sum() == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_a_model_that_is_not_finite_says_the_same_of_every_record(bad):
    model = LinearModel(loss=SoftmaxLoss(classes=2), features=3)
    features, labels = np.random.default_rng(0).normal(size=(9, 3)), np.arange(9) % 2
    given = counts(model, np.array([bad, 1, -bad, 0, bad, 2]), features, labels, edges=(0.5,))
    assert given.tolist() == [0, 0, 5, 4]


@pytest.mark.parametrize("loss", [LogisticLoss(), SoftmaxLoss(classes=2)])
def test_a_record_is_counted_between_the_edges_that_its_probability_lies_between(loss):
    rng = np.random.default_rng(2)
    model = LinearModel(loss=loss, features=5)
    features, theta = rng.normal(size=(400, 5)), rng.normal(size=model.dimension)
    labels = rng.choice([-1, 1] if loss.outputs == 1 else [0, 1], 400)
    chances = model.compute_probabilities(model.compute_margins(theta, features))[:, 1]
    cells = 2 * np.searchsorted(EDGES, chances, side="right") + (labels > 0)
    given = counts(model, theta, features, labels)
    assert given.tolist() == np.bincount(cells, minlength=40).tolist()


def test_of_several_labels_a_record_is_counted_by_its_own_and_the_predicted_one():
    rng = np.random.default_rng(2)
    model = LinearModel(loss=SoftmaxLoss(classes=3), features=5)
    features, theta = rng.normal(size=(400, 5)) / 3, rng.normal(size=15)
    labels, said = rng.integers(0, 3, 400), model.predict(theta, features)
    given = counts(model, theta, features, labels).reshape(3, 3)
    assert given[1, 2] == ((labels == 1) & (said == 2)).sum()
    assert given.trace() == (labels == said).sum()


@pytest.mark.parametrize(
    "edges", [(), (0.2, 0.8), (0.5, 0.5), (0.0, 0.5), (0.5, 1.0), (0.5, np.nan)]
)
def test_edges_that_are_no_rising_probabilities_or_lack_one_half_are_refused(edges):
    with pytest.raises(ValueError, match=r"rising probabilities in \(0, 1\)"):
        HeldOutCounts(learner=Learner(None), edges=edges, neighbouring=Neighbouring.REPLACE_ONE)
