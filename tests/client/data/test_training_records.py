"""Reading a party's files: what comes out, and every way in which data can be wrong."""

import gzip
import os
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tables import GOOD, HEADER, SCHEMA, columns, write

from parley.client.data import table_reading
from parley.client.data.data_error import DataError
from parley.client.data.party_file_pattern import find_party_files
from parley.client.data.record_reading import read_records
from parley.client.data.schema import Schema, load_schema
from parley.client.data.schema_inference.schema_draft import infer_schema
from parley.client.data.training_records import build_records

ROOT = Path(__file__).resolve().parents[3]


DATA = Path(os.environ.get("PARLEY_DATA", ROOT.parent / "shared" / "data"))


def check_good(records):
    expected = np.array([[0.5, 1, 0, 1, 0, 0], [1, 0, 1, 0, 0, 1], [1, 0, 1, 0, 1, 0]]) / np.sqrt(3)
    np.testing.assert_allclose(records.features, expected, rtol=1e-11)
    assert records.features.dtype == np.float64
    assert records.features.flags.c_contiguous
    assert records.labels.tolist() == [1.0, -1.0, -1.0]
    assert records.feature_names[:3] == ("age", "sex=f", "sex=m")
    assert records.clamped == {"age": 1}


def test_the_same_records_come_from_csv_gzip_parquet_npz_and_memory(tmp_path):
    check_good(read_records(write(tmp_path, GOOD), SCHEMA, "logistic"))
    check_good(
        read_records(write(tmp_path, gzip.compress(GOOD.encode()), "d.csv.gz"), SCHEMA, "logistic")
    )
    pl.DataFrame(columns()).write_parquet(tmp_path / "d.parquet")
    check_good(read_records(tmp_path / "d.parquet", SCHEMA, "logistic"))
    np.savez(tmp_path / "d.npz", **columns())
    check_good(read_records(tmp_path / "d.npz", SCHEMA, "logistic"))
    check_good(build_records(columns(), SCHEMA, "logistic"))


def test_files_windows_wrote_and_spaces_around_texts_read_alike(tmp_path):
    text = "\ufeff" + GOOD.replace("\n", "\r\n").replace(",f,", ", f ,") + "\r\n"
    check_good(read_records(write(tmp_path, text), SCHEMA, "logistic"))


def test_column_order_of_the_file_does_not_matter(tmp_path):
    frame = pl.DataFrame(columns()).select("sick", "job", "hospital", "sex", "age")
    frame.write_csv(tmp_path / "d.csv")
    check_good(read_records(tmp_path / "d.csv", SCHEMA, "logistic"))


def test_labels_are_classes_for_softmax_and_scaled_targets_for_ridge(tmp_path):
    records = read_records(write(tmp_path, GOOD), SCHEMA, "softmax")
    assert records.labels.tolist() == [1, 0, 0]
    assert records.labels.dtype == np.int64
    ridge = Schema.from_toml(
        "[columns]\nx = {kind='numeric', range=[0, 1]}\ny = {kind='label', range=[10, 20]}"
    )
    path = write(tmp_path, "x,y\n0,10\n1,15\n1,99\n")
    assert read_records(path, ridge, "ridge").labels.tolist() == [-1, 0, 1]


def test_rest_takes_every_label_not_named(tmp_path):
    rest = Schema.from_toml(
        "[columns]\nx = {kind='numeric', range=[0, 1]}\n"
        "y = {kind='label', positive='rest', negative=['normal.']}"
    )
    path = write(tmp_path, "x,y\n0,normal.\n1,smurf.\n1,satan.\n")
    assert read_records(path, rest, "logistic").labels.tolist() == [-1, 1, 1]
    with pytest.raises(DataError, match="line 3, column 'y': Expected a label in every record"):
        read_records(write(tmp_path, "x,y\n0,a\n1,\n"), rest, "logistic")


def test_missing_values_become_what_the_schema_says(tmp_path):
    filled = Schema.from_toml("""
scaling = "schema"
[file]
null-values = ["?"]
[columns]
a = { kind = "numeric", range = [0, 10], centre = 0, missing = 5 }
b = { kind = "categorical", categories = ["u", "v"], missing = "v" }
c = { kind = "categorical", categories = ["u"], other = true }
y = { kind = "label", positive = 1, negative = 0 }
""")
    path = write(tmp_path, "a,b,c,y\n?,?,?,1\n,,,0\n10,u,u,1.0\n")
    rows = read_records(path, filled, "logistic").features * np.sqrt(3)
    empty = [0.5, 0, 1, 0, 1]
    np.testing.assert_allclose(rows, [empty, empty, [1, 1, 0, 1, 0]], rtol=1e-11)


