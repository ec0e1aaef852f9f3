"""Prepared rows, figures of linear models, and what their losses refuse."""

import mpmath
import numpy as np
import pytest
from linear_blocks import KINDS, make_block, theta_for

from parley.client.models.exact_math import exp, sum_in_order
from parley.client.models.huber_svm import HuberSVM
from parley.client.models.linear_models import LinearModel
from parley.client.models.logistic_loss import LogisticLoss
from parley.client.models.row_quantization import prepare_rows
from parley.client.models.softmax_loss import SoftmaxLoss
from parley.client.models.squared_loss import SquaredLoss


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_prepared_rows_are_whole_numbers_in_the_unit_ball_and_ignore_each_other(dtype):
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(50, 7)) * 10.0 ** rng.integers(-3, 200, (50, 1))
    raw[3] = 0
    raw = np.clip(raw, -np.finfo(dtype).max, np.finfo(dtype).max).astype(dtype)
    for intercept in (False, True):
        rows = prepare_rows(raw, intercept)
        assert rows.dtype == dtype
        whole = [[int(v * 2**16) for v in row.tolist()] for row in rows]
        assert (np.array(whole) == rows.astype(np.float64) * 2**16).all()
        assert max(sum(v * v for v in row) for row in whole) <= 2**32
        assert (rows[10:11] == prepare_rows(raw[10:11], intercept)).all()
    assert rows.shape == (50, 8)
    assert (rows[:, -1] == int(2**16 / np.sqrt(2)) / 2**16).all()
    inside = np.full((1, 2), 0.1, dtype)
    np.testing.assert_allclose(prepare_rows(inside, False), inside, atol=2**-16)
    assert (prepare_rows(-inside, False) == -prepare_rows(inside, False)).all()


def test_prepare_rows_names_the_first_value_that_is_not_finite():
    raw = np.zeros((4, 3))
    raw[2, 1] = np.nan
    with pytest.raises(ValueError, match="row 2, column 1"):
        prepare_rows(raw, False)


def test_evaluate_gives_loss_and_metric_of_the_whole(monkeypatch):
    for name, kind in KINDS.items():
        model, block = make_block(kind, [301], 5)
        theta = theta_for(model)
        x, y = block.features, block.labels
        before = model.evaluate(theta, x, y, 0.2)
        monkeypatch.setattr("parley.client.models.linear_models.CHUNK_BYTES", 1000)
        loss, metric = model.evaluate(theta, x, y, 0.2)
        monkeypatch.undo()
        assert (loss, metric) == pytest.approx(before, rel=1e-12)
        mean = model.losses(theta, block)[0]
        assert loss == pytest.approx(mean + 0.1 * theta @ theta, rel=1e-12)
        predicted = model.predict(theta, x)
        if name == "ridge":
            expected = 1 - ((predicted - y) ** 2).sum() / ((y - y.mean()) ** 2).sum()
        else:
            expected = (predicted == y).mean()
        assert model.compute_metric(theta, x, y) == pytest.approx(metric, rel=1e-12)
        assert metric == pytest.approx(expected, rel=1e-9)


def test_ridge_projects_to_its_ball_and_others_not_at_all():
    ridge = LinearModel(loss=KINDS["ridge"], features=3)
    far = np.array([[3.0, 0, 4.0], [0.1, 0, 0]])
    np.testing.assert_allclose(ridge.project(far), [[1.2, 0, 1.6], [0.1, 0, 0]])
    assert ridge.project(far[0]).shape == (3,)
    assert LinearModel(loss=LogisticLoss(), features=3).project(far) is far


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (LogisticLoss(), [-1, 1], [0, 1]),
        (HuberSVM(), [-1.0], [2.0]),
        (SquaredLoss(radius=1, label_bound=2), [-2.0, 1.5], [2.1]),
        (SquaredLoss(radius=1, label_bound=2), [0.0], [np.nan]),
        (SoftmaxLoss(classes=3), [0, 2], [3]),
        (SoftmaxLoss(classes=3), [0.0], [0.5]),
    ],
)
def test_labels_a_loss_is_not_defined_for_are_refused(kind, good, bad):
    kind.check_labels(np.array(good))
    with pytest.raises(ValueError, match="Expected"):
        kind.check_labels(np.array(bad))


@pytest.mark.parametrize(
    "build",
    [
        lambda: HuberSVM(width=0),
        lambda: SoftmaxLoss(classes=1),
        lambda: SquaredLoss(radius=np.inf, label_bound=1),
        lambda: SquaredLoss(radius=1, label_bound=-1),
        lambda: LinearModel(loss=LogisticLoss(), features=0),
    ],
)
def test_parameters_out_of_range_are_refused(build):
    with pytest.raises(ValueError, match="Expected"):
        build()


def test_exp_is_right_to_its_last_digits_and_a_number_s_own():
    rng = np.random.default_rng(0)
    v = np.concatenate([rng.uniform(-700, 700, 500), rng.normal(size=500), [0.0, 5e-324, -1e-300]])
    found = exp(v)
    with mpmath.workdps(40):
        off = [abs(float(mpmath.mpf(e) / mpmath.exp(w) - 1)) for e, w in zip(found, v, strict=True)]
    assert (np.array(off) <= 2.0**-49 + np.abs(v) * 2.0**-52).all()
    for at in (0, 3, 501):
        assert exp(v[at : at + 1])[0] == found[at] == exp(v[at:])[0] == exp(v[: at + 1])[at]
    assert exp(np.array([-np.inf, -1e308, -701.0])).tolist() == [exp(np.array([-700.0]))[0]] * 3
    assert np.isnan(exp(np.array([np.nan]))[0])


def test_sums_are_from_the_first_to_the_last():
    values = np.array([[1.0, 1e16, -1e16, 1.0]])
    assert sum_in_order(values).tolist() == [1.0]
