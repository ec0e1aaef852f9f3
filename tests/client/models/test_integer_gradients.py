"""Sums of gradients: the right ones, to the same bits however they come about, and bounded."""

import hashlib
import os
import subprocess
import sys

import mpmath
import numpy as np
import pytest
from exact_slopes import exact_slope
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_blocks import KINDS, labels_for, make_block, theta_for
from plain_gradients import plain_gradients

from parley.client.data.party_block import PartyBlock
from parley.client.models.class_weights import ClassWeightedLoss
from parley.client.models.integer_gradients import SlopeGrid, compute_gradients
from parley.client.models.linear_models import LinearModel
from parley.client.models.logistic_loss import LogisticLoss
from parley.client.models.own_loss_tabulation import build_tabled_loss
from parley.client.models.row_quantization import prepare_rows
from parley.client.models.softmax_loss import SoftmaxLoss
from parley.client.models.squared_loss import SquaredLoss
from parley.client.models.tabulated_losses import TabledResidualLoss, TabledSignLoss

TABLED = {
    "own": build_tabled_loss(
        TabledSignLoss, lambda z, y: max(0.0, 1 - y * z) ** 2, lipschitz=2.0, steeper="clip"
    ),
    "own-residual": build_tabled_loss(TabledResidualLoss, lambda z, y: abs(z - y), lipschitz=1.0),
}
ALL = {
    **KINDS,
    **TABLED,
    "weighted": ClassWeightedLoss(loss=SoftmaxLoss(classes=3), weights=(3.0, 0.2, 1.0)),
}
SIZES = pytest.mark.parametrize("sizes", [[5] * 6, [1, 7, 2, 30, 1]], ids=["uniform", "ragged"])
EACH = pytest.mark.parametrize("name", list(KINDS))
EVERY = pytest.mark.parametrize("name", list(ALL))


def block_of(loss, sizes, features, seed=0, dtype=np.float64):
    plain = loss.loss if isinstance(loss, ClassWeightedLoss) else loss
    model, block = make_block(plain, sizes, features, seed, dtype)
    rng = np.random.default_rng(seed)
    labels = loss.to_nearest_labels(labels_for(plain, len(block.labels), rng))
    parts = PartyBlock(features=block.features, labels=labels, offsets=block.offsets)
    return LinearModel(loss=loss, features=model.features), parts


def whole_numbers(model, theta, block, grid, clip=None, records=None):
    """`[B][d]` sums as Python's whole numbers of 2^-(k + 16)."""
    found = (
        compute_gradients(model, theta, block, clip, grid=grid, records=records)
        * 2.0**grid.sum_bits
    )
    assert (found == np.rint(found)).all()
    return [[int(v) for v in row] for row in found]


def torch_loss(kind, theta, x, y):
    """Mean loss written independently, for autograd."""
    torch = pytest.importorskip("torch")
    if isinstance(kind, SoftmaxLoss):
        margins = x @ theta.reshape(kind.classes, -1).T
        return torch.nn.functional.cross_entropy(margins, y.long())
    margins = x @ theta
    if isinstance(kind, LogisticLoss):
        return torch.nn.functional.softplus(-y * margins).mean()
    if isinstance(kind, SquaredLoss):
        return ((margins - y) ** 2).mean() / 2
    h, z = kind.width, y * margins
    middle = (1 + h - z) ** 2 / (4 * h)
    return torch.where(z > 1 + h, 0 * z, torch.where(z < 1 - h, 1 - z, middle)).mean()


@EACH
@SIZES
def test_they_equal_autograd_of_every_party(name, sizes):
    torch = pytest.importorskip("torch")
    model, block = make_block(KINDS[name], sizes, 6)
    theta = theta_for(model)
    found, losses = compute_gradients(model, theta, block), model.losses(theta, block)
    for party in range(block.parties):
        own = slice(block.offsets[party], block.offsets[party + 1])
        variable = torch.tensor(theta, requires_grad=True)
        x, y = torch.tensor(block.features[own]), torch.tensor(block.labels[own])
        loss = torch_loss(model.loss, variable, x, y)
        loss.backward()
        np.testing.assert_allclose(found[party], variable.grad.numpy(), atol=2e-8)
        np.testing.assert_allclose(losses[party], loss.item(), rtol=1e-13)


