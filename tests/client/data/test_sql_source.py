"""A query's rows are those of a CSV of them, to the bit and in the account; nothing is written."""

from __future__ import annotations

import csv
import decimal
import os
import re
import traceback
from dataclasses import replace
from urllib.parse import urlsplit

import numpy as np
import polars as pl
import pytest
from ledgers import ADULT, connected, with_parts

from parley.client.data import sql_source
from parley.client.data.block_selection import Division
from parley.client.data.data_error import DataError
from parley.client.data.data_sources import SqlQuery
from parley.client.data.memory_limit import compute_memory_limit
from parley.client.data.query_party_block import (
    PersonIds,
    limit_person_records,
    read_raw_party_block,
)
from parley.client.data.record_reading import read_records
from parley.client.data.schema import Schema
from parley.client.data.schema_check import check_file
from parley.client.data.schema_inference.schema_draft import infer_schema
from parley.client.data.sql_source import read_sql_tables
from parley.client.data.table_formats import ReadRequest
from parley.privacy.ledger.ledger import Ledger

TEXT = """
[columns]
age = { kind = "numeric", range = [0, 100], missing = 50 }
dose = { kind = "numeric", range = [0, 10], missing = 5 }
share = { kind = "numeric", range = [0, 1], missing = 0 }
smokes = { kind = "categorical", categories = [true, false], missing = false }
ward = { kind = "categorical", categories = ["a%", "b"], other = true, missing = "b" }
seen = { kind = "categorical", categories = ["2024-01-31", "2024-02-01"], other = true }
patient = { kind = "ignore" }
sick = { kind = "label", positive = "yes", negative = "no", missing = "drop" }
"""
SCHEMA = Schema.from_toml(TEXT)
COLUMNS = ("age", "dose", "share", "smokes", "ward", "seen", "patient", "sick")
TABLE = """CREATE TABLE visits (age INTEGER, dose NUMERIC(6, 2), share DOUBLE PRECISION,
smokes BOOLEAN, ward TEXT, seen DATE, patient TEXT, sick TEXT, image {bytes})"""
SECRET = "s3cret"


def build_request(names, wanted=None):
    limit = compute_memory_limit(1.0)
    return ReadRequest(schema=SCHEMA, names=names, wanted=wanted or names, memory_limit=limit)


class Database:
    """A table of visits, and what sees it."""

    def __init__(self, place):
        self.postgresql = "://" in place
        self.place = place
        self.source = "env:CLINIC" if self.postgresql else f"sqlite:///{place}"
        if not self.postgresql:
            self.run("PRAGMA journal_mode=WAL")  # who reads keeps nobody from writing
        self.run(TABLE.format(bytes="BYTEA" if self.postgresql else "BLOB"))
        self.insert(rows_of(60))

    def run(self, statement):
        with connected(self.place) as connection:
            connection.execute(statement)

    def insert(self, rows):
        names = ", ".join(COLUMNS)
        form = "%({})s" if self.postgresql else ":{}"
        marks = ", ".join(form.format(name) for name in COLUMNS)
        values = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        # SQLite has neither NUMERIC nor booleans: a number and a text stand there.
        for value in () if self.postgresql else values:
            value["smokes"] = None if value["smokes"] is None else str(value["smokes"]).lower()
            value["dose"] = None if value["dose"] is None else float(value["dose"])
        with connected(self.place) as connection:
            into = f"INSERT INTO visits ({names}) VALUES ({marks})"
            connection.cursor().executemany(into, values)

    def query(self, rest="", columns=COLUMNS, table="visits"):
        text = f"SELECT {', '.join(columns)} FROM {table} {rest} ORDER BY random()"
        return SqlQuery(database=self.source, query=text)

    def asks(self, text):
        return SqlQuery(database=self.source, query=text)


