"""Small files that hold much: read in batches, refused by a stated limit, no process dies."""

import gzip
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

import parley.client.data.csv_reader
import parley.client.data.memory_table_format
import parley.client.data.parquet_table_format
from parley.client.data.csv_reader import read_csv_batches
from parley.client.data.data_error import DataError
from parley.client.data.memory_limit import GIB, MemoryLimit, compute_memory_limit
from parley.client.data.record_reading import read_records
from parley.client.data.schema import Schema
from parley.client.data.schema_inference.schema_draft import infer_schema

SCHEMA = """
[file]
max-gib = {gib}
[columns]
x = {{ kind = "numeric", range = [0, 1] }}
y = {{ kind = "label", positive = 1, negative = 0 }}
"""


def zipped(path, piece, times):
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"x,y\n")
        for _ in range(times):
            file.write(piece)
    return path


def repeated(path, rows):
    # One value over and over: 40 million rows take 80 KB of disk.
    frame = pl.select(x=pl.repeat(0.5, rows), y=pl.repeat(1, rows))
    frame.write_parquet(path, row_group_size=rows)
    return path


def test_more_records_than_the_stated_limit_are_refused_in_every_format(tmp_path):
    schema = Schema.from_toml(SCHEMA.format(gib=0.005))
    most = int(0.005 * GIB) // 48
    csv = zipped(tmp_path / "d.csv.gz", b"0,1\n" * 1000, 200)
    parquet = repeated(tmp_path / "d.parquet", 200_000)
    np.savez_compressed(tmp_path / "d.npz", x=np.zeros(400_000), y=np.ones(400_000))
    for path in (csv, parquet):
        with pytest.raises(DataError, match=rf"at most {most:,} records of 1 features \(0.005 GiB"):
            read_records(path, schema, "logistic")
    with pytest.raises(DataError, match=r"at most 0\.\d\d GiB of values"):
        read_records(tmp_path / "d.npz", schema, "logistic")
    for path in (csv, parquet, tmp_path / "d.npz"):
        with pytest.raises(DataError, match=r"GiB of values .*file\.max-gib"):
            infer_schema(path, label="y", max_gib=0.001)
    assert len(read_records(csv, Schema.from_toml(SCHEMA.format(gib=1.0)), "logistic")) == 200_000


def test_a_sample_needs_room_for_cells_alone(tmp_path):
    path = repeated(tmp_path / "d.parquet", 100_000)
    schema = Schema.from_toml(SCHEMA.format(gib=0.006))
    rng = np.random.default_rng(0)
    assert len(read_records(path, schema, "logistic", sample=10, rng=rng)) == 10
    with pytest.raises(DataError, match="GiB of values"):
        read_records(
            path, Schema.from_toml(SCHEMA.format(gib=0.001)), "logistic", sample=10, rng=rng
        )


@pytest.mark.parametrize(
    ("name", "piece", "message"),
    [
        ("a record without end", b'0,"' + b"a" * 100_000, "fields of at most 131,072 characters"),
        ("lines in quotes without end", b'0,"a\n' + b"b\n" * 500_000, "at most 131,072"),
        ("line ends without end", b"\n" * 1_000_000, "records of at most 16,777,216 characters"),
    ],
)
def test_what_never_ends_is_refused_at_its_line(name, piece, message, tmp_path):
    path = zipped(tmp_path / "d.csv.gz", piece, 40)
    with pytest.raises(DataError, match=message) as caught:
        read_records(path, Schema.from_toml(SCHEMA.format(gib=1.0)), "logistic")
    assert caught.value.row in (1, 2)


_IN_A_SMALL_PROCESS = """
import resource, sys
import numpy, polars
from parley.client.data.memory_limit import GIB
from parley.client.data.table_reading import read_tables
from parley.client.data.training_records import DataError
from parley.client.data.record_reading import read_records
from parley.client.data.schema import Schema
from parley.client.data.schema_inference.schema_draft import infer_schema

polars.DataFrame({"x": ["1"] * 9999}).select(polars.col("x").cast(float).sum())
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = taken + int(float(sys.argv[1]) * GIB)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
schema = Schema.from_toml(sys.argv[2])
for path in sys.argv[3:]:
    for attempt in (
        lambda: read_records(path, schema, "logistic"),
        lambda: infer_schema(path, label="y"),
    ):
        try:
            attempt()
        except DataError as error:
            print("refused", error)
"""