@EVERY
@SIZES
def test_clipping_equals_a_loop_over_records(name, sizes):
    model, block = block_of(ALL[name], sizes, 6)
    theta, clip = theta_for(model), 0.3
    offsets = np.arange(len(block.labels) + 1)
    records = PartyBlock(features=block.features, labels=block.labels, offsets=offsets)
    each = plain_gradients(model, theta, records)
    norms = np.linalg.norm(each, axis=1)
    assert (norms > clip).any()
    each *= np.minimum(1, clip / np.maximum(norms, 1e-30))[:, None]
    expected = [rows.mean(axis=0) for rows in np.split(each, block.offsets[1:-1])]
    np.testing.assert_allclose(compute_gradients(model, theta, block, clip), expected, atol=1e-8)


@EVERY
@pytest.mark.parametrize("clip", [None, 0.4])
def test_the_same_whole_numbers_in_any_order_block_and_precision(name, clip, monkeypatch):
    """Of a party alone, among others, in pieces, permuted, dealt to many parties; as float32."""
    model, block = block_of(ALL[name], [40, 3, 40, 90], 30)
    theta = theta_for(model) * 3
    grid = SlopeGrid.choose(clip or model.lipschitz, max_weight=4)
    found = compute_gradients(model, theta, block, clip)
    for party in range(block.parties):
        assert (compute_gradients(model, theta, block.take([party]), clip)[0] == found[party]).all()
    single = PartyBlock(
        features=block.features.astype(np.float32), labels=block.labels, offsets=block.offsets
    )
    assert (compute_gradients(model, theta, single, clip) == found).all()
    total = np.sum(whole_numbers(model, theta, block, grid, clip, 50), axis=0)
    order = np.random.default_rng(1).permutation(len(block.labels))
    for offsets in (np.arange(0, 174, 173), np.arange(174), [0, 1, 60, 173]):
        dealt = PartyBlock(
            features=block.features[order], labels=block.labels[order], offsets=np.array(offsets)
        )
        own = whole_numbers(model, theta, dealt, grid, clip, 50)
        assert (np.sum(own, axis=0) == total).all()
        part = dealt.slice_parties(0, dealt.parties)
        monkeypatch.setattr("parley.client.models.integer_gradients.CHUNK_BYTES", 2000)
        assert whole_numbers(model, theta, part, grid, clip, 50) == own
        monkeypatch.undo()


def digest():
    whole = hashlib.sha256()
    for loss in ALL.values():
        for sizes in ([37] * 40, [900, 3, 41]):
            model, block = block_of(loss, sizes, 77)
            whole.update(compute_gradients(model, theta_for(model), block, 0.3).tobytes())
    # Rows of whole numbers, many of which a norm that is off by its last digit cuts otherwise.
    raw = np.random.default_rng(0).integers(-3, 4, (2000, 9)).astype(np.float64)
    whole.update(prepare_rows(raw, intercept=False).tobytes())
    return whole.hexdigest()


