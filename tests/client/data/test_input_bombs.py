"""Small files that stand for gigabytes: refused in a process that may take two of them.

Each reader runs in a process of its own under `ulimit -v`, because a library that gets no memory
ends its process without a word. These processes are forks of one that has imported the readers.
"""

from __future__ import annotations

import ast
import csv
import functools
import gzip
import io
import sqlite3
import subprocess
import sys
import zipfile

import numpy as np
import polars as pl
import pytest
from forged_parquet import packed, packed_zeros, page, plain_text, write_parquet

from parley.client.data.parquet_sizes import measure_row_groups
from parley.client.data.parquet_table_format import BATCH_ROWS

_READ = """
import os, resource, sys
import numpy, polars, sqlite3
from parley.client.data.schema import Schema
from parley.client.data.record_reading import read_records
from parley.client.data.data_sources import SqlQuery
from parley.client.data.schema_inference.schema_draft import infer_schema
from parley.client.data.data_error import DataError
from pathlib import Path

def read(kind, source):
    polars.DataFrame({"a": [1.0]}).select(polars.col("a").sum())  # its threads have their stacks
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (2 << 30),) * 2)
    schema = Schema.from_toml('''
[file]
max-gib = 0.5
[columns]
x = { kind = "categorical", categories = ["a", "b"] }
y = { kind = "label", positive = "1", negative = "0" }
''', source="schema")
    if source.startswith("sqlite:"):
        query = "SELECT * FROM v"
        source = SqlQuery(database=source, query=query, folder=Path("/"), timeout_s=2.0)
    try:
        if kind == "infer":
            infer_schema(source, label="y")
        else:
            read_records(source, schema, "logistic")
        return "read"
    except DataError as error:
        return f"refused: {str(error)[:300]}"

# No thread runs yet: polars starts its own in each fork.
for line in sys.stdin:
    if not (child := os.fork()):
        print(repr(read(*line.rstrip("\\n").split(" ", 1))), flush=True)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(f"exit {status}", flush=True)
"""


