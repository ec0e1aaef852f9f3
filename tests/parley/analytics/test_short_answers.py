"""Answers in at most 15 lines of 80 columns, and sessions opened with a short schema."""

import contextlib
import io
import re
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import parley
from parley.analytics.short_answers import list_answer_lines
from parley.cli import app
from parley.client.queries.base import QueryError

RNG = np.random.default_rng(2)
FRAME = {"age": RNG.integers(18, 90, 300), "ward": RNG.choice(["a", "b"], 300)}
SCHEMA = {"age": (0, 120), "ward": ["a", "b"]}


@pytest.fixture
def session(tmp_path):
    with parley.Session(
        FRAME, schema=SCHEMA, epsilon=1, parties=5, out=tmp_path / "s", seed=3
    ) as opened:
        yield opened


def test_a_session_takes_a_short_schema_and_shows_what_is_left(session):
    assert repr(session) == "<Session 5 parties, 300 records, epsilon left 1 of 1>"
    answer = session.mean("age", epsilon=0.3)
    assert repr(session) == "<Session 5 parties, 300 records, epsilon left 0.7 of 1>"
    assert repr(answer).startswith("<Answer mean age = ")
    assert len(repr(answer)) < 120
    assert str(answer) in answer._repr_html_()
    assert "3 cells, epsilon=0.1>" in repr(session.histogram("ward", epsilon=0.1))


def test_a_session_without_a_schema_says_why_it_needs_one():
    with pytest.raises(QueryError, match=r"public ranges.*schema=\{\"age\": \(0, 120\)"):
        parley.Session(FRAME, epsilon=1)


@pytest.mark.parametrize("count", [1, 2, 5, 9, 30])
def test_answers_fit_fifteen_lines_and_keep_titles_prices_and_the_rest(session, count):
    asked = [session.quantiles("age", quantiles=[k / 40 for k in range(1, 40)], epsilon=0.02)]
    asked += [session.histogram("ward", epsilon=0.02) for _ in range(count - 1)]
    lines = list_answer_lines([each.to_json() for each in asked], "folder")
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("quantiles age ")
    assert any(line.endswith("ε 0.02") and "more" in line for line in lines)
    assert sum(line.startswith("histogram ward") for line in lines) in (count - 1, 6)
    assert "Saved        folder" in lines
    assert any(line.startswith("Spent        ε = ") for line in lines)


def test_the_work_of_short_lines_does_not_grow_with_the_number_of_cells(session):
    answer = session.histogram("age", bins=200, epsilon=0.02).to_json()
    calls, lines = {}, {}
    for times in (1, 10):
        table = {name: cells * times for name, cells in answer["table"].items()}
        seen = []
        sys.setprofile(lambda _frame, event, _of, seen=seen: seen.append(event))
        try:
            lines[times] = list_answer_lines([{**answer, "table": table}], "folder")
        finally:
            sys.setprofile(None)
        calls[times] = len(seen)
    assert calls[10] < 1.5 * calls[1]
    for times, found in lines.items():
        cells = "\n".join(found).partition("\nPrivacy")[0]
        (more,) = re.findall(r"… (\d+) more", cells)
        assert int(more) + cells.count("±") == 200 * times


def test_query_prints_few_lines_and_all_with_v(tmp_path):
    import polars as pl

    pl.DataFrame({name: list(values) for name, values in FRAME.items()}).write_csv(
        tmp_path / "t.csv"
    )
    (tmp_path / "s.toml").write_text(parley.Schema.of(SCHEMA).to_toml())
    (tmp_path / "q.toml").write_text(
        '[session]\ndata = "t.csv"\nschema = "s.toml"\nepsilon = 1\nparties = 5\n'
        '[[query]]\nquery = "histogram"\ncolumn = "ward"\nepsilon = 0.2\n'
        '[[query]]\nquery = "mean"\ncolumn = "age"\nepsilon = 0.3\n'
    )
    with contextlib.chdir(tmp_path), contextlib.redirect_stdout(io.StringIO()):
        short = CliRunner().invoke(app, ["query", "q.toml", "--out", "a"]).stdout.splitlines()
        full = CliRunner().invoke(app, ["query", "q.toml", "-v", "--out", "b"]).stdout
    assert len(short) <= 15
    assert short[0].startswith("histogram ward      a ")
    assert short[0].endswith("ε 0.2")
    assert short[1].startswith("mean age            ")
    assert "Saved        a" in short
    assert len(list((tmp_path / "a" / "tables").glob("*.csv"))) == 2
    assert "by this release an attacker who knows all other records" in full