def test_the_same_bits_with_other_kernels_of_the_library_and_other_numbers_of_threads():
    """OpenBLAS' kernels for other processors add up in other orders, some by a row's address."""
    here = digest()
    for kernel, threads, cores in (("Prescott", "1", 1), ("Haswell", "2", 2)):
        code = f"import os; os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:{cores}])\n"
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                code + "from test_integer_gradients import digest; print(digest())",
            ],
            cwd=os.path.dirname(__file__),
            env={
                **os.environ,
                "OPENBLAS_CORETYPE": kernel,
                "OPENBLAS_NUM_THREADS": threads,
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == here


@EACH
@SIZES
def test_each_party_may_have_a_theta_of_its_own(name, sizes):
    model, block = make_block(KINDS[name], sizes, 6)
    thetas = np.random.default_rng(3).normal(size=(block.parties, model.dimension))
    thetas[1] = np.nan
    thetas[2:4] *= [[1e300], [1e-310]]
    found = compute_gradients(model, thetas, block)
    assert not found[1].any()
    for party in range(block.parties):
        alone = compute_gradients(model, thetas[party], block.take([party]))[0]
        assert (alone == found[party]).all()


@EVERY
def test_what_a_record_adds_is_in_the_ball_and_the_sum_is_that_of_its_records(name):
    """In Python's whole numbers; nearly as long as it may be where the loss is."""
    loss = ALL[name]
    clip = None if name == "ridge" else 0.3 * loss.lipschitz
    grid, longest = SlopeGrid.choose(clip or loss.lipschitz), 0
    for scale in (0.3, 3.0, 1e6):
        model, block = block_of(loss, [60], 4)
        theta = model.project(theta_for(model) * scale)
        parts = PartyBlock(features=block.features, labels=block.labels, offsets=np.arange(61))
        each = whole_numbers(model, theta, parts, grid, clip, 60)
        squared = grid.build_ball(model.dimension, 60).radius.l2_squared
        longest = max(longest, *(sum(v * v for v in own) for own in each))
        assert longest <= squared
        whole = whole_numbers(model, theta, block, grid, clip, 60)[0]
        assert [sum(column) for column in zip(*each, strict=True)] == whole
    assert longest > 0.2 * squared


HOSTILE = [0.0, 1e308, -1e308, 1.7e308, -1.7e308, 1e200, 5e-324, -0.0, 1.0, np.nan, np.inf]
"""Coordinates of a θ that a server may choose, and of a row that was never prepared."""


@pytest.mark.parametrize("clip", [None, 0.25])
@EVERY
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_theta_and_no_record_moves_a_sum_by_more_than_the_ball_says(name, clip, data):
    loss = ALL[name]
    model, block = block_of(loss, [6, 3], 4, seed=data.draw(st.integers(0, 99)))
    entry = st.sampled_from(HOSTILE)
    theta = np.array(data.draw(st.lists(entry, min_size=model.dimension, max_size=model.dimension)))
    rows = block.features.copy()
    rows[2] = data.draw(st.lists(entry, min_size=5, max_size=5))
    grid = SlopeGrid.choose(clip or model.lipschitz)
    squared = grid.build_ball(model.dimension, 6).radius.l2_squared
    gone = np.delete(np.arange(9), 2)
    ours, others, fewer = (
        whole_numbers(
            model,
            theta,
            PartyBlock(features=x, labels=y, offsets=np.array(offsets)),
            grid,
            clip,
            6,
        )
        for x, y, offsets in (
            (block.features, block.labels, [0, 6, 9]),
            (rows, block.labels, [0, 6, 9]),
            (block.features[gone], block.labels[gone], [0, 5, 8]),
        )
    )
    assert ours[1] == others[1] == fewer[1]
    assert sum((a - b) ** 2 for a, b in zip(ours[0], others[0], strict=True)) <= 4 * squared
    for one in (ours, others):
        assert sum((a - b) ** 2 for a, b in zip(one[0], fewer[0], strict=True)) <= squared
    if not np.isfinite(theta).all():
        assert not np.any(ours)


def test_a_row_that_was_never_prepared_is_cut_and_a_longer_one_adds_nothing():
    model = LinearModel(loss=LogisticLoss(), features=2)
    rows = np.array([[0.125, 2.0**-17], [1.0, 1.0], [np.nan, 0.0], [0.5, 0.5]])
    block = PartyBlock(features=rows, labels=np.ones(4), offsets=np.array([0, 4]))
    found = compute_gradients(model, np.zeros(2), block)
    np.testing.assert_allclose(found, [[-0.625 / 8, -0.5 / 8]], atol=1e-9)


@EACH
def test_slopes_are_right_within_their_grid(name):
    """Rows (1, 0, …): a record's gradient is its slope, at margins of every size."""
    loss, rng = KINDS[name], np.random.default_rng(3)
    model = LinearModel(loss=loss, features=1)
    grid = SlopeGrid.choose(loss.lipschitz)
    step = 2.0**-grid.bits * (3 + np.sqrt(model.dimension))  # rounding, and the room for it
    with mpmath.workdps(40):
        for _ in range(150):
            theta = rng.normal(size=model.dimension) * 10.0 ** rng.uniform(-3, 2)
            theta = np.round(model.project(theta) * 2.0**20) / 2.0**20 * 0.999
            label = labels_for(loss, 1, rng)
            block = PartyBlock(features=np.ones((1, 1)), labels=label, offsets=np.array([0, 1]))
            found = compute_gradients(model, theta, block)[0]
            for one, known in zip(found, exact_slope(loss, theta, label[0]), strict=True):
                assert abs(one - known) <= step + 2.0**-33 * float(np.abs(theta).max())


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from([*KINDS, "weighted"]),
    seed=st.integers(0, 2**32 - 1),
    scale=st.floats(1e-3, 1e3),
)
def test_lipschitz_and_smoothness_hold_between_random_models(name, seed, scale):
    model, block = block_of(ALL[name], [1] * 20, 4, seed=seed)
    rng = np.random.default_rng(seed)
    first, second = model.project(scale * rng.normal(size=(2, model.dimension)))
    second = first + (second - first) * rng.choice([1e-3, 1.0])
    one, two = plain_gradients(model, first, block), plain_gradients(model, second, block)
    tiny = 1 + 1e-9
    assert (np.linalg.norm(one, axis=1) <= model.lipschitz * tiny).all()
    apart = np.linalg.norm(first - second)
    change = np.linalg.norm(one - two, axis=1)
    assert (change <= model.smoothness * apart * tiny + 1e-12 * model.lipschitz).all()