def test_groups_keep_a_column_that_is_no_feature(tmp_path):
    records = read_records(write(tmp_path, GOOD), SCHEMA, "logistic", group_column="hospital")
    assert records.groups.tolist() == ["A", "B", "A"]
    assert records.take(np.array([2, 1])).groups.tolist() == ["A", "B"]
    with pytest.raises(ValueError, match="group column of the schema, got 'ward'"):
        read_records(tmp_path / "data.csv", SCHEMA, "logistic", group_column="ward")


def test_several_files_are_one_table_and_a_sample_is_drawn_from_all(tmp_path):
    first = write(tmp_path, GOOD, "a.csv")
    second = write(tmp_path, GOOD.replace(",yes", ",no"), "b.csv")
    both = read_records([first, second], SCHEMA, "logistic")
    assert both.labels.tolist() == [1, -1, -1, -1, -1, -1]
    assert both.clamped == {"age": 2}

    def draw(seed):
        rng = np.random.default_rng(seed)
        return read_records([first, second], SCHEMA, "logistic", sample=4, rng=rng)

    assert len(draw(1)) == 4
    np.testing.assert_array_equal(draw(1).features, draw(1).features)
    assert len({draw(seed).features.tobytes() for seed in range(10)}) > 1
    with pytest.raises(ValueError, match="sample of 1 to 6 records, got 7"):
        read_records([first, second], SCHEMA, "logistic", sample=7, rng=np.random.default_rng())


def test_tables_with_tabs_are_inferred_and_read_by_their_usual_name(tmp_path):
    for name in ("d.tsv", "d.TXT", "d.tsv.gz"):
        text = GOOD.replace(",", "\t").encode()
        path = write(tmp_path, gzip.compress(text) if name.endswith("gz") else text, name)
        found = Schema.from_toml(infer_schema(path, label="sick").text)
        assert found.file.separator == "\t"
        assert len(read_records(path, found, "logistic").labels) == GOOD.count("\n") - 1


def test_a_range_can_be_enforced_instead_of_clamped(tmp_path):
    strict = Schema.from_toml(SCHEMA.to_toml().replace("centre = 0", 'outside = "refuse"'))
    message = r"line 4, column 'age': Expected a number in \[0, 100\], got 250"
    with pytest.raises(DataError, match=message):
        read_records(write(tmp_path, GOOD), strict, "logistic")


def test_party_files_come_in_natural_order(tmp_path):
    for party in (10, 2, 1):
        write(tmp_path, HEADER + f"{party},f,cook,A,yes\n", f"party-{party}.csv")
    pattern = str(tmp_path / "party-*.csv")
    assert [path.stem for path in find_party_files(pattern)] == ["party-1", "party-2", "party-10"]
    parties = [read_records(file, SCHEMA, "logistic") for file in find_party_files(pattern)]
    ages = [float(p.features[0, 0] * np.sqrt(3)) for p in parties]
    np.testing.assert_allclose(ages, [0.01, 0.02, 0.1])
    write(tmp_path, HEADER, "party-3.csv")
    with pytest.raises(DataError, match=r"party-3\.csv: Expected at least one record, got none"):
        [read_records(file, SCHEMA, "logistic") for file in find_party_files(pattern)]
    with pytest.raises(DataError, match="one per party, got none"):
        find_party_files(str(tmp_path / "nobody-*.csv"))


def test_an_inferred_schema_reads_its_own_file_and_says_it_must_be_reviewed(tmp_path):
    rng = np.random.default_rng(0)
    pl.DataFrame(
        {
            "patient_id": np.arange(200),
            "name": [f"person {k}" for k in range(200)],
            "age": rng.integers(18, 94, 200),
            "cost": np.concatenate([rng.exponential(10, 199), [9e4]]),
            "ward": rng.choice(["north", "south"], 200),
            "note": [None if k % 7 else "x" for k in range(200)],
            "pulse": [None if k % 9 == 0 else 60.5 + k % 30 for k in range(200)],
            "constant": [1] * 200,
            "sick": rng.choice([0.0, 1.0], 200),
        }
    ).write_csv(tmp_path / "d.csv")
    text = infer_schema(tmp_path / "d.csv").text
    for words in ("REVIEW IT BEFORE USE", "READ FROM THE DATA", "NO PRIVACY BUDGET COVERS"):
        assert words in text
    inferred = Schema.from_toml(text)
    kinds = {name: column.kind for name, column in inferred.columns.items()}
    assert [n for n, k in kinds.items() if k == "ignore"] == [
        "patient_id", "name", "constant",
    ]  # fmt: skip
    assert inferred.columns["age"].range == (10, 100)
    assert inferred.columns["cost"].transform == "log1p"
    assert inferred.columns["pulse"].missing is not None
    assert inferred.label.positive == (1,)
    records = read_records(tmp_path / "d.csv", inferred, "logistic")
    assert len(records) == 200
    assert records.clamped == {}