def refusals(gib, *paths):
    schema = SCHEMA.format(gib=8.0)
    done = subprocess.run(
        [sys.executable, "-c", _IN_A_SMALL_PROCESS, str(gib), schema, *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
        env={"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "2"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_process_with_little_memory_refuses_and_lives_on(tmp_path):
    # Before: polars or numpy found no memory, and the process ended without a word of ours.
    parquet = repeated(tmp_path / "d.parquet", 40_000_000)
    np.savez_compressed(tmp_path / "d.npz", x=np.zeros(25_000_000), y=np.ones(25_000_000, "i1"))
    csv = zipped(tmp_path / "d.csv.gz", b"0,1\n" * 1_000_000, 6)
    lines = refusals(0.25, parquet, tmp_path / "d.npz", csv)
    assert len(lines) == 6
    assert all(
        "this process may still take" in one or "of free memory to continue" in one for one in lines
    )


@pytest.mark.heavy
def test_720_mb_in_a_file_of_1_mb_are_refused_under_a_memory_limit(tmp_path):
    csv = zipped(tmp_path / "d.csv.gz", b"0,1\n" * 1_000_000, 180)
    lines = refusals(1.5, csv)
    assert len(lines) == 2


def test_the_room_is_the_least_of_what_is_stated_and_what_is_left():
    assert compute_memory_limit(0.001).bytes == int(0.001 * GIB)
    assert "max-gib" in compute_memory_limit(0.001).source
    assert "may still take" in compute_memory_limit(2.0**20).source
    with pytest.raises(DataError, match="at most 62 records of 14 features"):
        MemoryLimit(bytes=16_000, source="a test").check_records(63, features=14, path="d.csv")


QUOTED = [
    'a,b\n1,"x, ""y"" z"\n2,"p\nq\n\nr"\n3,""\n',
    'a,b\r\n1,"x"\r\n2,"p\r\nq"\r\n3,plain\r\n\r\n',
    "a,b\n" + "".join(f'{k},"{k} ""quoted"" {k}\n{k}"\n' for k in range(40)),
    'a,b\n1,5" nail\n2,plain\n3,6" nail\n',
    "\ufeffa,b\n1,x\n2,y",
]


@pytest.mark.parametrize("text", QUOTED)
@pytest.mark.parametrize("piece", [1, 2, 7, 64, 4096])
def test_batches_are_whole_records_on_their_own_lines_however_a_file_is_cut(
    text, piece, tmp_path, monkeypatch
):
    import csv
    import io

    monkeypatch.setattr(parley.client.data.csv_reader, "_PIECE_BYTES", piece)
    path = tmp_path / "d.csv"
    path.write_bytes(text.encode())
    found = [
        entry
        for batch in read_csv_batches(path, separator=",", encoding="utf-8")
        for entry in batch.parse_records()
    ]
    body = text.removeprefix("\ufeff").rstrip("\r\n")
    reader = csv.reader(io.StringIO(body, newline="\n"))
    begin, expected = 1, []
    for fields in reader:
        expected.append((begin, fields))
        begin = reader.line_num + 1
    assert found == expected


def test_batches_of_a_table_give_the_same_records_as_the_whole(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    x, y = rng.random(500), rng.integers(0, 2, 500)
    pl.DataFrame({"x": x, "y": y}).write_csv(tmp_path / "d.csv")
    pl.DataFrame({"x": x, "y": y}).write_parquet(tmp_path / "d.parquet")
    np.savez(tmp_path / "d.npz", x=x, y=y)
    schema = Schema.from_toml(SCHEMA.format(gib=1.0))
    whole = read_records(tmp_path / "d.npz", schema, "logistic")
    monkeypatch.setattr(parley.client.data.csv_reader, "_PIECE_BYTES", 999)
    for module in (parley.client.data.parquet_table_format, parley.client.data.memory_table_format):
        monkeypatch.setattr(module, "BATCH_ROWS", 77)
    for name in ("d.csv", "d.parquet", "d.npz"):
        records = read_records(tmp_path / name, schema, "logistic")
        np.testing.assert_array_equal(records.features, whole.features)
        np.testing.assert_array_equal(records.labels, whole.labels)
    y[456] = 7
    np.savez(tmp_path / "d.npz", x=x, y=y)
    pl.DataFrame({"x": x, "y": y}).write_parquet(tmp_path / "d.parquet")
    pl.DataFrame({"x": x, "y": y}).write_csv(tmp_path / "d.csv")
    for name, place in (("d.npz", "row 457"), ("d.parquet", "row 457"), ("d.csv", "line 458")):
        with pytest.raises(DataError, match=place):
            read_records(tmp_path / name, schema, "logistic")
