"""Rows that are stored sparse give the same runs as dense ones."""

import numpy as np
import pytest

from parley.client.data import sparse_rows
from parley.client.data.party_block import PartyBlock
from parley.client.data.sparse_rows import SparseRows
from parley.client.models.integer_gradients import compute_gradients
from parley.client.models.linear_models import LinearModel
from parley.client.models.logistic_loss import LogisticLoss
from parley.client.models.softmax_loss import SoftmaxLoss
from parley.client.solvers import chunked_newton
from parley.client.solvers.local_optima import solve_local_optima
from parley.client.solvers.pooled_optimum import solve_pooled_optimum
from parley.server.jobs.job_file import load_job
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.engine.fast_engine import simulate

SCHEMA = """
scaling = "record"
[columns]
age = { kind = "numeric", range = [0, 100] }
cost = { kind = "numeric", range = [0, 1000], centre = 10, transform = "log" }
ward = { kind = "categorical", categories = ["a", "b", "c", "d", "e", "f", "g", "h"], other = true }
town = { kind = "categorical", categories = ["p", "q", "r", "s", "t", "u", "v"], missing = "p" }
sick = { kind = "label", positive = ["yes"], negative = ["no"], classes = ["no", "yes"] }
"""


def write_data(folder, rows=600):
    """Write data.csv and schema.toml."""
    rng = np.random.default_rng(3)
    lines = ["age,cost,ward,town,sick"]
    for _ in range(rows):
        age, cost = rng.uniform(0, 100), rng.lognormal(2, 1)
        ward, town = rng.choice(list("abcdefghz")), rng.choice(["p", "q", "r", "s", "t", "u", ""])
        sick = "yes" if rng.normal(age - 50, 20) > 0 else "no"
        lines.append(f"{age:.3f},{cost:.2f},{ward},{town},{sick}")
    (folder / "data.csv").write_text("\n".join(lines) + "\n")
    (folder / "schema.toml").write_text(SCHEMA)


def run(folder, *settings):
    """Run a seeded job; return the result and the kind of its rows."""
    job = load_job(
        overrides=[
            f"data.source={folder / 'data.csv'}",
            f"data.schema={folder / 'schema.toml'}",
            "parties.count=3",
            "algorithm.rounds=3",
            "run.seed=1",
            "privacy.delta=1e-6",
            *settings,
        ]
    )
    kind = type(load_experiment(job).block.features)
    done = simulate(job, out=folder / f"run{len(list(folder.glob('run*')))}")
    return done, kind


@pytest.mark.parametrize(
    "settings",
    [
        ("model.features=hats",),
        ("model.features=none",),
        ("model.features=auto",),
        ('model.features="bins"', "data.records=400"),
        ("model.kind=softmax", "model.features=hats", "data.partition=dirichlet"),
        ("model.features=hats", "parties.weights=size", "data.partition=sizes",
         "data.sizes=[300, 100, 80]"),
    ],
)  # fmt: skip
def test_a_seeded_run_is_the_same_with_sparse_rows(tmp_path, monkeypatch, settings):
    write_data(tmp_path)
    dense, kind = run(tmp_path, *settings)
    assert kind is np.ndarray
    monkeypatch.setattr(sparse_rows, "MIN_DENSE_ENTRIES", 1)
    monkeypatch.setattr("parley.simulations.data.experiment_loading._MANY_ROWS", 1)
    sparse, kind = run(tmp_path, *settings)
    assert kind is SparseRows
    assert sparse.theta.tobytes() == dense.theta.tobytes()
    for name in ("loss", "accuracy", "baseline_loss", "baseline_accuracy"):
        found, expected = (getattr(each.summary, name) for each in (sparse, dense))
        assert found == pytest.approx(expected, rel=1e-6)
    assert sparse.summary.data_mib < dense.summary.data_mib


