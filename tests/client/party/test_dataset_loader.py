"""What a party reads from its disk has the bits that the fast engine's block has."""

import io
import zipfile

import numpy as np
import pytest

from parley.client.contract.refusals import Declined
from parley.client.models.huber_svm import HuberSVM
from parley.client.models.linear_models import LinearModel
from parley.client.models.logistic_loss import LogisticLoss
from parley.client.models.networks import Network
from parley.client.models.softmax_loss import SoftmaxLoss
from parley.client.models.squared_loss import SquaredLoss
from parley.client.party.dataset_config import DatasetConfig
from parley.client.party.dataset_loader import load_dataset
from parley.server.jobs.job_file import load_job
from parley.simulations.data.experiment_loading import load_experiment

SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100] }
dose = { kind = "numeric", range = [0, 7] }
ward = { kind = "categorical", categories = ["a", "b"] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(3)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    for party, count in enumerate((30, 41)):
        lines = ["age,dose,ward,sick"]
        for _ in range(count):
            sick = "yes" if rng.random() < 0.5 else "no"
            lines.append(f"{rng.random() * 99},{rng.random() * 7},{'ab'[party]},{sick}")
        (tmp_path / f"site-{party}.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.parametrize("intercept", [True, False])
def test_rows_and_labels_are_those_of_the_simulation_to_the_bit(files, intercept):
    job = load_job(
        overrides=[
            f"data.source='{files}/site-*.csv'",
            f"data.schema='{files}/schema.toml'",
            "data.test-fraction=0",
            "parties.count=2",
            f"model.intercept={str(intercept).lower()}",
        ]
    )
    experiment = load_experiment(job)
    for party in range(2):
        dataset = DatasetConfig.model_validate(
            {"path": f"site-{party}.csv", "schema": "schema.toml", "epsilon": 1, "delta": 0}
        )
        holding = load_dataset(dataset, files, label="logistic", intercept=intercept)
        mine = experiment.block.take([party])
        # The fast engine holds records in a drawn order, even where there is nothing to split.
        order = np.lexsort(holding.rows.T)
        theirs = np.lexsort(mine.features.T)
        np.testing.assert_array_equal(holding.rows[order], mine.features[theirs])
        np.testing.assert_array_equal(holding.labels[order], mine.labels[theirs])
        assert (holding.features, holding.classes) == (4, 0)


def prepared(tmp_path, features, labels, **more):
    np.savez(tmp_path / "rows.npz", features=features, labels=labels)
    given = {"prepared": "rows.npz", "epsilon": 1, "delta": 0, **more}
    return load_dataset(
        DatasetConfig.model_validate(given), tmp_path, label="logistic", intercept=False
    )


def reason(*args, **more):
    with pytest.raises(Declined) as caught:
        prepared(*args, **more)
    return str(caught.value.reason)


def test_prepared_rows_that_no_sensitivity_holds_for_are_refused(tmp_path):
    rows, labels = np.full((3, 4), 0.5), np.array([1.0, -1.0, 1.0])
    assert prepared(tmp_path, rows, labels).facts.records == 3
    assert reason(tmp_path, rows * (1 + 1e-13), labels) == "data-unreadable"
    for bad in (np.nan, np.inf, -np.inf):
        broken = rows.copy()
        broken[1, 2] = bad
        assert reason(tmp_path, broken, labels) == "data-unreadable"
    assert reason(tmp_path, rows.astype(np.float32), labels) == "data-unreadable"
    assert reason(tmp_path, rows[0], labels) == "data-unreadable"
    assert reason(tmp_path, rows[:0], labels[:0]) == "data-unreadable"
    assert reason(tmp_path, rows, labels[:2]) == "data-unreadable"
    assert reason(tmp_path, rows, labels * np.nan) == "data-unreadable"
    assert reason(tmp_path, rows, np.array([{}, {}, {}])) == "data-unreadable"


def test_prepared_arrays_that_say_more_than_there_is_memory_for_are_refused(tmp_path):
    # 200 bytes whose header says 8 EiB: what was allocated came from the header.
    prepared(tmp_path, np.full((3, 4), 0.5), np.array([1.0, -1.0, 1.0]))
    with zipfile.ZipFile(tmp_path / "rows.npz", "w") as archive:
        for name, shape in (("features", (2**58, 4)), ("labels", (2**58,))):
            content = io.BytesIO()
            header = {"descr": "<f8", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(content, header)
            archive.writestr(f"{name}.npy", content.getvalue())
    given = {"prepared": "rows.npz", "epsilon": 1, "delta": 0}
    with pytest.raises(Declined) as caught:
        load_dataset(
            DatasetConfig.model_validate(given), tmp_path, label="logistic", intercept=False
        )
    assert str(caught.value.reason) == "data-unreadable"
    assert "GiB of values" in caught.value.detail


ODD_LABELS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 5e-324, 1e308, -1e308, 7.0]


@pytest.mark.parametrize(
    "loss",
    [
        LogisticLoss(),
        HuberSVM(),
        SoftmaxLoss(classes=3),
        SquaredLoss(radius=1.0, label_bound=2.0),
        None,
    ],
)
@pytest.mark.parametrize("classes", [0, 3])
def test_no_label_makes_a_party_refuse_a_model_that_a_server_named(tmp_path, caplog, loss, classes):
    """Whether every label is one that a model knows would tell of one record, free of charge."""

    class Task:
        model = (
            Network.build("mlp", features=4, classes=classes or 2, hidden=(2,))
            if loss is None
            else LinearModel(loss=loss, features=4)
        )

    rows = np.full((len(ODD_LABELS), 4), 0.5)
    holding = prepared(tmp_path, rows, np.array(ODD_LABELS), classes=classes)
    block = holding.to_block(Task())
    Task.model.check_labels(block.labels)
    one = prepared(tmp_path, rows[:1], np.array(ODD_LABELS[-1:]), classes=classes)
    assert one.to_block(Task()).labels[0] == block.labels[-1]  # each by itself
    assert not caplog.records  # nor does a line of the log tell of it


def test_the_lengths_of_rows_are_computed_once_for_all_rounds(tmp_path):
    class Task:
        model = LinearModel(loss=LogisticLoss(), features=4)

    data = prepared(tmp_path, np.full((3, 4), 0.5), np.ones(3))
    squares = data.to_block(Task()).row_squares
    assert data.to_block(Task()).row_squares is squares
    halves = data.project_onto(np.eye(4)[:, :2]).to_block(Task()).row_squares
    assert (squares.tolist(), halves.tolist()) == ([2.0**32] * 3, [2.0**31] * 3)


def test_the_data_are_named_by_their_bytes(files):
    def named(**more):
        given = {"path": "site-0.csv", "schema": "schema.toml", "epsilon": 1, "delta": 0, **more}
        dataset = DatasetConfig.model_validate(given)
        return load_dataset(dataset, files, label="logistic", intercept=True).fingerprint

    before = named()
    (files / "schema.toml").write_text(SCHEMA.replace("100", "120"))
    assert named() == before
    (files / "site-0.csv").write_text((files / "site-0.csv").read_text() + "1,1,a,no\n")
    assert named() != before
