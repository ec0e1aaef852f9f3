"""scikit-learn takes a model as one of its own estimators, as far as a learned one can be."""

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import permutation_importance
from sklearn.metrics import get_scorer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted

import parley
from parley.prediction.model_loading import load_model

SCHEMA = """
[columns]
x1 = { kind = "numeric", range = [-3, 3] }
x2 = { kind = "numeric", range = [-3, 3] }
x3 = { kind = "numeric", range = [-3, 3] }
y = { kind = "label", positive = "b", negative = "a" }
"""

# Why some of scikit-learn's checks cannot hold, and which.
INAPPLICABLE = {
    "a model is made by load_model, not by its constructor; it has no parameters to set": (
        "do_not_raise_errors_in_init_or_set_params parameters_default_constructible"
    ),
    "fit does not train: the model was learned in a run, and has nothing to refuse": (
        "n_features_in n_features_in_after_fitting complex_data estimators_empty_data_messages "
        "estimators_nan_inf estimator_sparse_tag estimator_sparse_array estimator_sparse_matrix "
        "classifiers_one_label classifiers_classes classifiers_train "
        "classifiers_regression_target supervised_y_no_nan supervised_y_2d fit1d"
    ),
    "the check's rows have another number of columns than the schema": (
        "estimators_dtypes dtype_object array_api_input classifier_data_not_an_array "
        "decision_proba_consistency fit_idempotent"
    ),
    "predictions are names of labels, which the check compares as numbers": (
        "estimators_pickle methods_sample_order_invariance methods_subset_invariance"
    ),
}
NOT_APPLICABLE = {
    f"check_{name}": why for why, names in INAPPLICABLE.items() for name in names.split()
}


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("estimator")
    (folder / "schema.toml").write_text(SCHEMA)
    rng = np.random.default_rng(0)
    rows = rng.uniform(-3, 3, (300, 3))
    labels = np.where(rows[:, 0] > 0, "b", "a")
    quick = ["run.seed=3", "parties.count=2", "algorithm.rounds=2", "privacy.epsilon=8"]
    job = parley.load_job(overrides=[*quick, "secure-aggregation.masked-check=false"])
    data = (rows, labels)
    result = parley.run(job, data=data, schema=folder / "schema.toml", out=folder / "run")
    return load_model(result.folder), rows, labels


@pytest.mark.filterwarnings("ignore")
def test_the_checks_of_scikit_learn_that_apply_pass_and_no_other_is_listed(learned):
    results = check_estimator(
        learned[0], expected_failed_checks=NOT_APPLICABLE, on_skip=None, on_fail=None
    )
    by = {"passed": set(), "xfail": set(), "skipped": set(), "failed": set()}
    for result in results:
        by[result["status"]].add(result["check_name"])
    assert not by["failed"]
    assert len(by["passed"]) >= 20
    # A check that would pass is not excused.
    assert not by["passed"] & set(NOT_APPLICABLE)


def test_what_takes_a_fitted_estimator_takes_a_model(learned):
    model, rows, labels = learned
    check_is_fitted(model)
    assert clone(model) is model
    with pytest.warns(UserWarning, match="fit does not train"):
        assert model.fit(rows, labels) is model
    right = np.mean(model.predict(rows) == labels)
    assert right > 0.8
    assert model.score(rows, labels) == right
    assert get_scorer("roc_auc")(model, rows, labels) > 0.9
    with pytest.warns(UserWarning, match="fit does not train"):
        whole = make_pipeline(FunctionTransformer(), model).fit(rows, labels)
    assert whole.score(rows, labels) == right
    importance = permutation_importance(model, rows, labels, n_repeats=2, random_state=0)
    assert importance.importances_mean.argmax() == 0
    calibrated = CalibratedClassifierCV(FrozenEstimator(model)).fit(rows, labels)
    assert calibrated.predict_proba(rows).shape == (300, 2)
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict(rows) == model.predict(rows)).all()
    with pytest.raises(ValueError, match="no parameters"):
        model.set_params(theta=0)
    with pytest.raises(ValueError, match="a sparse matrix"):
        model.predict(csr_array(rows))
