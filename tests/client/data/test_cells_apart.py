"""A cell is read as if it were alone, whatever else its batch holds: drills."""

from __future__ import annotations

import sqlite3
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.client.data.block_row_selection import find_blocks
from parley.client.data.block_selection import Division
from parley.client.data.cell_parsing import read_plain_texts
from parley.client.data.csv_reader import read_csv_tables
from parley.client.data.data_error import DataError
from parley.client.data.data_sources import SqlQuery
from parley.client.data.memory_limit import compute_memory_limit
from parley.client.data.query_party_block import (
    PersonIds,
    limit_person_records,
    read_raw_party_block,
)
from parley.client.data.raw_table import RawTable
from parley.client.data.schema import Schema
from parley.client.data.sql_source import _build_series, read_sql_tables
from parley.client.data.table_digest import encode_cells
from parley.client.data.table_formats import ReadRequest
from parley.privacy.ledger.block_composition import compute_block_number

SCHEMA = Schema.from_toml(
    """
[columns]
patient = { kind = "ignore" }
place = { kind = "numeric", range = [0, 1000] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)


def build_request(names, wanted=None):
    limit = compute_memory_limit(1.0)
    return ReadRequest(schema=SCHEMA, names=names, wanted=wanted or names, memory_limit=limit)


NUMBERS = (
    st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.integers(-9, 9)
    | st.sampled_from([-0.0, 1e-7, 1e16, 0.5, float("inf")])
    | st.decimals(allow_nan=False, places=2)
    | st.sampled_from([Decimal("12345678901234567890"), Decimal("-0.00"), Decimal("1E+30")])
)
STEADY = settings(max_examples=60, deadline=None, derandomize=True)
CELLS = NUMBERS | st.none() | st.text("a1.e- ", max_size=3)


def read(cells):
    """Texts, and what rows are known again by, of one batch of a query."""
    series = _build_series("c", cells, "w")
    table = RawTable(path="w", frame=pl.DataFrame([series]), arrays={}, typed=False)
    return read_plain_texts(table, "c").to_list(), encode_cells(table, "c").tolist()


@STEADY
@given(st.lists(CELLS, min_size=1, max_size=6))
def test_a_cell_of_a_query_is_read_as_if_it_were_alone(cells):
    apart = [read([cell]) for cell in cells]
    assert read(cells) == ([t for (t,), _ in apart], [bits for _, (bits,) in apart])


@STEADY
@given(st.lists(st.floats(width=32), min_size=1, max_size=5), st.sampled_from("df"))
def test_a_number_of_a_file_is_one_text_whatever_the_others_are(cells, kind):
    def texts(values):
        frame = pl.DataFrame({"c": np.array(values, kind)})
        return read_plain_texts(RawTable(path="w", frame=frame, arrays={}), "c").to_list()

    assert texts(cells) == [texts([cell])[0] for cell in cells]


def test_one_odd_identifier_makes_no_two_persons_one_and_no_person_two(tmp_path):
    ids = [9007199254740993, 9007199254740994] * 2
    with sqlite3.connect(tmp_path / "w.db") as made:
        made.execute("CREATE TABLE w (patient, place INTEGER, sick TEXT)")
        made.executemany("INSERT INTO w VALUES (?, ?, 'no')", [(i, k) for k, i in enumerate(ids)])
    query = SqlQuery(database="sqlite:///w.db", query="SELECT * FROM w", folder=tmp_path)
    persons = PersonIds(column="patient", max_records=1, key=b"of this party")

    def owners():
        return set(
            limit_person_records(
                read_raw_party_block([query], SCHEMA, persons=persons), persons
            ).owners
        )

    before = owners()
    with sqlite3.connect(tmp_path / "w.db") as made:
        made.execute("INSERT INTO w VALUES (0.5, 9, 'no')")
    assert len(before) == 2
    assert before < owners()


def test_lines_of_a_csv_are_read_alike_beside_a_quotation_mark_and_an_empty_cell(tmp_path):
    def rows(text):
        path = tmp_path / "w.csv"
        path.write_text(text, encoding="utf-8")
        try:
            tables = list(read_csv_tables(path, build_request(["a", "b"])))
        except DataError as error:
            return error.row
        return [row for table in tables for row in table.frame.rows()]

    # A \r within a line is refused, the mark of byte order in a cell is its own.
    for line, expected in (
        ("1\r2,x", 2),
        ("\ufeff1,x", [("\ufeff1", "x")]),
        ("a,\\", [("a", "\\")]),
    ):
        assert rows(f"a,b\n{line}\n") == expected
        for other in ('"q",q', "q,"):
            found = rows(f"a,b\n{line}\n{other}\n")
            assert (found if found == expected else found[:1]) == expected


def test_one_endless_block_refuses_nobody():
    """An array of texts has the length of its longest for every one of them."""
    long = "9" * 10**7
    frame = pl.DataFrame({"year": ["2024", long] + ["2025"] * 10**5})
    numbers, kept = find_blocks(
        Division(column="year", read=("2024",)), RawTable(path="w", frame=frame, arrays={})
    )
    assert kept.tolist() == [0]
    assert numbers[[0, 1, 2]].tolist() == [compute_block_number(x) for x in ("2024", long, "2025")]


def test_a_path_of_json_that_a_cell_is_stands_in_no_log(tmp_path):
    with sqlite3.connect(tmp_path / "w.db") as made:
        made.execute("CREATE TABLE w (a)")
        made.execute("INSERT INTO w VALUES ('s3cret')")
    query = SqlQuery(
        database="sqlite:///w.db", query="SELECT json_set('{}', a, 1) AS a FROM w", folder=tmp_path
    )
    with pytest.raises(DataError) as caught:
        list(read_sql_tables(query, build_request(["a"])))
    assert "s3cret" not in caught.value.log_message
