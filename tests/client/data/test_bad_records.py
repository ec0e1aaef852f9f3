"""Files, lines and columns that are not what the schema says are refused by name."""

import gzip
import math
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest
from tables import GOOD, HEADER, SCHEMA, columns, write

from parley.client.data.data_error import DataError
from parley.client.data.memory_limit import compute_memory_limit
from parley.client.data.npz_arrays import read_arrays
from parley.client.data.record_reading import read_records
from parley.client.data.schema import Schema, SchemaError
from parley.client.data.schema_inference.schema_draft import infer_schema


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
    "truncated gzip": ("d.csv.gz", gzip.compress(GOOD.encode() * 9)[:-20], "complete gzip data"),
    "damaged gzip": ("d.csv.gz", gzip.compress(b"a")[:-8] + b"\0" * 8, "complete gzip data"),
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
    with pytest.raises(DataError, match="Expected a file of records, got a folder"):
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


def test_a_model_the_label_was_not_described_for_is_refused_before_reading():
    with pytest.raises(SchemaError, match="label 'sick' to give range for a ridge model"):
        read_records("nowhere.csv", SCHEMA, "ridge")
    with pytest.raises(ValueError, match=r"Expected a model of logistic, .*, got 'forest'"):
        read_records("nowhere.csv", SCHEMA, "forest")


def test_threads_read_headers_of_arrays_one_after_another(tmp_path, monkeypatch):
    """Before Python 3.11.8 threads in `ast` disturb each other: a whole file was unreadable."""
    np.savez(tmp_path / "r.npz", features=np.ones((4, 2)))
    inside, most, load = [], [], np.lib.format.read_array

    def slowly(*args, **more):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.01)
        inside.pop()
        return load(*args, **more)

    monkeypatch.setattr(np.lib.format, "read_array", slowly)
    with ThreadPoolExecutor(4) as pool:
        given = [tmp_path / "r.npz", lambda names: names, compute_memory_limit(math.inf)]
        read = list(pool.map(lambda _: read_arrays(*given)["features"].sum(), range(8)))
    assert read == [8.0] * 8
    assert max(most) == 1