def rows_of(count, seed=0):
    rng = np.random.default_rng(seed)
    rows = [
        (
            int(rng.integers(0, 100)),
            decimal.Decimal(int(rng.integers(0, 1000))) / 100,
            float(rng.random()),
            bool(rng.integers(2)),
            str(rng.choice(["a%", "b", "c"])),
            str(rng.choice(["2024-01-31", "2024-02-01"])),
            f"p{at % 7}",
            str(rng.choice(["yes", "no"])),
        )
        for at in range(count)
    ]
    rows[0] = (None, None, None, None, None, *rows[0][5:])
    rows[1] = (*rows[1][:7], None)
    rows[2] = (*rows[2][:4], " b ", *rows[2][5:])
    rows[3] = (*rows[3][:2], float("nan"), *rows[3][3:])
    return [*rows, rows[5]]  # one row is there twice


def written(cell):
    """As a CSV has it."""
    if isinstance(cell, bool):
        return str(cell).lower()
    return "" if cell is None or cell != cell else cell


ON_POSTGRESQL = pytest.mark.parametrize("ledger_url", ["postgresql"], indirect=True)


@pytest.fixture
def database(ledger_url, monkeypatch):
    if "://" in ledger_url:
        monkeypatch.setenv("CLINIC", ledger_url)
    return Database(ledger_url)


@pytest.fixture
def exported(tmp_path):
    path = tmp_path / "visits.csv"
    with path.open("w", newline="") as file:
        rows = [[written(cell) for cell in row] for row in rows_of(60)]
        csv.writer(file).writerows([COLUMNS, *rows])
    return path


def sorted_rows(records):
    rows = np.column_stack([records.features, records.labels])
    return rows[np.lexsort(rows.T)]


def test_rows_of_a_query_are_those_of_its_csv_and_have_its_account(database, exported, tmp_path):
    file = read_records(exported, SCHEMA, "logistic")
    whole = read_records(database.query(), SCHEMA, "logistic")
    assert len(whole) == len(file) == 60  # of 61 one has no label
    assert str(whole.contents) == str(file.contents)
    np.testing.assert_array_equal(sorted_rows(whole), sorted_rows(file))
    columns = [name for name in COLUMNS if name != "patient"]  # to ignore: it need not be there
    some = read_records(database.query("WHERE age > 50", columns), SCHEMA, "logistic")
    assert 0 < len(some) < len(whole)
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        for name, records in {"export": file, "database": whole, "some": some}.items():
            contents = records.contents
            own = replace(
                ADULT,
                name=name,
                fingerprint=name,
                contents=str(contents),
                rows=contents.digests,
            )
            assert [each.name for each in ledger.register(own)] == ["export"]


def test_nothing_depends_on_the_order_that_the_database_sends_rows_in(database):
    def rows(**how):
        found = read_records(database.query(), SCHEMA, "logistic", **how)
        groups = found.groups if found.groups is not None else found.labels
        return [found.features, found.labels, groups]

    def persons():
        whose = PersonIds(column="patient", max_records=3, key=b"k")
        block = limit_person_records(
            read_raw_party_block([database.query()], SCHEMA, persons=whose), whose
        )
        return [*block.columns.values(), block.owners]

    def drawn():
        return rows(group_column="patient", sample=20, rng=np.random.default_rng(1))

    def blocks():
        return rows(division=Division(column="patient", read=("p1", "p2")))

    for read in (rows, lambda: rows(group_column="patient"), drawn, persons, blocks):
        for first, second in zip(read(), read(), strict=True):
            np.testing.assert_array_equal(first, second)
    first, second = drawn(), rows()
    assert len(first[0]) == 20 < len(second[0])
    assert 0 < len(blocks()[0]) < len(second[0])


