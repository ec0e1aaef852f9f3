"""Reading a party's files: what comes out, and every way in which data can be wrong."""

import gzip
import os
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from parley.client.data.records import (
    DataError,
    find_party_files,
    read_records,
    records_from_columns,
)
from parley.client.data.schema import Schema, SchemaError, load_schema
from parley.client.data.schema_inference import infer_schema

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("PARLEY_DATA", ROOT.parent / "shared" / "data"))

SCHEMA = Schema.from_toml("""
scaling = "schema"
[columns]
age = { kind = "numeric", range = [0, 100], centre = 0 }
sex = { kind = "categorical", categories = ["f", "m"] }
job = { kind = "categorical", categories = ["cook", "clerk"], other = true }
hospital = { kind = "ignore" }
sick = { kind = "label", positive = ["yes"], negative = ["no"], classes = ["no", "yes"] }
""")
HEADER = "age,sex,job,hospital,sick\n"
GOOD = HEADER + "50,f,cook,A,yes\n100,m,pilot,B,no\n250,m,clerk,A,no\n"


def write(folder, text, name="data.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def columns():
    return {
        "age": np.array([50.0, 100.0, 250.0]),
        "sex": np.array(["f", "m", "m"]),
        "job": np.array(["cook", "pilot", "clerk"]),
        "hospital": np.array(["A", "B", "A"]),
        "sick": np.array(["yes", "no", "no"]),
    }


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
    check_good(records_from_columns(columns(), SCHEMA, "huber-svm"))


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


def test_errors_in_a_sample_name_the_line_of_the_file(tmp_path):
    lines = [f"{k},f,cook,A,yes\n" for k in range(50)]
    lines[40] = "40,x,cook,A,yes\n"
    path = write(tmp_path, HEADER + "".join(lines))
    with pytest.raises(DataError, match="line 42, column 'sex'"):
        read_records(path, SCHEMA, "logistic", sample=50, rng=np.random.default_rng(0))


def test_lines_are_counted_through_quoted_line_breaks(tmp_path):
    path = write(tmp_path, HEADER + '1,f,"a\nb\nc",A,yes\n2,f,cook,A,yes\n3,f,cook,A,maybe\n')
    with pytest.raises(DataError, match="line 6, column 'sick'") as caught:
        read_records(path, SCHEMA, "logistic")
    assert (caught.value.row, caught.value.column) == (6, "sick")
    assert "maybe" not in caught.value.log_message


BAD_CSV = {
    "text in a number": ("x1,f,cook,A,yes", "line 3, column 'age': Expected a number, got 'x1'"),
    "hexadecimal": ("0x1F,f,cook,A,yes", "line 3, column 'age': Expected a number, got '0x1F'"),
    "nan": ("NaN,f,cook,A,yes", "line 3, column 'age': Expected a finite number, got nan"),
    "infinity": ("-inf,f,cook,A,yes", "line 3, column 'age': Expected a finite number, got -inf"),
    "overflow": ("1e999,f,cook,A,yes", "line 3, column 'age': Expected a finite number, got inf"),
    "no number": (",f,cook,A,yes", "line 3, column 'age': Expected a number, got an empty value"),
    "unknown category": (
        "5,x,cook,A,yes",
        "line 3, column 'sex': Expected one of the categories 'f', 'm', got 'x'",
    ),
    "no category": ("5,,cook,A,yes", "line 3, column 'sex': .* got an empty value"),
    "empty quotes": ('5,"",cook,A,yes', "line 3, column 'sex': .* got an empty value"),
    "unknown label": (
        "5,f,cook,A,maybe",
        "line 3, column 'sick': Expected one of the labels 'yes', 'no', got 'maybe'",
    ),
    "no label": (
        "5,f,cook,A,",
        "line 3, column 'sick': Expected a label in every .* none in line 3",
    ),
    "field too few": ("5,f,cook,A", "line 3: Expected 5 fields, got 4"),
    "field too many": ("5,f,cook,A,yes,6", "line 3: Expected 5 fields, got 6"),
    "empty line": ("", "line 3: Expected 5 fields, got an empty line"),
    "long text": ("y" * 900 + ",f,cook,A,yes", "got 'y{57}…'"),
    "not UTF-8": (
        b"5,\xff\xfe,cook,A,yes",
        "line 3: Expected text in utf-8 .*windows-1252.*, got byte 0xff",
    ),
}


@pytest.mark.parametrize("case", BAD_CSV)
def test_a_bad_line_is_named_with_column_and_expectation(case, tmp_path):
    line, message = BAD_CSV[case]
    line = line if isinstance(line, bytes) else line.encode()
    good = b"50,f,cook,A,yes\n"
    path = write(tmp_path, HEADER.encode() + good + line + b"\n" + good)
    with pytest.raises(DataError, match=message) as caught:
        read_records(path, SCHEMA, "logistic")
    assert caught.value.path == str(path)
    assert str(path) in str(caught.value)


BAD_FILE = {
    "empty file": ("d.csv", b"", "at least one record, got an empty file"),
    "header only": ("d.csv", HEADER.encode(), "at least one record, got none"),
    "column missing": ("d.csv", b"age,sex,job,sick\n5,f,cook,yes\n", r"no column \['hospital'\]"),
    "column extra": ("d.csv", (HEADER[:-1] + ",id\n").encode(), r"\['id'\], not in the schema"),
    "column twice": ("d.csv", b"age," + HEADER.encode(), r"\['age'\] more than once"),
    "quote never closed": ("d.csv", (GOOD + '5,f,cook,A,"yes\n').encode(), "line 5: .* is closed"),
    "lines of an old Mac": (
        "d.csv",
        GOOD.replace("\n", "\r").encode(),
        r"end in .n or .r.n, got .r",
    ),
    "truncated gzip": ("d.csv.gz", gzip.compress(GOOD.encode() * 9)[:-20], "whole gzip data"),
    "damaged gzip": ("d.csv.gz", gzip.compress(b"a")[:-8] + b"\0" * 8, "whole gzip data"),
    "not Parquet": ("d.parquet", GOOD.encode(), "a Parquet file"),
    "not npz": ("d.npz", GOOD.encode(), "a .npz file of plain arrays"),
    "broken zip": ("d.npz", b"PK\x03\x04garbage", "a .npz file of plain arrays"),
    "no suffix": ("data", GOOD.encode(), "Expected a suffix .csv"),
    "text for a spreadsheet": ("d.xlsx", b"PK", "Expected a suffix .csv"),
}


@pytest.mark.parametrize("case", BAD_FILE)
def test_a_bad_file_is_named(case, tmp_path):
    name, content, message = BAD_FILE[case]
    with pytest.raises(DataError, match=message) as caught:
        read_records(write(tmp_path, content, name), SCHEMA, "logistic")
    assert name in str(caught.value)


def test_tables_with_tabs_are_inferred_and_read_by_their_usual_name(tmp_path):
    for name in ("d.tsv", "d.TXT", "d.tsv.gz"):
        text = GOOD.replace(",", "\t").encode()
        path = write(tmp_path, gzip.compress(text) if name.endswith("gz") else text, name)
        found = Schema.from_toml(infer_schema(path, label="sick").text)
        assert found.file.separator == "\t"
        assert len(read_records(path, found, "logistic").labels) == GOOD.count("\n") - 1


@pytest.mark.parametrize("name", ["d.csv", "d.csv.gz", "d.npz", "d.parquet"])
def test_damaged_bytes_give_records_or_a_data_error_and_nothing_else(name, tmp_path):
    np.savez(tmp_path / "d.npz", **columns())
    pl.DataFrame(columns()).write_parquet(tmp_path / "d.parquet")
    write(tmp_path, GOOD, "d.csv")
    write(tmp_path, gzip.compress(GOOD.encode(), mtime=0), "d.csv.gz")
    path = tmp_path / name
    good = path.read_bytes()
    rng = np.random.default_rng(5)
    refused = 0
    for _ in range(100):
        damaged = bytearray(good[: rng.integers(1, len(good) + 1)] if rng.random() < 0.3 else good)
        for at in rng.integers(0, len(damaged), rng.integers(1, 4)):
            damaged[at] = rng.choice([0, 10, 34, 44, rng.integers(256)])
        path.write_bytes(damaged)
        for attempt in (
            lambda: read_records(path, SCHEMA, "logistic", group_column="hospital"),
            lambda: infer_schema(path, label="sick"),
        ):
            try:
                attempt()
            except DataError:
                refused += 1
    assert refused > 50


@pytest.mark.parametrize("name", ["nowhere.csv", "nowhere.parquet", "nowhere.npz"])
def test_a_file_that_is_not_there_is_named(name, tmp_path):
    with pytest.raises(DataError, match=f"{name}: Expected a file, got nothing there"):
        read_records(tmp_path / name, SCHEMA, "logistic")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="Expected a readable file, got Is a directory"):
        read_records(tmp_path / "folder.csv", SCHEMA, "logistic")


