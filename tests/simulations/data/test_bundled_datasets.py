"""The bundled data sets, their public schemas and memory, and what is measured of large ones."""

import tracemalloc

import numpy as np
import pytest

import parley
from parley.client.data.data_error import DataError
from parley.client.data.schema import Schema, SchemaError
from parley.client.features.row_preparation import build_prepared_rows
from parley.server.jobs.job_file import load_job
from parley.simulations.data import simulated_experiment
from parley.simulations.data.bundled_datasets import BUNDLED, get_bundled_schema
from parley.simulations.data.experiment_loading import prepare_data
from parley.simulations.data.record_reading import load_bundled


@pytest.mark.parametrize(
    ("name", "model_kind", "shape"),
    [
        ("breast-cancer", "logistic", (569, 30)),
        ("digits", "softmax", (1797, 64)),
        ("synthetic", "logistic", (5000, 20)),
        ("synthetic", "softmax", (5000, 20)),
        ("synthetic", "ridge", (5000, 20)),
    ],
)
def test_a_bundled_set_has_its_shape_and_rows_within_the_unit_ball(name, model_kind, shape):
    records, schema = load_bundled(name, model_kind)
    assert records.features.shape == shape == (len(records), schema.dimension)
    assert np.linalg.norm(records.features, axis=1).max() <= 1
    if model_kind == "logistic":
        assert set(records.labels.tolist()) == {-1.0, 1.0}
    elif model_kind == "softmax":
        assert set(records.labels.tolist()) == set(range(schema.classes)) - (
            set(range(3, schema.classes)) if name == "synthetic" else set()
        )
    else:
        assert np.abs(records.labels).max() <= 1
        assert 0.05 < records.labels.std() < 0.5


def test_breast_cancer_counts_malignant_tumours_as_positive():
    records, _ = load_bundled("breast-cancer")
    assert int((records.labels > 0).sum()) == 212


def test_files_of_scikit_learn_are_read_as_it_reads_them():
    from sklearn import datasets

    theirs = datasets.load_breast_cancer()
    ours = BUNDLED["breast-cancer"].columns("logistic", 0, 0)
    assert [*ours][:-1] == [name.replace(" ", "_") for name in theirs.feature_names]
    np.testing.assert_array_equal(np.column_stack([*ours.values()][:-1]), theirs.data)
    np.testing.assert_array_equal(ours["diagnosis"], theirs.target_names[theirs.target])
    theirs, ours = datasets.load_digits(), BUNDLED["digits"].columns("softmax", 0, 0)
    np.testing.assert_array_equal(ours["image"], theirs.images)
    np.testing.assert_array_equal(ours["digit"], theirs.target)


def test_synthetic_records_depend_on_the_seed_alone():
    first, _ = load_bundled("synthetic", records=50, seed=7)
    again, _ = load_bundled("synthetic", records=50, seed=7)
    other, _ = load_bundled("synthetic", records=50, seed=8)
    np.testing.assert_array_equal(first.features, again.features)
    np.testing.assert_array_equal(first.labels, again.labels)
    assert not np.array_equal(first.features, other.features)


@pytest.mark.parametrize("name", sorted(BUNDLED))
def test_bundled_schemas_survive_being_written(name):
    schema = get_bundled_schema(name)
    assert Schema.from_toml(schema.to_toml()) == schema


def test_an_unknown_set_or_an_unfit_model_is_refused():
    with pytest.raises(ValueError, match=r"Expected a data set of breast-cancer, .* got 'iris'"):
        load_bundled("iris")
    with pytest.raises(SchemaError, match="label 'diagnosis' to give range for a ridge model"):
        load_bundled("breast-cancer", "ridge")
    with pytest.raises(ValueError, match="records ≥ 1, got 0"):
        load_bundled("synthetic", records=0)


def test_more_synthetic_records_than_there_is_memory_for_are_refused_before_they_are_drawn():
    with pytest.raises(
        DataError, match=r"synthetic: Expected at most [\d,]+ records of 20 features"
    ):
        load_bundled("synthetic", records=10**12)


def test_data_that_are_too_large_to_solve_have_figures_and_no_baseline(tmp_path, monkeypatch):
    monkeypatch.setattr(simulated_experiment, "_MAX_SOLVABLE_ENTRIES", 10)
    job = parley.load_job(overrides=["algorithm.rounds=2", "secure-aggregation.masked-check=false"])
    result = parley.run(job, out=tmp_path / "run")
    assert result.summary.accuracy is not None
    assert result.summary.loss is not None
    assert result.summary.baseline_accuracy is None
    assert result.summary.excess_loss is None
    assert result.summary.baseline_judgement is None


def rows_of(records, intercept):
    job = load_job(
        overrides=[
            *("data.source=synthetic", f"data.records={records}", "data.test-fraction=0"),
            *("parties.count=50", "parties.min-records=1", f"model.intercept={intercept}"),
        ]
    )
    return prepare_data(job).rows


@pytest.mark.parametrize("intercept", ["true", "false"])
def test_the_peak_is_a_little_more_than_the_rows(intercept):
    rows_of(1000, intercept)  # what is imported on the way is no record
    tracemalloc.start()
    try:
        rows = rows_of(500_000, intercept)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows.shape == (500_000, 20 + (intercept == "true"))
    assert peak < 1.75 * 500_000 * 21 * 8


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("count", [None, 9000, 6000])
def test_rows_in_the_place_of_what_they_are_made_of_are_the_same_rows(intercept, count):
    rng = np.random.default_rng(4)
    room = rng.normal(size=(9000, 7))
    raw = room[:, :6]
    order = None if count is None else rng.permutation(9000)[:count]
    expected = build_prepared_rows(raw, intercept=intercept, order=order)
    found = build_prepared_rows(raw, intercept=intercept, order=order, buffer=room)
    assert found.base is room
    np.testing.assert_array_equal(found, expected)
