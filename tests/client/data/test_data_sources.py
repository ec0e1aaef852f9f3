"""Data in memory become the columns that a file would have."""

import numpy as np
import polars as pl
import pytest

from parley.client.data.data_error import DataError
from parley.client.data.memory_columns import build_memory_table, to_columns
from parley.client.data.record_reading import read_records
from parley.client.data.schema import Schema
from parley.client.data.schema_inference.schema_draft import infer_schema

SCHEMA = Schema.from_toml("""
[columns]
id = { kind = "ignore" }
age = { kind = "numeric", range = [0, 100], missing = 50 }
ward = { kind = "categorical", categories = ["north", "south"], other = true }
private = { kind = "categorical", categories = [true, false] }
sick = { kind = "label", positive = ["yes"], negative = ["no"] }
""")
FRAME = pl.DataFrame(
    {
        "id": [7, 8, 9],
        "age": [30, None, 61],
        "ward": ["south", None, "nan"],
        "private": [True, False, True],
        "sick": ["no", "yes", "yes"],
    }
)


def test_a_frame_holds_the_very_records_of_its_file(tmp_path):
    FRAME.write_csv(tmp_path / "a.csv")
    FRAME.write_parquet(tmp_path / "a.parquet")
    ours = read_records(build_memory_table(FRAME), SCHEMA, "logistic")
    for file in ("a.csv", "a.parquet"):
        theirs = read_records(tmp_path / file, SCHEMA, "logistic")
        np.testing.assert_array_equal(ours.features, theirs.features)
        np.testing.assert_array_equal(ours.labels, theirs.labels)
        assert ours.contents == theirs.contents  # one budget, whichever way they come
    other = build_memory_table(FRAME.with_columns(age=pl.Series([30, None, 62])))
    assert read_records(other, SCHEMA, "logistic").contents != ours.contents


def test_a_pandas_frame_holds_the_records_of_a_polars_frame():
    pd = pytest.importorskip("pandas")
    plain = {name: FRAME[name].to_list() for name in FRAME.columns}
    ours = read_records(build_memory_table(FRAME), SCHEMA, "logistic")
    for kinds in ({}, {"age": "Int64", "ward": "category"}, {"ward": "string", "age": object}):
        theirs = read_records(
            build_memory_table(pd.DataFrame(plain).astype(kinds)), SCHEMA, "logistic"
        )
        np.testing.assert_array_equal(ours.features, theirs.features)
        assert ours.contents == theirs.contents


def test_objects_become_numbers_or_texts_and_a_missing_one_is_no_text():
    class Absent:
        def __repr__(self):
            return "<NA>"

    found = to_columns(
        {
            "n": np.array([1, Absent(), 2.5], object),
            "t": np.array(["nan", None, float("nan")], object),
            "b": np.array([True, False, None], object),
        }
    )
    np.testing.assert_array_equal(found["n"], [1, np.nan, 2.5])
    assert found["t"].tolist() == ["nan", "", ""]  # a text spelt like a missing value is a text
    assert found["b"].tolist() == ["True", "False", ""]


def test_arrays_take_the_names_of_the_schema():
    rows = np.array([[10.0, 0.5], [90.0, 0.1]])
    two = Schema.from_toml("""
    [columns]
    id = { kind = "ignore" }
    age = { kind = "numeric", range = [0, 100] }
    dose = { kind = "numeric", range = [0, 1] }
    sick = { kind = "label", positive = [1], negative = [0] }
    """)
    named = build_memory_table((rows, [0, 1]), schema=two)
    assert list(named.columns) == ["age", "dose", "sick"]
    assert read_records(named, two, "logistic").labels.tolist() == [-1.0, 1.0]
    image = Schema.from_toml("""
    [columns]
    x = { kind = "array", shape = [2], range = [0, 100] }
    y = { kind = "label", classes = [0, 1] }
    """)
    assert list(build_memory_table((rows, [0, 1]), schema=image).columns) == ["x", "y"]
    with pytest.raises(DataError, match=r"2 columns.*got shape \(2, 1\)"):
        build_memory_table((rows[:, :1], [0, 1]), schema=two)
    with pytest.raises(DataError, match="X of shape"):
        build_memory_table((rows[:, 0], [0, 1]), schema=two)


def test_a_torch_data_set_becomes_its_pairs():
    torch = pytest.importorskip("torch")
    rows, labels = torch.arange(24.0).reshape(3, 2, 4), torch.tensor([2, 0, 1])
    whole = torch.utils.data.TensorDataset(rows, labels)
    found = build_memory_table(torch.utils.data.Subset(whole, [2, 0])).columns
    np.testing.assert_array_equal(found["x"], rows[[2, 0]].numpy())
    assert found["y"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("patients.csv", "a Dataset of pairs"),
        (3, "Expected a frame, columns by name"),
        (np.zeros((3, 2)), "Expected a frame, columns by name"),
        ((np.zeros((3, 2)),), "a tuple of 1"),
        ([], "a Dataset of pairs"),
        ([1, 2], "a Dataset of pairs"),
        ([(np.zeros(2), 0), (np.zeros(3), 1)], "of one shape"),
        (({"y": [1, 2]}, [0, 1]), "'y' only in y"),
    ],
)
def test_what_is_no_data_is_refused(data, message):
    with pytest.raises(DataError, match=message):
        build_memory_table(data)


def test_columns_beyond_the_schema_and_missing_ones_are_named_together():
    frame = FRAME.drop("age", "id").with_columns(extra=pl.lit(1))
    with pytest.raises(DataError, match=r"no column \['age'\] and \['extra'\]"):
        read_records(build_memory_table(frame), SCHEMA, "logistic")


def test_a_schema_read_off_a_frame_is_that_of_its_file(tmp_path):
    FRAME.write_parquet(tmp_path / "a.parquet")
    ours, theirs = infer_schema(build_memory_table(FRAME)), infer_schema(tmp_path / "a.parquet")
    for one, other in zip(ours.columns, theirs.columns, strict=True):
        assert one.entry["kind"] == other.entry["kind"]
    read = Schema.from_toml(ours.text)
    assert read.file.format is None
    assert len(read_records(build_memory_table(FRAME), read, "logistic")) == 3


def test_columns_of_unequal_length_are_refused_by_name_not_ignored():
    columns = {"a": np.zeros(6), "b": np.zeros(5), "out": np.arange(6) % 2}
    with pytest.raises(DataError, match=r"columns of one length.*got 6 in 'a' and 5 in 'b'"):
        build_memory_table(columns)