BAD_COLUMN = {
    "text for numbers": ("age", ["1", "2", "3"], "Expected a column of numbers, got type String"),
    "dates": ("sex", np.array(["2020-01-01"] * 3, "datetime64[D]"), "a column of text or numbers"),
    "null": ("age", [1.0, None, 3.0], "row 2, column 'age': Expected a number"),
    "nan": ("age", [1.0, 2.0, float("nan")], "row 3, column 'age': Expected a finite number"),
    "lists": ("job", [["a"], ["b"], ["c"]], "got type List"),
    "wrong label type": ("sick", [1, 0, 1], "row 1, column 'sick': .* got '1'"),
}


@pytest.mark.parametrize("case", BAD_COLUMN)
def test_a_bad_parquet_column_is_named(case, tmp_path):
    name, values, message = BAD_COLUMN[case]
    frame = pl.DataFrame({**columns(), name: pl.Series(values)})
    frame.write_parquet(tmp_path / "d.parquet")
    with pytest.raises(DataError, match=message):
        read_records(tmp_path / "d.parquet", SCHEMA, "logistic")


def test_arrays_are_checked_for_shape_type_and_values(tmp_path):
    images = Schema.from_toml("""
[columns]
x = { kind = "array", shape = [2, 2], range = [0, 255], centre = 0, outside = "refuse" }
y = { kind = "label", classes = [0, 1, 2] }
""")
    path = tmp_path / "d.npz"

    def read(x, y=(0, 1, 2)):
        np.savez(path, x=np.asarray(x), y=np.asarray(y))
        return read_records(path, images, "softmax")

    good = np.zeros((3, 2, 2), np.uint8)
    good[1, 0, 1] = 255
    np.testing.assert_allclose(read(good).features[1], [0, 1, 0, 0])
    with pytest.raises(DataError, match=r"shape \(3, 2, 2\), got shape \(3, 4\)"):
        read(good.reshape(3, 4))
    with pytest.raises(DataError, match=r"column 'y': Expected an array of shape \(3,\)"):
        read(good, [0, 1])
    with pytest.raises(DataError, match=r"row 2, column 'x': .*got nan at \[0,1\]"):
        read(np.where(good > 0, np.nan, 0.0))
    with pytest.raises(DataError, match=r"Expected a number in \[0, 255\], got 510 at \[0,1\]"):
        read(good.astype(int) * 2)
    with pytest.raises(DataError, match="an array of numbers, got dtype <U"):
        read(good.astype(str))
    with pytest.raises(DataError, match="row 3, column 'y': Expected one of the classes"):
        read(good, [0, 1, 7])
    with pytest.raises(DataError, match="at least one record, got none"):
        read(good[:0], np.zeros(0, int))
    np.savez(path, x=good, y=np.array([None, 1, 2], dtype=object))
    with pytest.raises(DataError, match="plain arrays"):
        read_records(path, images, "softmax")
    np.savez(path, x=good, y=np.array(3))
    with pytest.raises(DataError, match=r"got shape \(\)"):
        read_records(path, images, "softmax")
    with path.open("wb") as file:
        np.save(file, good)
    with pytest.raises(DataError, match="plain arrays"):
        read_records(path, images, "softmax")


