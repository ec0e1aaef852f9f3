"""A certificate bounds the gradient that records have in exact arithmetic, whatever they are."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from exact_slopes import exact_slope
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.client.models.class_weights import ClassWeightedLoss
from parley.client.models.huber_svm import HuberSVM
from parley.client.models.linear_models import LinearModel
from parley.client.models.logistic_loss import LogisticLoss
from parley.client.models.softmax_loss import SoftmaxLoss
from parley.client.models.tabulated_losses import NODES, REACH, TabledSignLoss
from parley.client.solvers.optimum_certificate import (
    bound_gradient_norms,
    combine_integers,
    round_to_grid,
    split_into_integers,
)

_EDGES = np.sort(np.random.default_rng(3).uniform(-2, 2, (2, NODES)))
LOSSES = {
    "logistic": LogisticLoss(),
    "huber-svm": HuberSVM(width=0.013),
    "softmax": SoftmaxLoss(classes=3),
    "own": TabledSignLoss(slopes=tuple(map(tuple, _EDGES.tolist())), starts=(0.0, 0.0)),
    "weighted": ClassWeightedLoss(loss=LogisticLoss(), weights=(0.3, 7.1)),
    "weighted-softmax": ClassWeightedLoss(loss=SoftmaxLoss(classes=3), weights=(0.3, 7.1, 1.0)),
}
EACH = pytest.mark.parametrize("name", LOSSES)
HOSTILE = [
    0.0,
    -0.0,
    5e-324,
    1e-300,
    2.0**-17,
    2.0**-16,
    1 / 3,
    0.999,
    1.0,
    1.8e308,
    np.inf,
    np.nan,
]


def exact_gradient(loss, rows, labels, theta, lambda_, tilt):
    """‖∇J(θ)‖ of float64 numbers as they are."""
    with mpmath.workdps(60):
        outputs = loss.outputs
        theta = [[mpmath.mpf(float(t)) for t in row] for row in theta.reshape(outputs, -1)]
        total = [[mpmath.mpf(0) for _ in row] for row in theta]
        for row, y in zip(rows, labels, strict=True):
            x = [mpmath.mpf(float(each)) for each in row]
            z = [mpmath.fdot(own, x) for own in theta]
            for own, slope in zip(total, exact_slope(loss, z, y), strict=True):
                for at, each in enumerate(x):
                    own[at] += slope * each / len(rows)
        tilts = tilt.reshape(outputs, -1)
        flat = [
            total[k][at] + lambda_ * theta[k][at] + mpmath.mpf(float(tilts[k][at]))
            for k in range(outputs)
            for at in range(len(theta[0]))
        ]
        return mpmath.sqrt(mpmath.fsum(each * each for each in flat))


def hostile(rng, count, features):
    rows = rng.choice(HOSTILE, size=(count, features)) * rng.choice([-1.0, 1.0], (count, features))
    plain = rng.random(count) < 0.6
    rows[plain] = rng.normal(size=(int(plain.sum()), features)) / features**0.5
    with np.errstate(all="ignore"):
        return round_to_grid(rows)


@EACH
@pytest.mark.parametrize("size", [0.0, 1e-250, 1.0, 1e4, 1e8])
def test_no_records_make_the_bound_too_small(name, size):
    loss = LOSSES[name]
    rng = np.random.default_rng(5)
    rows = hostile(rng, 9, 5)
    labels = rng.integers(0, 3, 9) if loss.outputs > 1 else rng.choice([-1.0, 1.0], 9)
    model = LinearModel(loss=loss, features=5)
    theta = (rng.normal(size=model.dimension) * size)[None]
    tilt = rng.normal(size=(1, model.dimension)) / 3
    real = np.arange(12) < 9
    padded = np.concatenate([rows, np.zeros((3, 5))])
    back, bound = bound_gradient_norms(
        model,
        padded[None],
        np.concatenate([labels, labels[:3]])[None],
        real[None],
        theta,
        lambda_=1e-3,
        tilt=tilt,
    )
    truth = exact_gradient(loss, rows, labels, back[0], mpmath.mpf(1e-3), tilt)
    assert bound[0] >= truth
    # And it is of use: the smallest gradient that may be asked for is 2^-36 of G.
    assert bound[0] <= truth * (1 + 2.0**-30) + 2.0**-38 * loss.lipschitz * max(1, size * 1e-3)


@EACH
def test_slopes_are_off_by_no_more_than_the_table_says(name):
    loss = LOSSES[name]
    rng = np.random.default_rng(7)
    spread = [0.0, 1e-9, 0.3, 1.0, 1.013, 5.0, REACH, 40.0, 699.0, 745.0, 1e6, 1e12]
    margins = rng.choice(spread, size=(600, loss.outputs)) * rng.choice(
        [-1, 1], (600, loss.outputs)
    )
    margins += rng.normal(size=margins.shape) * rng.choice([0, 1e-12, 1e-3, 1], (600, 1))
    labels = rng.integers(0, 3, 600) if loss.outputs > 1 else rng.choice([-1.0, 1.0], 600)
    with np.errstate(all="ignore"):
        found = loss.compute_slopes(margins if loss.outputs > 1 else margins[:, 0], labels)
    allowed = loss.lipschitz * 2.0**-43 * (1 + loss.outputs / 2**9) + loss.smoothness * 2.0**-46
    with mpmath.workdps(60):
        for z, y, own in zip(margins, labels, found.reshape(600, -1), strict=True):
            truth = exact_slope(loss, z, y)
            each = zip(own.tolist(), truth, strict=True)
            assert mpmath.sqrt(sum((mpmath.mpf(a) - b) ** 2 for a, b in each)) <= allowed


@given(st.lists(st.floats(), min_size=1, max_size=6))
@settings(max_examples=300)
def test_what_is_cut_into_whole_numbers_is_what_is_put_together(values):
    values = np.array([values])
    with np.errstate(all="ignore"):
        parts, units = split_into_integers(values, 26)
        back = combine_integers(parts, units)[0]
    if not np.isfinite(values).all():
        assert not np.isfinite(back).all()
        return
    assert all((part == np.rint(part)).all() and (np.abs(part) < 2**26).all() for part in parts)
    by_unit = list(zip(parts, units, strict=True))
    for at, value in enumerate(values[0].tolist()):
        own = sum(Fraction(part[0, at]) * Fraction(unit[0]) for part, unit in by_unit)
        assert own == Fraction(back[at])
        assert abs(Fraction(value) - own) < Fraction(units[-1][0])


def test_a_model_that_is_not_finite_has_no_bound():
    model = LinearModel(loss=LogisticLoss(), features=2)
    theta = np.array([[np.nan, 0.0], [np.inf, 1.0], [1e308, -1e308], [0.0, 0.0]])
    rows, labels = np.full((4, 1, 2), 0.5), np.ones((4, 1))
    with np.errstate(all="ignore"):
        bound = bound_gradient_norms(
            model, rows, labels, np.ones((4, 1), bool), theta, lambda_=10.0
        )[1]
    assert (bound[:3] > 1e300).all()
    assert bound[3] < 1


def test_rows_are_cut_towards_zero_and_none_is_longer_than_one():
    rows = np.array([[[0.5 + 2.0**-20, -1 / 3], [0.6, 0.8], [1.0, 2.0**-16], [np.nan, 0.0]]])
    found = round_to_grid(rows)
    assert found[0, 0].tolist() == [0.5, -np.floor(2**16 / 3) / 2**16]
    assert (np.abs(found) <= np.abs(rows))[0, :3].all()
    assert (found[0, 1] > 0.5).all()
    assert found[0, 2:].tolist() == [[0, 0], [0, 0]]