@pytest.mark.parametrize(
    ("labels", "model_kind"),
    [
        (["no", "yes"], "logistic"), (["True", "False"], "logistic"),
        ([True, False], "logistic"), (["a", "b", "c"], "softmax"), ([3, 4, 5], "softmax"),
        ([k / 7 for k in range(60)], "ridge"), ([1000 * k for k in range(60)], "ridge"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_the_label_is_recognised_in_every_format(labels, model_kind, suffix, tmp_path):
    y = np.array((labels * 60)[:60])
    x = np.linspace(-3, 3, 60)
    path = tmp_path / f"d{suffix}"
    if suffix == ".npz":
        np.savez(path, x=x, y=y)
    else:
        frame = pl.DataFrame({"x": x, "y": y})
        frame.write_csv(path) if suffix == ".csv" else frame.write_parquet(path)
    inferred = Schema.from_toml(infer_schema(path, label="y").text)
    assert len(read_records(path, inferred, model_kind)) == 60
    if labels == ["no", "yes"]:
        assert inferred.label.positive == ("yes",)


def test_inference_refuses_what_it_can_not_describe(tmp_path):
    with pytest.raises(DataError, match="a label column among"):
        infer_schema(write(tmp_path, GOOD), label="ill")
    with pytest.raises(DataError, match="two labels or more, got 1"):
        infer_schema(write(tmp_path, "x,y\n1,a\n2,a\n"))
    with pytest.raises(DataError, match="an empty file"):
        infer_schema(write(tmp_path, ""))
    with pytest.raises(DataError, match="a column to learn from"):
        infer_schema(write(tmp_path, "x,y\n" + "1,a\n1,b\n" * 10))


def test_files_without_a_header_take_the_order_of_the_schema(tmp_path):
    text = infer_schema(write(tmp_path, "1,a,yes\n2,b,no\n3,a,no\n" * 10), header=False).text
    inferred = Schema.from_toml(text)
    assert not inferred.file.header
    records = read_records(tmp_path / "data.csv", inferred, "logistic")
    assert records.labels.tolist() == [1, -1, -1] * 10
    with pytest.raises(DataError, match="line 2: Expected 3 fields, got 4"):
        read_records(write(tmp_path, "1,a,yes\n2,b,no,5\n"), inferred, "logistic")
    with pytest.raises(DataError, match="line 2, column 'column_2'"):
        read_records(write(tmp_path, "1,a,yes\n2,z,no\n"), inferred, "logistic")


def need(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"no {name} in {DATA} (set PARLEY_DATA)")
    return path


def test_the_example_schema_of_adult_reads_its_file():
    schema = load_schema(ROOT / "examples" / "adult.schema.toml")
    records = read_records(need("adult.csv.gz"), schema, "logistic", group_column="education")
    assert records.features.shape == (30162, 29)
    assert (records.labels > 0).mean() == pytest.approx(0.2489, abs=1e-4)
    assert records.clamped == {}
    assert np.linalg.norm(records.features, axis=1).max() <= 1


def test_the_example_schema_of_kdd_cup_99_reads_its_files(tmp_path):
    schema = load_schema(ROOT / "examples" / "kddcup99.schema.toml")
    path = tmp_path / "every-40th.gz"
    with gzip.open(need("kddcup.data_10_percent.gz")) as whole, gzip.open(path, "wb") as part:
        part.writelines(islice(whole, 0, None, 40))
    rng = np.random.default_rng(0)
    records = read_records(path, schema, "logistic", sample=7_000, rng=rng)
    assert records.features.shape == (7_000, 121)
    assert (records.labels > 0).mean() == pytest.approx(0.803, abs=0.02)
    assert np.linalg.norm(records.features, axis=1).max() <= 1


def test_columns_that_are_taken_for_each_other_leave_every_record_its_cells(tmp_path, monkeypatch):
    """Whatever says which columns there are: rows stay apart."""
    text = """
[columns]
a = { kind = "numeric", range = [-1, 1] }
b = { kind = "numeric", range = [-1, 1] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
    schema, path = Schema.from_toml(text), tmp_path / "rows.csv"
    path.write_text("a,b,sick\n.1,.2,yes\n-.3,.4,no\n.5,-.6,yes\n")
    apart = read_records(path, schema, "logistic")
    monkeypatch.setattr(table_reading, "check_column_names", lambda *_, **__: ["b", "a", "sick"])
    swapped = read_records(path, schema, "logistic")
    assert swapped.features[:, ::-1].tolist() == apart.features.tolist()
    assert swapped.labels.tolist() == apart.labels.tolist()