def make_rows(count=300, width=24, seed=0):
    """Return prepared dense rows with at most seven entries, and the same rows sparse."""
    rng = np.random.default_rng(seed)
    dense = np.zeros((count, width), np.float32)
    for row in dense:
        at = rng.choice(width, int(rng.integers(0, 8)), replace=False)
        row[at] = np.trunc(rng.uniform(-1, 1, len(at)) / np.sqrt(8) * 2**16) / 2**16
    sparse = SparseRows.allocate(count, width, max_entries=7, dtype=np.float32)
    sparse[:] = dense
    return dense, sparse


def test_sparse_rows_are_their_dense_ones_however_they_are_read():
    dense, sparse = make_rows()
    order = np.random.default_rng(1).permutation(len(dense))
    assert (np.asarray(sparse) == dense).all()
    assert (np.asarray(sparse[order]) == dense[order]).all()
    assert (np.asarray(sparse[10:200:7]) == dense[10:200:7]).all()
    table = order[:20].reshape(4, 5)
    assert (sparse[table] == dense[table]).all()
    moved = SparseRows.allocate(len(dense), 24, max_entries=7, dtype=np.float32)
    moved[order] = sparse
    assert (np.asarray(moved)[order] == dense).all()
    assert (sparse.shape, sparse.size, len(sparse)) == (dense.shape, dense.size, len(dense))


def test_a_row_with_too_many_entries_is_refused():
    sparse = SparseRows.allocate(2, 4, max_entries=2)
    with pytest.raises(ValueError, match="at most 2 entries in a row, got 3"):
        sparse[:] = np.array([[0, 1.0, 0, 0], [1.0, 1.0, 0, np.nan]])


@pytest.mark.parametrize("loss", [LogisticLoss(), SoftmaxLoss(classes=3)])
@pytest.mark.parametrize("offsets", [[0, 300], [0, 100, 200, 300], [0, 1, 250, 300]])
@pytest.mark.parametrize("own_models", [False, True])
def test_gradients_have_the_same_bits(loss, offsets, own_models):
    dense, sparse = make_rows()
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 3, 300) if loss.outputs > 1 else rng.choice([-1.0, 1.0], 300)
    model = LinearModel(loss=loss, features=24)
    shape = (len(offsets) - 1, model.dimension) if own_models else (model.dimension,)
    blocks = [
        PartyBlock(features=rows, labels=labels, offsets=np.array(offsets))
        for rows in (dense, sparse)
    ]
    for theta in (rng.standard_normal(shape), np.full(shape, np.nan), np.zeros(shape)):
        found = [compute_gradients(model, theta, block, 0.5) for block in blocks]
        assert found[0].tobytes() == found[1].tobytes()
    assert blocks[0].row_squares.tobytes() == blocks[1].row_squares.tobytes()


def test_an_optimum_in_pieces_is_the_optimum(monkeypatch):
    dense, sparse = make_rows(3000)
    labels = np.random.default_rng(4).choice([-1.0, 1.0], 3000)
    model = LinearModel(loss=LogisticLoss(), features=24)
    expected = solve_pooled_optimum(model, dense, labels, 1e-3)
    monkeypatch.setattr("parley.client.solvers.pooled_optimum._MIN_PIECEWISE_ENTRIES", 1)
    monkeypatch.setattr(chunked_newton, "_SAMPLE", 1000)
    for rows in (dense, sparse):
        found = solve_pooled_optimum(model, rows, labels, 1e-3)
        assert found.certified
        assert found.gradient_norm <= 1e-10
        assert found.theta == pytest.approx(expected.theta, abs=1e-6)
        assert found.loss == pytest.approx(expected.loss, rel=1e-12)


def test_local_optima_take_sparse_rows():
    dense, sparse = make_rows()
    labels = np.random.default_rng(5).choice([-1.0, 1.0], 300)
    model = LinearModel(loss=LogisticLoss(), features=24)
    one, other = (
        solve_local_optima(
            model,
            PartyBlock(features=rows, labels=labels, offsets=np.array([0, 120, 300])),
            0.1,
            1e-9,
        )
        for rows in (dense, sparse)
    )
    assert one.theta.tobytes() == other.theta.tobytes()
