"""A record without a label is never trained as one of the "rest": refused by row, or left out."""

import numpy as np
import polars as pl
import pytest

from parley.client.contract.refusals import Declined
from parley.client.data.data_error import DataError
from parley.client.data.party_file_pattern import find_party_files
from parley.client.data.record_reading import read_records
from parley.client.data.schema import Schema
from parley.client.data.training_records import build_records
from parley.client.party.dataset_config import DatasetConfig
from parley.client.party.dataset_loader import load_dataset

REST = """
[columns]
x = { kind = "numeric", range = [0, 1] }
y = { kind = "label", positive = 1, negative = "rest", classes = [0, 1], range = [0, 1] }
"""
DROP = REST.replace("positive", 'missing = "drop", positive')
KINDS = ["logistic", "softmax", "ridge"]


def make(tmp_path, form, missing, name="d"):
    """Four records, the second and the fourth without a label."""
    x = np.array([0.0, 0.25, 0.5, 1.0])
    path = tmp_path / f"{name}.{form}"
    if form == "csv":
        path.write_text(f"x,y\n0,1\n0.25,{missing}\n0.5,0\n1,{missing}\n")
    elif form == "parquet":
        values = [1.0, missing, 0.0, missing]
        pl.DataFrame({"x": x, "y": pl.Series(values, dtype=pl.Float64)}).write_parquet(path)
    else:
        np.savez(path, x=x, y=np.array([1.0, np.nan, 0.0, np.nan]))
    return path


CASES = [
    *(("csv", text) for text in ("", "NA", "nan", "NaN", "null", "N/A", "?", "None", " ")),
    ("parquet", None),
    ("parquet", float("nan")),
    ("npz", None),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("form", "missing"), CASES)
def test_missing_labels_are_refused_by_row_or_left_out(form, missing, kind, tmp_path):
    path = make(tmp_path, form, missing)
    place = "lines 3, 5" if form == "csv" else "rows 2, 4"
    with pytest.raises(DataError, match=f'missing = "drop".* none in {place} \\(2 of 4'):
        read_records(path, Schema.from_toml(REST), kind)
    with pytest.raises(DataError, match=place):
        read_records(find_party_files(str(tmp_path / "d.*")), Schema.from_toml(REST), kind)
    kept = read_records(path, Schema.from_toml(DROP), kind)
    np.testing.assert_allclose(kept.features[:, 0], [-1, 0], rtol=1e-11)
    assert len(set(kept.labels.tolist())) == 2


def test_missing_text_labels_of_every_format_are_seen(tmp_path):
    texts = ["1", "", "other", "None", "nan"]
    x = np.linspace(0, 1, 5)
    np.savez(tmp_path / "d.npz", x=x, y=np.array(texts))
    pl.DataFrame({"x": x, "y": texts}).write_parquet(tmp_path / "d.parquet")
    for name in ("d.npz", "d.parquet"):
        with pytest.raises(DataError, match="none in rows 2, 4, 5"):
            read_records(tmp_path / name, Schema.from_toml(REST), "logistic")
    with pytest.raises(DataError, match="none in rows 2, 4, 5"):
        build_records({"x": x, "y": np.array(texts)}, Schema.from_toml(REST), "logistic")


def test_a_text_that_the_schema_lists_is_a_label_whatever_it_looks_like(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("x,y\n0,NA\n1,EU\n1,?\n")
    listed = Schema.from_toml(
        '[file]\nnull-values = ["NA", "?"]\n'
        + REST.replace("positive = 1", 'positive = ["NA", "?"]')
    )
    assert read_records(path, listed, "logistic").labels.tolist() == [1, -1, 1]


def test_records_without_a_label_leave_before_a_sample_is_drawn(tmp_path):
    path = make(tmp_path, "csv", "NA")
    schema = Schema.from_toml(DROP)
    drawn = read_records(path, schema, "logistic", sample=2, rng=np.random.default_rng(0))
    assert len(drawn) == 2
    with pytest.raises(ValueError, match="sample of 1 to 2 records, got 3"):
        read_records(path, schema, "logistic", sample=3, rng=np.random.default_rng(0))
    path.write_text("x,y\n0,\n1,NA\n")
    with pytest.raises(DataError, match="at least one record with a label"):
        read_records(path, schema, "logistic")


@pytest.mark.parametrize("label", ["logistic", "network"])
@pytest.mark.parametrize("form", ["csv", "parquet", "npz"])
def test_a_party_refuses_them_and_its_log_has_the_rows_but_no_value(label, form, tmp_path):
    path = make(tmp_path, form, "NA" if form == "csv" else None)
    (tmp_path / "schema.toml").write_text(REST)
    given = {"path": path.name, "schema": "schema.toml", "epsilon": 1, "delta": 0}
    dataset = DatasetConfig.model_validate(given)
    with pytest.raises(Declined) as caught:
        load_dataset(dataset, tmp_path, label=label, intercept=True)
    assert str(caught.value.reason) == "data-unreadable"
    row = "line 3" if form == "csv" else "row 2"
    assert row in caught.value.detail
    assert "column 'y'" in caught.value.detail
    (tmp_path / "schema.toml").write_text(DROP)
    holding = load_dataset(dataset, tmp_path, label=label, intercept=True)
    assert holding.facts.records == 2


def test_prepared_labels_that_are_no_numbers_are_named_by_row(tmp_path):
    labels = np.array([1.0, np.nan, -1.0, np.inf])
    np.savez(tmp_path / "rows.npz", features=np.full((4, 2), 0.5), labels=labels)
    dataset = DatasetConfig.model_validate({"prepared": "rows.npz", "epsilon": 1, "delta": 0})
    with pytest.raises(Declined) as caught:
        load_dataset(dataset, tmp_path, label="logistic", intercept=False)
    assert "rows 2, 4" in caught.value.detail


def test_missing_features_and_groups_are_empty_values_in_every_format(tmp_path):
    schema = Schema.from_toml("""
[columns]
c = { kind = "categorical", categories = [1, 2], missing = 2 }
g = { kind = "ignore" }
y = { kind = "label", positive = 1, negative = 0 }
""")
    columns = {"c": np.array([1.0, np.nan]), "g": np.array([1.0, np.nan]), "y": np.array([1, 0])}
    np.savez(tmp_path / "d.npz", **columns)
    pl.DataFrame(columns).write_parquet(tmp_path / "d.parquet")
    for name in ("d.npz", "d.parquet"):
        records = read_records(tmp_path / name, schema, "logistic")
        np.testing.assert_allclose(records.features, np.eye(2), rtol=1e-11)
        with pytest.raises(DataError, match="row 2, column 'g': Expected a party's name"):
            read_records(tmp_path / name, schema, "logistic", group_column="g")