def test_a_reading_is_one_snapshot_and_no_more_than_a_batch_is_held(database, monkeypatch):
    monkeypatch.setattr("parley.client.data.sql_source._BATCH_ROWS", 10)
    columns = ["age", "sick"]
    reading = read_sql_tables(database.query(columns=columns), build_request(columns))
    sizes = [next(reading).rows]
    database.insert(rows_of(60, seed=1))
    database.run("UPDATE visits SET age = 0")
    last = list(reading)
    assert [*sizes, *(table.rows for table in last)] == [10, 10, 10, 10, 10, 10, 1]
    assert last[-1].row_number(0) == 61
    assert any(table.get_column("age").max() for table in last)
    again = read_sql_tables(database.query(columns=columns), build_request(columns))
    assert sum(table.rows for table in again) == 122


WRONG = {
    "two statements": ("SELECT age, sick FROM visits; DELETE FROM visits", "one SELECT"),
    "a statement that writes": ("DELETE FROM visits RETURNING age, sick", "one SELECT"),
    "a statement that makes": ("CREATE TABLE more (age INTEGER)", "one SELECT"),
    "a statement that gives nothing": ("COMMIT", "one SELECT"),
    "another database": ("ATTACH 'other.db' AS other", "one SELECT"),
    "no such column": ("SELECT nothing FROM visits", "nothing"),
    "no such table": ("SELECT age FROM nowhere", "nowhere"),
    "no rows": ("SELECT age, sick FROM visits WHERE age > 1000", "at least one record, got none"),
    "a name twice": ("SELECT age, sick AS age FROM visits", "every column name once"),
    "bytes": ("SELECT CAST('x' AS {bytes}) AS age, sick FROM visits", "'age'.*BLOB"),
    "one row in two tables": ("SELECT age FROM visits", "no column 'sick'|label"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_query_that_gives_no_records_is_refused_by_name_and_changes_nothing(database, what):
    text, named = WRONG[what]
    text = text.format(bytes="BYTEA" if database.postgresql else "BLOB")
    with pytest.raises(DataError, match=named):
        infer_schema(database.asks(text), label="sick")
    assert len(read_records(database.query(), SCHEMA, "logistic")) == 60


def test_a_value_that_a_message_quotes_stands_in_no_log(database):
    if not database.postgresql:
        database.run("UPDATE visits SET ward = CAST(x'74fe' AS TEXT)")
        text = "SELECT ward, sick FROM visits"
    else:
        text = "SELECT CAST(ward AS INTEGER) AS ward, sick FROM visits"
    with pytest.raises(DataError) as caught:
        infer_schema(database.asks(text))
    quoted = 'integer: "' if database.postgresql else "'ward' with text"
    assert quoted not in str(caught.value)
    assert quoted not in caught.value.log_message


CELLS_QUOTED = {
    "22": "SELECT ward::integer AS x, sick FROM visits",
    "42601": "SELECT to_tsquery('simple', ward || ' secret') AS x, sick FROM visits",
    "42602": "SELECT ward::regclass::text AS x, sick FROM visits",
    "42704": "SELECT left(ward, 7)::regtype::text AS x, sick FROM visits",
    "2201B": "SELECT 'a' ~ ('(' || ward) AS x, sick FROM visits",
    "22P02": "SELECT ward::jsonb::text AS x, sick FROM visits",
}


@ON_POSTGRESQL
@pytest.mark.parametrize("state", CELLS_QUOTED)
def test_no_error_of_any_class_quotes_a_cell_in_a_message_or_a_log(database, state):
    database.run("UPDATE visits SET ward = 'patient zero'")
    with pytest.raises(DataError) as caught:
        infer_schema(database.asks(CELLS_QUOTED[state]), label="sick")
    for text in (str(caught.value), caught.value.log_message):
        assert "patient" not in text
        assert state in text
    assert caught.value.__cause__ is None


def test_a_statement_has_a_deadline(database):
    text = "SELECT pg_sleep(60)::text AS x, 1 AS y"
    if not database.postgresql:
        text = (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
            "SELECT count(*) AS x, 1 AS y FROM n"
        )
    with pytest.raises(DataError, match="query-timeout"):
        infer_schema(replace(database.asks(text), timeout_s=0.2), label="y")


def test_a_row_of_many_large_cells_is_refused_before_it_is_held(database):
    cell = "repeat('x', 700000)" if database.postgresql else "hex(zeroblob(250000))"
    wide = ", ".join(f"{cell} AS x{at}" for at in range(200))
    with pytest.raises(DataError, match="rows of at most 67,108,864"):
        infer_schema(database.asks(f"SELECT {wide}, 1 AS y"), label="y")
    names = [f"x{at}" for at in range(200)]
    text = f"SELECT {', '.join(f'{at} AS {name}' for at, name in enumerate(names))} -- wide"
    (table,) = read_sql_tables(database.asks(text), build_request(names))
    assert table.get_column("x199")[0] == 199


@ON_POSTGRESQL
def test_postgresql_sends_fewer_rows_at_a_time_if_they_are_long(database, monkeypatch):
    asked = []
    measure = sql_source._rows_to_fetch
    monkeypatch.setattr(
        sql_source, "_rows_to_fetch", lambda *given: asked.append(measure(*given)) or asked[-1]
    )
    text = "SELECT repeat('x', 1 << 20) AS x FROM generate_series(1, 3)"
    (table,) = read_sql_tables(database.asks(text), build_request(["x"]))
    assert table.frame.height == 3
    assert asked == [63]


def test_the_log_never_has_the_words_of_a_query(database):
    with pytest.raises(DataError, match="nowhere") as caught:
        infer_schema(database.asks("SELECT age AS x FROM nowhere"), label="x")
    assert "nowhere" not in caught.value.log_message


def test_types_that_only_one_of_both_has(database):
    if not database.postgresql:
        mixed = "SELECT 1 AS x, 'yes' AS y UNION ALL SELECT 2.5, 'no' UNION ALL SELECT '3', 'no'"
        schema = Schema.from_toml(infer_schema(database.asks(mixed), label="y").text)
        assert schema.columns["x"].range == (1.0, 3.0)
        return
    kinds = {
        "TIMESTAMPTZ '2024-01-31 01:00+02'": "2024-01-30 23:00:00+00:00",
        "'6F9619FF-8B86-D011-B42D-00CF4FC964FF'::uuid": "6f9619ff-8b86-d011-b42d-00cf4fc964ff",
        "'NaN'::numeric": "NaN",
        "12345678901234567890::numeric": "12345678901234567890",
    }
    for cell, text in kinds.items():
        (table,) = read_sql_tables(database.asks(f"SELECT {cell} AS x"), build_request(["x"]))
        assert str(table.get_column("x").cast(pl.String)[0]) == text
    for cell in ("ARRAY[1]", "'{}'::jsonb", "INTERVAL '1 day'", "int4range(1, 2)"):
        with pytest.raises(DataError, match="'x'"):
            list(read_sql_tables(database.asks(f"SELECT {cell} AS x"), build_request(["x"])))


def said_of(source):
    """What is said of a database that can't be read, all of it."""
    with pytest.raises(DataError) as caught:
        infer_schema(source)
    error = caught.value
    assert error.log_message == str(error)  # nothing of it is a cell's
    return "".join([*traceback.format_exception(error), repr(source), repr(error)])


UNREACHED = {
    "a wrong password": ({"password": SECRET}, r"put it into PGPASSWORD, ~/\.pgpass .*refuses"),
    "no password": ({"password": ""}, "a password: put it into PGPASSWORD"),
    "no such server": ({"port": 1, "password": SECRET}, "a refused connection"),
    "no such host": ({"hostname": f"{SECRET}.invalid"}, "resolves to an address, got no address"),
    "no such database": ({"path": "/nowhere"}, "an existing user and database"),
}


@pytest.mark.parametrize("what", UNREACHED)
def test_a_server_that_is_not_reached_is_told_without_a_secret(monkeypatch, tmp_path, what):
    if not (url := os.environ.get("PARLEY_TEST_POSTGRES_URL")):
        pytest.skip("needs a PostgreSQL server (see .ci/postgres.sh)")
    changes, named = UNREACHED[what]
    for name in ("PGPASSWORD", "PGPASSFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLINIC", with_parts(url, **changes))
    said = said_of(SqlQuery(database="env:CLINIC", query="SELECT 1 AS x"))
    assert re.search(named, said)
    assert SECRET not in said
    assert (urlsplit(url).password or "-") not in said


def test_a_password_comes_from_a_file_of_mode_600_alone(monkeypatch, tmp_path):
    if not (url := os.environ.get("PARLEY_TEST_POSTGRES_URL")):
        pytest.skip("needs a PostgreSQL server (see .ci/postgres.sh)")
    file = tmp_path / "pass"
    file.write_text(f"*:*:*:*:{urlsplit(url).password}\n")
    monkeypatch.setenv("PGPASSFILE", str(file))
    monkeypatch.delenv("PGPASSWORD", raising=False)
    source = SqlQuery(database=with_parts(url, password=""), query="SELECT 1 AS x, 2 AS y")
    file.chmod(0o644)
    assert "a password: put it into PGPASSWORD" in said_of(source)
    file.chmod(0o600)
    assert [table.rows for table in read_sql_tables(source, build_request(["x", "y"], ["y"]))] == [
        1
    ]


@pytest.mark.parametrize(
    ("database", "named"),
    [
        ("env:NOWHERE", "an environment variable that contains a URL"),
        ("env:ODD", "sqlite:///FILE or postgresql://USER@HOST/DATABASE"),
        ("env:TORN", "sqlite:///FILE or postgresql://USER@HOST/DATABASE"),
        ("sqlite:///nowhere.db", "a SQLite file at .*nowhere.db, got none"),
        ("sqlite:///text.db", "a SQLite database that can be read"),
    ],
)
def test_a_database_that_is_none_is_told(monkeypatch, tmp_path, database, named):
    monkeypatch.setenv("ODD", f"mysql://me:{SECRET}@host/clinic")
    monkeypatch.setenv("TORN", f"postgresql://me:{SECRET}%@host/clinic")
    (tmp_path / "text.db").write_text("age,sick\n" * 100)
    said = said_of(SqlQuery(database=database, query="SELECT x FROM t", folder=tmp_path))
    assert re.search(named, said)
    assert SECRET not in said


@pytest.mark.parametrize(
    "database",
    [
        f"postgresql://me:{SECRET}@host/clinic",
        f"postgresql+psycopg://me:{SECRET}@host/clinic?sslmode=require",
        f"postgresql://me@host/clinic?password={SECRET}",
        f"postgresql://me:{SECRET}@[::1]/clinic",
        f"mysql://me@host/{SECRET}",
        f"env:{SECRET}=1",
        f"{SECRET}.csv",
    ],
)
def test_a_source_with_a_password_in_it_or_of_another_kind_is_refused_unseen(database):
    with pytest.raises(ValueError) as caught:
        SqlQuery(database=database, query="SELECT 1")
    assert SECRET not in str(caught.value)
    if "@host/clinic" in database or "::1" in database:
        assert "PGPASSWORD" in str(caught.value)


def test_a_schema_is_read_off_a_query_and_held_against_it(database, exported):
    first, second = (
        infer_schema(each, label="sick").text.split("[columns]")[1]
        for each in (database.query(), exported)
    )
    assert first.replace("[false, true]", '["false", "true"]') == second
    assert check_file(database.query(), SCHEMA).problems == ()
    database.run("UPDATE visits SET age = 1000 WHERE patient = 'p0'")
    narrow = Schema.from_toml(TEXT.replace("100]", '100], outside = "refuse"'))
    (problem,) = check_file(database.query(), narrow).problems
    assert "'age', row" in problem
    assert "[0, 100], got 1000" in problem