def test_lipschitz_and_smoothness_are_attained():
    one = PartyBlock(features=np.ones((1, 1)), labels=np.array([1.0]), offsets=np.array([0, 1]))
    logistic = LinearModel(loss=LogisticLoss(), features=1)
    assert compute_gradients(logistic, np.array([-40.0]), one)[0, 0] == pytest.approx(-1)
    step = plain_gradients(logistic, np.array([1e-4]), one) - plain_gradients(
        logistic, np.zeros(1), one
    )
    assert step[0, 0] / 1e-4 == pytest.approx(0.25, rel=1e-6)
    softmax = LinearModel(loss=SoftmaxLoss(classes=2), features=1)
    zero = PartyBlock(features=np.ones((1, 1)), labels=np.array([0]), offsets=np.array([0, 1]))
    assert np.linalg.norm(
        compute_gradients(softmax, np.array([-40.0, 40.0]), zero)
    ) == pytest.approx(np.sqrt(2))


@pytest.mark.parametrize("name", ["logistic", "huber-svm"])
def test_extreme_margins_neither_overflow_nor_warn(name):
    model = LinearModel(loss=KINDS[name], features=1)
    block = PartyBlock(
        features=np.ones((2, 1)), labels=np.array([1.0, -1.0]), offsets=np.array([0, 1, 2])
    )
    with np.errstate(all="raise", under="ignore"):
        found, losses = (
            compute_gradients(model, np.array([1e5]), block),
            model.losses(np.array([1e5]), block),
        )
    np.testing.assert_allclose(found, [[0.0], [1.0]], atol=1e-9)
    assert losses.tolist() == [0.0, pytest.approx(1e5, rel=1e-4)]


def test_shapes_and_clips_that_cannot_be_meant_are_refused():
    model, block = make_block(LogisticLoss(), [3, 3], 4)
    with pytest.raises(ValueError, match="theta of 5"):
        compute_gradients(model, np.zeros(4), block)
    with pytest.raises(ValueError, match="clip > 0"):
        compute_gradients(model, np.zeros(5), block, clip=0.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_they_work_in_a_forked_process():
    model, block = make_block(LogisticLoss(), [50] * 400, 119)
    theta = theta_for(model)
    here = compute_gradients(model, theta, block)
    child = os.fork()
    if not child:
        os._exit(0 if (compute_gradients(model, theta, block) == here).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    "grid", [SlopeGrid.choose(1.0, private=500), SlopeGrid.choose(0.3, max_weight=90.0)]
)
def test_entries_are_clamped_to_whole_numbers_where_a_party_is_larger_than_it_may_be(grid):
    model = LinearModel(loss=LogisticLoss(), features=1)
    most = int(200 * grid.max_entry / grid.max_slope)
    rows = prepare_rows(np.ones((most * 5, 1)), intercept=False)
    offsets = np.array([0, most, most * 5])
    block = PartyBlock(features=rows, labels=np.ones(most * 5), offsets=offsets)
    found = compute_gradients(
        model, np.array([-60.0]), block, grid.max_slope, grid=grid, records=200
    )
    assert found[1, 0] == -np.floor(grid.max_entry * 2.0**grid.sum_bits) / 2.0**grid.sum_bits
    assert found[0, 0] == pytest.approx(-grid.max_entry, rel=1e-2)
