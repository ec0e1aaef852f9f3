"""The figures of a model are those of scikit-learn's functions of the same names."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from parley.simulations.metrics.evaluation import evaluate_classifier, evaluate_targets


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 200), st.booleans())
def test_two_labels_are_judged_as_by_scikit_learn(seed, count, coarse):
    rng = np.random.default_rng(seed)
    chances = rng.random(count)
    if coarse:  # many equal scores
        chances = np.round(chances, 1)
    labels = np.r_[0, 1, rng.integers(0, 2, count - 2)]
    got = evaluate_classifier(chances, labels, names=("no", "yes"))
    decided = chances >= 0.5
    assert got.auc == pytest.approx(metrics.roc_auc_score(labels, chances))
    expected = metrics.average_precision_score(labels, chances)
    assert got.average_precision == pytest.approx(expected)
    assert got.log_loss == pytest.approx(metrics.log_loss(labels, chances))
    assert got.brier == pytest.approx(metrics.brier_score_loss(labels, chances))
    assert got.recall == pytest.approx(metrics.recall_score(labels, decided))
    if decided.any():
        assert got.precision == pytest.approx(metrics.precision_score(labels, decided))
    else:
        assert got.precision is None
    assert np.array(got.confusion).tolist() == metrics.confusion_matrix(labels, decided).tolist()
    assert sum(each.records for each in got.calibration) == count


def test_several_labels_are_judged_by_means_over_the_labels():
    rng = np.random.default_rng(1)
    labels = np.r_[0, 1, 2, rng.integers(0, 3, 97)]
    chances = rng.dirichlet([1, 1, 1], 100)
    got = evaluate_classifier(chances, labels, names=("a", "b", "c"))
    best = chances.argmax(1)
    assert got.auc == pytest.approx(metrics.roc_auc_score(labels, chances, multi_class="ovr"))
    assert got.recall == pytest.approx(metrics.recall_score(labels, best, average="macro"))
    assert got.precision == pytest.approx(metrics.precision_score(labels, best, average="macro"))
    assert got.log_loss == pytest.approx(metrics.log_loss(labels, chances))
    assert np.array(got.confusion).tolist() == metrics.confusion_matrix(labels, best).tolist()


def test_what_is_not_defined_is_none():
    alone = evaluate_classifier(np.array([0.2, 0.7]), np.array([0, 0]), names=("no", "yes"))
    assert alone.auc is None
    assert alone.average_precision is None
    assert alone.recall is None
    scores = evaluate_classifier(
        np.array([0.2, 0.7]), np.array([0, 1]), names=("no", "yes"), proper=False
    )
    assert scores.log_loss is None
    assert scores.brier is None
    assert scores.calibration == ()
    with pytest.raises(ValueError, match="as many rows as labels"):
        evaluate_classifier(np.zeros(0), np.zeros(0), names=("no", "yes"))


def test_targets_are_judged_by_r2_and_rmse():
    predicted, targets = np.array([0.1, 0.4, -0.5]), np.array([0.0, 0.5, -0.4])
    got = evaluate_targets(predicted, targets)
    assert got.r2 == pytest.approx(metrics.r2_score(targets, predicted))
    assert got.rmse == pytest.approx(metrics.root_mean_squared_error(targets, predicted))
    assert evaluate_targets(predicted, np.ones(3)).r2 is None


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 300))
def test_thresholds_give_precision_and_recall_as_scikit_learn_has_them(seed, count):
    rng = np.random.default_rng(seed)
    chances = rng.beta(1, 8, count)
    labels = np.r_[0, 1, rng.integers(0, 2, count - 2)]
    rows = evaluate_classifier(chances, labels, names=("no", "yes")).thresholds
    assert 0.5 in [row.least for row in rows]
    assert [row.least for row in rows] == sorted({row.least for row in rows})
    for row in rows:
        decided = chances >= row.least
        assert row.positive == pytest.approx(decided.mean())
        assert row.recall == pytest.approx(metrics.recall_score(labels, decided))
        if decided.any():
            assert row.precision == pytest.approx(metrics.precision_score(labels, decided))
        else:
            assert row.precision is None
    assert evaluate_classifier(chances, labels, names=("no", "yes"), proper=False).thresholds == ()