def test_a_range_can_be_enforced_instead_of_clamped(tmp_path):
    strict = Schema.from_toml(SCHEMA.to_toml().replace("centre = 0", 'outside = "refuse"'))
    message = r"line 4, column 'age': Expected a number in \[0, 100\], got 250"
    with pytest.raises(DataError, match=message):
        read_records(write(tmp_path, GOOD), strict, "logistic")


def test_a_model_the_label_was_not_described_for_is_refused_before_reading():
    with pytest.raises(SchemaError, match="label 'sick' to give range for a ridge model"):
        read_records("nowhere.csv", SCHEMA, "ridge")
    with pytest.raises(ValueError, match=r"Expected a model of logistic, .*, got 'forest'"):
        read_records("nowhere.csv", SCHEMA, "forest")


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
    with pytest.raises(DataError, match="one a party, got none"):
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
        "patient_id", "name", "note", "constant",
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
        (["no", "yes"], "logistic"),
        (["True", "False"], "logistic"),
        ([True, False], "logistic"),
        (["a", "b", "c"], "softmax"),
        ([3, 4, 5], "softmax"),
        ([k / 7 for k in range(60)], "ridge"),
        ([1000 * k for k in range(60)], "ridge"),
    ],
)
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
        infer_schema(write(tmp_path, "x,y\n1,a\n1,b\n"))


def test_files_without_a_header_take_the_order_of_the_schema(tmp_path):
    text = infer_schema(write(tmp_path, "1,a,yes\n2,b,no\n3,a,no\n"), header=False).text
    inferred = Schema.from_toml(text)
    assert not inferred.file.header
    records = read_records(tmp_path / "data.csv", inferred, "logistic")
    assert records.labels.tolist() == [1, -1, -1]
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