@pytest.fixture(scope="module")
def outcome():
    """Return a function that reads a source within 2 GiB and returns what that came to."""
    process = subprocess.Popen(
        [sys.executable, "-c", _READ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def read(source, kind="read"):
        process.stdin.write(f"{kind} {source}\n")
        process.stdin.flush()
        said = process.stdout.readline()
        assert not said.startswith("exit"), said
        assert process.stdout.readline() == "exit 0\n"
        return ast.literal_eval(said)

    yield read
    _, warned = process.communicate(timeout=120)
    assert process.returncode == 0, warned[-2000:]


def parquet(path, size, rows, dtype=pl.Categorical):
    """A text of `size` characters in every row, which the file holds once."""
    texts = pl.Series("x", ["a" * size], dtype=dtype).new_from_index(0, rows)
    labels = pl.Series("y", np.zeros(rows))
    frame = pl.DataFrame({"x": texts, "y": labels})
    frame.write_parquet(path, compression="zstd", statistics=False)
    assert path.stat().st_size < 4000


@pytest.mark.parametrize(
    ("size", "rows", "dtype"),
    [(1_000_000, 200_000, pl.Categorical), (100_000, 200_000, pl.Categorical),
     (1_000_000, 1000, pl.String)],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["read", "infer"])
def test_a_parquet_file_of_two_kilobytes_is_refused(tmp_path, outcome, size, rows, dtype, kind):
    parquet(tmp_path / "x.parquet", size, rows, dtype)
    assert outcome(tmp_path / "x.parquet", kind).startswith("refused: ")


TWO = plain_text(b"a", b"b")
LARGE = 1900 * 2**20


def large_page(cells, values, *, megabytes=1900, **header):
    """A page of zeros after the cells, a thousandth of it on the disk."""
    body = packed_zeros(cells, megabytes)
    return page(body, size=len(cells) + (megabytes << 20), values=values, **header)


def forged(kind):
    """Return row groups of a hostile file: see the names."""
    honest = page(packed(TWO), size=len(TWO), values=2)
    match kind:
        case "a page of 1.9 GB":
            return [(2, [large_page(TWO, 2)])]
        case "an empty page of 1.9 GB before the values":
            return [(2, [large_page(b"", 0), honest])]
        case "a header that states 1.9 GB":
            return [(2, [page(packed(TWO), size=LARGE, values=2)])]
        case "a header that states a negative size":
            return [(2, [page(packed(TWO), size=-1, values=2)])]
        case "a page of too many values":
            return [(2, [page(packed(TWO), size=len(TWO), values=2**31 - 1)])]
        case "fifty row groups of 0.1 GB":
            return [(1, [large_page(plain_text(b"a"), 1, megabytes=100)])] * 50
        case "texts with a shared beginning":
            return [(2, [page(packed(TWO), size=len(TWO), values=2, encoding=7)])]
    raise ValueError(kind)


@pytest.mark.parametrize(
    "kind",
    [
        "a page of 1.9 GB",
        "an empty page of 1.9 GB before the values",
        "a header that states 1.9 GB",
        "a header that states a negative size",
        "a page of too many values",
        "fifty row groups of 0.1 GB",
        "texts with a shared beginning",
    ],
)
def test_a_parquet_file_whose_pages_are_too_much_is_refused(tmp_path, outcome, kind):
    write_parquet(tmp_path / "x.parquet", *forged(kind))
    assert outcome(tmp_path / "x.parquet").startswith("refused: ")


def test_a_dictionary_of_gigabytes_is_refused(tmp_path, outcome):
    indices = page(packed(b"\x01\x04\x00"), size=3, values=2, encoding=8)
    pages = [large_page(TWO, 2, dictionary=True), indices]
    write_parquet(tmp_path / "x.parquet", (2, pages), dictionary=True)
    assert outcome(tmp_path / "x.parquet").startswith("refused: ")


def test_a_page_is_read_to_the_size_of_its_header(tmp_path, outcome):
    body = packed_zeros(TWO, 1900)
    write_parquet(tmp_path / "x.parquet", (2, [page(body, size=len(TWO), values=2)]))
    # Whether what follows is an error is the library's choice; that it takes no memory is not.
    assert outcome(tmp_path / "x.parquet").startswith(("read", "refused: "))


@functools.cache
def ordinary_frame():
    """A table of every type, with more records than a batch."""
    rows = 3 * BATCH_ROWS
    texts = [f"text {at % 1000}" for at in range(rows)]
    return pl.DataFrame(
        {"t": texts, "c": pl.Series(texts, dtype=pl.Categorical), "n": np.arange(rows) / 7.0,
         "l": [[1, 2]] * rows, "b": [True, None, False] * BATCH_ROWS}
    )  # fmt: skip


@pytest.mark.parametrize("compression", ["zstd", "gzip", "snappy", "lz4", "brotli", "uncompressed"])
def test_the_pages_of_ordinary_files_are_measured(tmp_path, compression):
    path, frame = tmp_path / "x.parquet", ordinary_frame()
    rows = frame.height
    frame.write_parquet(path, compression=compression, row_group_size=100_000)
    groups = measure_row_groups(path, ["n"])
    assert [group.rows for group in groups] == [100_000, rows - 100_000]
    # Eight bytes per number, and for a page its lengths of levels.
    assert 8 * rows <= sum(group.bytes for group in groups) < 8.1 * rows
    wider = measure_row_groups(path, ["t", "c", "n", "b"])
    assert all(a.bytes > b.bytes for a, b in zip(wider, groups, strict=True))


def member(archive, name, shape, dtype, body=b""):
    head = io.BytesIO()
    described = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, described)
    archive.writestr(name, head.getvalue() + body)


@pytest.mark.parametrize(
    "x",
    [
        ((20_000_000_000,), "<U0"),
        ((20_000_000_000,), "|S0"),
        ((-1, 4), "<f8"),
        ((120_000_000,), "<U1"),
    ],
)
def test_an_npz_of_values_without_width_or_of_short_texts_is_refused(tmp_path, outcome, x):
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        member(archive, "x.npy", *x)
        member(archive, "y.npy", x[0], "<f8")
    assert outcome(tmp_path / "x.npz").startswith("refused: ")


def test_the_member_of_an_npz_that_is_measured_is_the_one_that_is_read(tmp_path, outcome):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        texts, labels = np.array(["a", "b"]), np.array([1, 0])
        member(archive, "x.npy", (2,), "<U1", texts.tobytes())
        member(archive, "y.npy", (2,), "<i8", labels.tobytes())
        archive.compresslevel = 1
        with archive.open("y", "w", force_zip64=True) as written:
            for _ in range(33):
                written.write(bytes(1 << 26))
    assert path.stat().st_size < 16_000_000
    assert outcome(path) == "read"
    with zipfile.ZipFile(path, "w") as archive:
        member(archive, "x.npy", (2,), "<U1", texts.tobytes())
        member(archive, "y.npy", (2,), "<i8", labels.tobytes())
        with pytest.warns(UserWarning, match="Duplicate"):
            member(archive, "y.npy", (2,), "<i8", labels.tobytes())
    assert outcome(path).startswith("refused: ")


@pytest.mark.parametrize("first", ["", "x,y\n", 'x,y\n"a",1\n'])
@pytest.mark.parametrize("kind", ["read", "infer"])
def test_a_csv_row_of_sixteen_million_commas_is_refused(tmp_path, outcome, first, kind):
    path = tmp_path / "x.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write(first + "," * 16_000_000 + "\n")
    assert path.stat().st_size < 40_000
    said = outcome(path, kind)
    assert said.startswith("refused: ")
    assert len(said) < 400


def test_a_csv_cell_of_many_commas_is_still_a_cell(tmp_path, outcome):
    path = tmp_path / "x.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([("x", "y", "note"), ("a", "1", "," * 100_000), ("b", "0", "")])
    assert outcome(path).startswith("refused: ")  # the column, by its name
    text = path.read_text().replace(",note", "").replace(',"' + "," * 100_000 + '"', "")
    path.write_text(text.replace("0,", "0"))
    assert outcome(path) == "read"


VIEWS = {
    "a large cell": "SELECT hex(zeroblob(500000000)) AS x, 1 AS y",
    "large cells": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1e5) "
    "SELECT hex(zeroblob(200000)) AS x, i % 2 AS y FROM n",
    "cells that are suddenly large": "WITH RECURSIVE n(i) AS "
    "(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000) "
    "SELECT hex(zeroblob(iif(i < 32760, 1, 200000))) AS x, i % 2 AS y FROM n",
    "no end": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT 'a' AS x, count(*) AS y FROM n",
    "rows without end": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT 'a' AS x, 1 AS y FROM n",
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_sqlite_file_of_four_kilobytes_is_refused(tmp_path, outcome, view):
    path = tmp_path / "x.db"
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE VIEW v AS {VIEWS[view]}")
    connection.commit()
    connection.close()
    assert path.stat().st_size <= 8192
    assert outcome(f"sqlite://{path}").startswith("refused: ")
