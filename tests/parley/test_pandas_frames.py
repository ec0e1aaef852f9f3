"""Pandas frames: columns of each type are read, or refused with what to do."""

import numpy as np
import pytest

import parley
from parley.client.data.data_error import DataError
from parley.client.data.memory_columns import build_memory_table
from parley.client.data.schema import Schema
from parley.client.data.schema_inference.schema_draft import infer_schema

pd = pytest.importorskip("pandas", reason="pandas is not installed")

N = 120
AGE = np.arange(N) % 100


def build_frame():
    frame = {"age": AGE * 1.0, "ward": np.array(["a", "b"])[AGE // 7 % 2]}
    return pd.DataFrame(frame | {"sick": np.where(AGE > 50, "yes", "no")})


def read_schema(frame):
    return Schema.from_toml(infer_schema(build_memory_table(frame), label="sick").text)


@pytest.mark.parametrize(
    ("change", "column", "kind"),
    [
        (lambda f: f.assign(ward=f.ward.astype(object)), "ward", "categorical"),
        (lambda f: f.assign(ward=f.ward.astype("category")), "ward", "categorical"),
        (lambda f: f.assign(ward=f.ward.astype("string")), "ward", "categorical"),
        (lambda f: f.assign(age=f.age.astype("Int64").where(f.age != 3)), "age", "numeric"),
        (lambda f: f.assign(age=f.age.astype("Float32")), "age", "numeric"),
        (lambda f: f.assign(on=pd.array([True, None] * (N // 2), dtype="boolean")), "on", ""),
        (lambda f: f.assign(on=pd.date_range("2020-01-01", periods=N)), "on", "ignore"),
        (lambda f: f.assign(on=pd.period_range("2020-01", periods=N)), "on", "ignore"),
        (lambda f: f.assign(on=pd.arrays.SparseArray(AGE % 2 * 1.0)), "on", "numeric"),
    ],
)
def test_columns_of_each_type_are_read(change, column, kind):
    schema = read_schema(change(build_frame()))
    assert column in schema.columns
    assert not kind or schema.columns[column].kind == kind


def test_the_index_is_no_column_and_its_values_do_not_matter():
    frame = build_frame()
    odd = frame.set_index(pd.Index(np.arange(N)[::-1] * 7, name="patient"))
    assert "patient" not in build_memory_table(odd).columns
    for name, cells in build_memory_table(odd).columns.items():
        assert cells.tolist() == build_memory_table(frame).columns[name].tolist()


def test_labels_keep_their_type_and_predictions_come_for_any_index(tmp_path):
    frame = build_frame()
    frame["sick"] = pd.array((frame.sick == "yes").astype(int), dtype="Int64")
    keys = {"epsilon": 5, "parties": 2, "rounds": 2, "baseline": False}
    with pytest.warns(UserWarning, match="inferred from the data"):
        run = parley.run(frame, label="sick", **keys, out=tmp_path / "run")
    assert run.model.classes_.tolist() == [0, 1]
    later = frame.iloc[5:9][["ward", "age"]]
    assert run.model.predict(later).tolist() == run.model.predict(frame)[5:9].tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: pd.concat([f, f[["age"]]], axis=1), r"got \['age'\] more than once"),
        (lambda f: pd.concat({"first": f}, axis=1), r"names of several levels .*'_'\.join"),
        (lambda f: f.assign(age=[[1, 2]] * N), r"column 'age': Expected one value in each cell"),
        (lambda f: f["age"], "got Series"),
        (lambda f: f.groupby("ward"), "got DataFrameGroupBy"),
        (lambda f: (f[["age"]], f["sick"].iloc[::-1]), r"y = y\.loc\[X\.index\]"),
        (lambda f: (f[["age"]], f["sick"].iloc[:9]), "9 labels for 120 rows"),
    ],
)
def test_what_is_no_table_is_refused_with_what_to_do(change, message):
    with pytest.raises(DataError, match=message):
        build_memory_table(change(build_frame()))


def test_the_remedies_work():
    frame = build_frame()
    levels = pd.concat({"first": frame}, axis=1)
    levels.columns = ["_".join(map(str, name)) for name in levels.columns]
    assert "first_age" in build_memory_table(levels).columns
    features, y = frame[["age"]], frame["sick"].iloc[::-1]
    paired = build_memory_table((features, y.loc[features.index]))
    assert paired.columns["sick"].tolist() == frame["sick"].tolist()
    kept = build_memory_table((features, y.to_numpy()))
    assert kept.columns[kept.label].tolist() == y.tolist()
    # Rows of other frames are paired by position, as in scikit-learn.
    assert build_memory_table((features, frame["sick"].set_axis(range(N, 2 * N)))).label == "sick"
