"""Gradients, losses and their privacy constants, against autograd, loops and differences."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.client.data.block import PartyBlock
from parley.client.data.chunks import chunk_ranges, for_each_chunk
from parley.client.models.linear import LinearModel
from parley.client.models.losses import HuberSVM, Logistic, Softmax, SquaredLoss
from parley.client.models.rows import prepare_rows

KINDS = {
    "logistic": Logistic(),
    "huber-svm": HuberSVM(width=0.3),
    "ridge": SquaredLoss(radius=2.0, label_bound=1.0),
    "softmax": Softmax(classes=4),
}


def labels_for(kind, count, rng):
    if isinstance(kind, Softmax):
        return rng.integers(0, kind.classes, count)
    if isinstance(kind, SquaredLoss):
        return rng.uniform(-1, 1, count)
    return rng.choice([-1.0, 1.0], count)


def make_block(kind, sizes, features, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    rows = prepare_rows(rng.normal(size=(sum(sizes), features)).astype(dtype), intercept=True)
    labels = labels_for(kind, len(rows), rng)
    block = PartyBlock(features=rows, labels=labels, offsets=np.r_[0, np.cumsum(sizes)])
    return LinearModel(loss=kind, features=features + 1), block


def theta_for(model, seed=1):
    return np.random.default_rng(seed).normal(size=model.dimension)


def torch_loss(kind, theta, x, y):
    """Mean loss written independently, for autograd."""
    torch = pytest.importorskip("torch")
    if isinstance(kind, Softmax):
        margins = x @ theta.reshape(kind.classes, -1).T
        return torch.nn.functional.cross_entropy(margins, y.long())
    margins = x @ theta
    if isinstance(kind, Logistic):
        return torch.nn.functional.softplus(-y * margins).mean()
    if isinstance(kind, SquaredLoss):
        return ((margins - y) ** 2).mean() / 2
    h, z = kind.width, y * margins
    middle = (1 + h - z) ** 2 / (4 * h)
    return torch.where(z > 1 + h, 0 * z, torch.where(z < 1 - h, 1 - z, middle)).mean()


SIZES = pytest.mark.parametrize("sizes", [[5] * 6, [1, 7, 2, 30, 1]], ids=["uniform", "ragged"])
EACH = pytest.mark.parametrize("name", list(KINDS))


@EACH
@SIZES
def test_gradients_and_losses_equal_autograd_of_every_party(name, sizes):
    torch = pytest.importorskip("torch")
    model, block = make_block(KINDS[name], sizes, 6)
    theta = theta_for(model)
    gradients, losses = model.gradients_and_loss(theta, block)
    for party in range(block.parties):
        own = slice(block.offsets[party], block.offsets[party + 1])
        variable = torch.tensor(theta, requires_grad=True)
        x, y = torch.tensor(block.features[own]), torch.tensor(block.labels[own])
        loss = torch_loss(model.loss, variable, x, y)
        loss.backward()
        np.testing.assert_allclose(gradients[party], variable.grad.numpy(), atol=1e-14)
        np.testing.assert_allclose(losses[party], loss.item(), rtol=1e-13)


@EACH
@SIZES
def test_clipping_equals_a_loop_over_records(name, sizes):
    model, block = make_block(KINDS[name], sizes, 6)
    theta, clip = theta_for(model), 0.3
    records = PartyBlock(
        features=block.features,
        labels=block.labels,
        offsets=np.arange(len(block.labels) + 1),
    )
    each = model.gradients(theta, records)
    norms = np.linalg.norm(each, axis=1)
    assert (norms > clip).any()
    each *= np.minimum(1, clip / np.maximum(norms, 1e-30))[:, None]
    expected = [rows.mean(axis=0) for rows in np.split(each, block.offsets[1:-1])]
    np.testing.assert_allclose(model.gradients(theta, block, clip), expected, atol=1e-15)


@EACH
@SIZES
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_partys_bits_do_not_depend_on_its_block_mates(name, sizes, dtype, monkeypatch):
    model, block = make_block(KINDS[name], sizes, 6, dtype=dtype)
    theta = theta_for(model)
    gradients, losses = model.gradients_and_loss(theta, block, 0.5)
    assert gradients.dtype == np.float64  # float32 rows, too, are added up in float64
    for party in range(block.parties):
        alone, loss = model.gradients_and_loss(theta, block.take([party]), 0.5)
        assert (alone[0] == gradients[party]).all()
        assert loss[0] == losses[party]
    monkeypatch.setattr("parley.client.models.linear.CHUNK_BYTES", 500)
    assert (model.gradients(theta, block, 0.5) == gradients).all()


@EACH
@SIZES
def test_each_party_may_have_a_theta_of_its_own(name, sizes):
    model, block = make_block(KINDS[name], sizes, 6)
    thetas = np.random.default_rng(3).normal(size=(block.parties, model.dimension))
    gradients = model.gradients(thetas, block)
    for party in range(block.parties):
        alone = model.gradients(thetas[party], block.take([party]))[0]
        assert (alone == gradients[party]).all()


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(list(KINDS)),
    seed=st.integers(0, 2**32 - 1),
    scale=st.floats(1e-3, 1e3),
)
def test_lipschitz_and_smoothness_hold_between_random_models(name, seed, scale):
    model, block = make_block(KINDS[name], [1] * 20, 4, seed=seed)
    rng = np.random.default_rng(seed)
    first, second = model.project(scale * rng.normal(size=(2, model.dimension)))
    second = first + (second - first) * rng.choice([1e-3, 1.0])
    one, two = model.gradients(first, block), model.gradients(second, block)
    tiny = 1 + 1e-9
    assert (np.linalg.norm(one, axis=1) <= model.lipschitz * tiny).all()
    apart = np.linalg.norm(first - second)
    change = np.linalg.norm(one - two, axis=1)
    assert (change <= model.smoothness * apart * tiny + 1e-12 * model.lipschitz).all()


def test_lipschitz_and_smoothness_are_attained():
    row = np.array([[1.0]])
    block = PartyBlock(features=row, labels=np.array([1.0]), offsets=np.array([0, 1]))
    logistic = LinearModel(loss=Logistic(), features=1)
    assert logistic.gradients(np.array([-40.0]), block)[0, 0] == pytest.approx(-1)
    step = logistic.gradients(np.array([1e-4]), block) - logistic.gradients(np.zeros(1), block)
    assert step[0, 0] / 1e-4 == pytest.approx(0.25, rel=1e-6)
    softmax = LinearModel(loss=Softmax(classes=2), features=1)
    zero = PartyBlock(features=row, labels=np.array([0]), offsets=np.array([0, 1]))
    assert np.linalg.norm(softmax.gradients(np.array([-40.0, 40.0]), zero)) == pytest.approx(
        np.sqrt(2)
    )


@pytest.mark.parametrize("name", ["logistic", "huber-svm"])
def test_extreme_margins_neither_overflow_nor_warn(name):
    model = LinearModel(loss=KINDS[name], features=1)
    block = PartyBlock(
        features=np.array([[1.0], [1.0]]), labels=np.array([1.0, -1.0]), offsets=np.array([0, 1, 2])
    )
    with np.errstate(all="raise", under="ignore"):
        gradients, losses = model.gradients_and_loss(np.array([1e5]), block)
    assert gradients.tolist() == [[0.0], [1.0]]
    assert losses.tolist() == [0.0, pytest.approx(1e5, rel=1e-4)]


def test_prepared_rows_lie_in_the_unit_ball_and_ignore_each_other():
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(50, 7)) * 10.0 ** rng.integers(-3, 200, (50, 1))
    raw[3] = 0
    for intercept in (False, True):
        rows = prepare_rows(raw, intercept)
        assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-15
        assert (rows[10:11] == prepare_rows(raw[10:11], intercept)).all()
    assert rows.shape == (50, 8)
    assert (rows[:, -1] == 1 / np.sqrt(2)).all()
    inside = np.full((1, 2), 0.1)
    assert (prepare_rows(inside, False) == inside).all()
    assert prepare_rows(np.clip(raw, -1e38, 1e38).astype(np.float32), True).dtype == np.float32


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
        monkeypatch.setattr("parley.client.models.linear.CHUNK_BYTES", 1000)
        loss, metric = model.evaluate(theta, x, y, 0.2)
        monkeypatch.undo()
        assert (loss, metric) == pytest.approx(before, rel=1e-12)
        mean = model.gradients_and_loss(theta, block)[1][0]
        assert loss == pytest.approx(mean + 0.1 * theta @ theta, rel=1e-12)
        predicted = model.predict(theta, x)
        if name == "ridge":
            expected = 1 - ((predicted - y) ** 2).sum() / ((y - y.mean()) ** 2).sum()
        else:
            expected = (predicted == y).mean()
        assert model.metric(theta, x, y) == pytest.approx(metric, rel=1e-12)
        assert metric == pytest.approx(expected, rel=1e-9)


def test_ridge_projects_to_its_ball_and_others_not_at_all():
    ridge = LinearModel(loss=KINDS["ridge"], features=3)
    far = np.array([[3.0, 0, 4.0], [0.1, 0, 0]])
    np.testing.assert_allclose(ridge.project(far), [[1.2, 0, 1.6], [0.1, 0, 0]])
    assert ridge.project(far[0]).shape == (3,)
    assert LinearModel(loss=Logistic(), features=3).project(far) is far


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Logistic(), [-1, 1], [0, 1]),
        (HuberSVM(), [-1.0], [2.0]),
        (SquaredLoss(radius=1, label_bound=2), [-2.0, 1.5], [2.1]),
        (SquaredLoss(radius=1, label_bound=2), [0.0], [np.nan]),
        (Softmax(classes=3), [0, 2], [3]),
        (Softmax(classes=3), [0.0], [0.5]),
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
        lambda: Softmax(classes=1),
        lambda: SquaredLoss(radius=np.inf, label_bound=1),
        lambda: SquaredLoss(radius=1, label_bound=-1),
        lambda: LinearModel(loss=Logistic(), features=0),
    ],
)
def test_parameters_out_of_range_are_refused(build):
    with pytest.raises(ValueError, match="Expected"):
        build()


def test_shapes_and_clips_that_cannot_be_meant_are_refused():
    model, block = make_block(Logistic(), [3, 3], 4)
    with pytest.raises(ValueError, match="theta of 5"):
        model.gradients(np.zeros(4), block)
    with pytest.raises(ValueError, match="clip > 0"):
        model.gradients(np.zeros(5), block, clip=0.0)
    with pytest.raises(ValueError, match="rows of 5"):
        model.evaluate(np.zeros(5), block.features[:, :4], block.labels, 0.1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_gradients_work_in_a_forked_process():
    model, block = make_block(Logistic(), [50] * 400, 119)
    theta = theta_for(model)
    here = model.gradients(theta, block)
    child = os.fork()
    if not child:
        os._exit(0 if (model.gradients(theta, block) == here).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_chunks_keep_order_and_pass_errors_on():
    ranges = chunk_ranges(np.arange(0, 101, 5), 11)
    assert for_each_chunk(lambda a, b: (a, b), ranges) == ranges
    assert ranges[0] == (0, 2)
    assert ranges[-1][1] == 20

    def fail(first, last):
        raise KeyError(first)

    with pytest.raises(KeyError):
        for_each_chunk(fail, ranges)


HOSTILE = [0.0, 1e308, -1e308, 1.7e308, -1.7e308, 1e200, 5e-324, -0.0, 1.0]
"""Coordinates of a θ that a server may choose: finite, so that a party accepts them."""


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("clip", [None, 0.25])
@pytest.mark.parametrize("name", ["logistic", "huber-svm", "softmax"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_theta_and_no_record_moves_a_mean_gradient_by_more_than_the_bound(
    name, clip, dtype, data
):
    """At θ = (1e308, −1e308, …) a margin is ∞ − ∞ for some records and finite for others."""
    model, block = make_block(KINDS[name], [6, 3], 4, seed=data.draw(st.integers(0, 99)))
    entries = st.lists(st.sampled_from(HOSTILE), min_size=model.dimension, max_size=model.dimension)
    theta = np.array(data.draw(entries))
    raw = data.draw(st.lists(st.sampled_from(HOSTILE), min_size=4, max_size=4))
    rows = block.features.copy()
    rows[2] = prepare_rows(np.array([raw]), intercept=True)
    sums = [
        model.gradients(
            theta,
            PartyBlock(features=each.astype(dtype), labels=block.labels, offsets=block.offsets),
            clip=clip,
        )
        for each in (block.features, rows)
    ]
    assert np.isfinite(sums).all()
    bound = min(clip or np.inf, model.lipschitz)
    for each in sums:
        assert np.linalg.norm(each, axis=1).max() <= bound * (1 + 1e-5)
    moved = np.linalg.norm(sums[0][0] - sums[1][0])
    assert moved <= 2 * bound / 6 * (1 + 1e-5)
    np.testing.assert_array_equal(sums[0][1], sums[1][1])


def test_a_record_whose_margin_is_not_a_number_adds_zero_to_the_bit():
    model = LinearModel(loss=Logistic(), features=2)
    theta = np.array([1.5e308, -1.5e308])
    rows = np.array([[0.6, 0.8], [2.0**0.5 / 2, 2.0**0.5 / 2], [0.0, 0.5]])
    labels = np.array([1.0, 1.0, -1.0])
    wild = np.vstack([rows, [[1.0, 1.0]]]) * 4  # not prepared: 6e308 − 6e308
    block = PartyBlock(features=wild, labels=np.r_[labels, 1.0], offsets=np.array([0, 3, 4]))
    gradients = model.gradients(theta, block)
    assert np.isfinite(gradients).all()
    assert gradients[1].tolist() == [0.0, 0.0]
