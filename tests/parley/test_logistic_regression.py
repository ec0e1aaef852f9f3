"""`parley.LogisticRegression` is an estimator of scikit-learn whose fits cost ε."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import parley
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import BudgetExceeded
from parley.privacy.privacy_warning import PrivacyWarning

RNG = np.random.default_rng(4)
X = RNG.normal(size=(240, 3)).round(3)
Y = np.where(X[:, 0] > 0, "sick", "well")
QUICK = {"algorithm.rounds": 2, "secure-aggregation.masked-check": False}
BOUNDS = (-5, 5)

DIFFERENT_NOISE = {
    "check_fit_idempotent": "two fits draw other noise",
    "check_supervised_y_2d": "two fits draw other noise",
    "check_classifier_data_not_an_array": "two fits draw other noise",
}
"""Checks of scikit-learn that fresh noise forbids."""


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def build(**settings):
    return parley.LogisticRegression(**{"parties": 2, "bounds": BOUNDS, "job": QUICK} | settings)


@pytest.mark.heavy  # 50 checks, most with fits: 20 s
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_s_checks_hold_but_for_those_that_fresh_noise_forbids():
    model = parley.LogisticRegression(epsilon=20, parties=2)
    results = check_estimator(model, on_fail=None, on_skip=None)
    failed = {each["check_name"] for each in results if each["status"] == "failed"}
    assert failed <= set(DIFFERENT_NOISE)
    assert sum(each["status"] == "passed" for each in results) > 40


def test_a_fit_is_a_run_and_predicts_labels_of_their_type():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        model = build(epsilon=30).fit(X, Y)
    assert model.epsilon_ == pytest.approx(30, rel=1e-6)
    assert isinstance(model.run_, parley.Run)
    assert model.classes_.tolist() == ["sick", "well"]
    assert (model.n_features_in_, model.predict(X[:5]).shape) == (3, (5,))
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    assert model.decision_function(X).shape == (240,)
    assert model.score(X, Y) == np.mean(model.predict(X) == Y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_settings_are_cloned_shown_and_checked():
    model = build(epsilon=3)
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(epsilon=4).epsilon == 4
    assert repr(parley.LogisticRegression(epsilon=2)) == "LogisticRegression(epsilon=2)"
    with pytest.raises(ValueError, match="expected one of epsilon, parties, delta, bounds"):
        model.set_params(epsilom=4)
    for method in ("predict", "predict_proba", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(model, method)(X)
    with pytest.raises(ValueError, match="one class: every label is 'a'"):
        model.fit(X, np.full(240, "a"))


def test_what_epsilon_does_not_cover_is_warned_of(monkeypatch):
    monkeypatch.setattr(parley.LogisticRegression, "_fits_without_ledger", 0)
    with pytest.warns(PrivacyWarning, match="bounds were read off X") as first:
        build(bounds=None).fit(X, Y)
    assert len([each for each in first if each.category is PrivacyWarning]) == 1
    with pytest.warns(PrivacyWarning, match="share add up: pass ledger="):
        build().fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        build(ledger="own.sqlite").fit(X, Y)


def test_a_ledger_charges_the_folds_of_a_cross_validation_to_one_budget(tmp_path):
    pipeline = make_pipeline(FunctionTransformer(), build(ledger="cv.sqlite", budget=3))
    assert cross_val_score(pipeline, X, Y, cv=3).shape == (3,)
    with Ledger.open(tmp_path / "cv.sqlite") as ledger:
        (account,) = ledger.list_accounts()
    assert account.spent.releases == 6
    _, spent = account.spent.compute_lowest_epsilon(1e-5)
    assert 1 < spent <= 3
    model = build(ledger="one.sqlite", budget=1)
    model.fit(X[:200], Y[:200])
    with pytest.raises(BudgetExceeded, match="got ε = 1"):
        model.fit(X[40:], Y[40:])
