"""`parley query`: a file of queries, its plan, its answers as JSON, and files that are refused."""

import json

import polars as pl
import pytest
from typer.testing import CliRunner

from parley.analytics.query_file import build_example_file, load_queries
from parley.analytics.remote_queries import format_response, read_answers
from parley.analytics.submitted_queries import Submission
from parley.cli import app
from parley.client.data.schema import load_schema
from parley.client.queries.base import QueryError
from parley.client.queries.filters.expressions import WhereError
from parley.client.queries.registry import QUERIES
from parley.deploy.process_errors import ProcessError
from parley.privacy.ledger.ledger_errors import BudgetExceeded, LedgerConflict

SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100] }
sex = { kind = "categorical", categories = ["Female", "Male"] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
FILE = """
[session]
data = "party-*.csv"
schema = "schema.toml"
epsilon = 1.0
seed = 3

[[query]]
query = "count"
where = "age > 60"
epsilon = 0.25

[[query]]
query = "histogram"
column = "age"
bins = 4
batch = "b"
epsilon = 0.5
name = "ages"

[[query]]
query = "mean"
column = "age"
by = ["sex"]
batch = "b"
share = 2.0
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "schema.toml").write_text(SCHEMA)
    for place in range(4):
        ages = [(7 * k + place) % 101 for k in range(200)]
        rows = {"age": ages, "sex": ["Female", "Male"] * 100, "sick": ["yes"] * 200}
        pl.DataFrame(rows).write_csv(tmp_path / f"party-{place}.csv")
    (tmp_path / "queries.toml").write_text(FILE)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["query", *map(str, arguments)], catch_exceptions=True)


def test_a_file_is_planned_without_a_trace_and_answered_with_prices(folder):
    planned = run(folder / "queries.toml", "--plan")
    assert planned.exit_code == 0, planned.output
    assert "expected error" in planned.output
    assert "nothing was charged" in planned.output
    assert sorted(p.name for p in folder.iterdir() if p.is_dir()) == []
    done = run(folder / "queries.toml", "--json", "--out", folder / "s")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [each["name"] for each in told["answers"]] == ["count 1", "ages", "mean 3"]
    assert told["left"] == pytest.approx(0.25)
    assert abs(told["answers"][0]["table"]["value"][0] - 4 * 78) < 60
    again = run(folder / "queries.toml", "--json", "--resume", folder / "s")
    assert json.loads(again.stdout)["answers"] == told["answers"]
    assert run(folder / "queries.toml", "--out", folder / "s").exit_code != 0


@pytest.mark.parametrize(
    ("edit", "status"),
    [(("epsilon = 1.0", "epsilon = 1.0"), 3), (("epsilon = 1.0", "epsilon = 2.0"), LedgerConflict)],
)
def test_a_plan_is_refused_as_the_answers_for_what_the_shared_ledger_has(folder, edit, status):
    text = FILE.replace("[session]", f"[session]\nledger = '{folder}/all.sqlite'")
    (folder / "queries.toml").write_text(text)
    assert run(folder / "queries.toml", "--plan").exit_code == 0
    assert not (folder / "all.sqlite").exists()
    assert run(folder / "queries.toml", "--out", folder / "first").exit_code == 0
    before = (folder / "all.sqlite").read_bytes()
    (folder / "queries.toml").write_text(text.replace(*edit))
    planned = run(folder / "queries.toml", "--plan")
    asked = run(folder / "queries.toml", "--out", folder / "second")
    assert (folder / "all.sqlite").read_bytes() == before
    if status == 3:
        assert planned.exit_code == 3
        assert "`parley query` would refuse this file. Expected the releases" in planned.output
        assert isinstance(asked.exception, BudgetExceeded)
    else:
        assert isinstance(planned.exception, status)
        assert isinstance(asked.exception, status)


def test_the_example_is_a_file_that_can_be_read_and_names_every_query():
    text = build_example_file()
    for kind in QUERIES:
        assert f'query = "{kind}"' in text


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("[session]", "[sessions]"), "Expected [session]"),
        (('query = "count"', 'query = "sums"'), "Expected query, one of count"),
        (("bins = 4", "bin = 4"), "got 'bin'"),
        (("bins = 4", "bins = 4.5"), "to be a valid integer"),
        (("bins = 4", "bins = -4"), "Expected 1 to"),
        (('name = "ages"', 'name = "mean 3"'), "distinct names"),
        (('name = "ages"', 'name = "Mean (3)"'), "got Mean (3) and mean 3"),
        (("share = 2.0", "share = 2.0\nepsilon = 0.1"), "the first query of its batch"),
        (("epsilon = 0.25", ""), "Expected epsilon"),
        (("epsilon = 0.25", "epsilon = true"), "epsilon to be a valid number"),
        (('where = "age > 60"', "where = 3"), "Expected where as text"),
        (('where = "age > 60"', 'where = "age > f(3)"'), "Expected"),
        (("seed = 3", 'out = "x"'), "Expected out and resume on the command line"),
    ],
)
def test_a_file_that_cannot_be_asked_is_refused(folder, edit, said):
    (folder / "queries.toml").write_text(FILE.replace(*edit))
    with pytest.raises((QueryError, WhereError)) as refused:
        load_queries(folder / "queries.toml")
    assert said in str(refused.value)


def test_a_select_is_planned_asked_and_refused_like_a_file(folder, monkeypatch):
    pytest.importorskip("sqlglot", reason="needs the extra parley[sql]")
    monkeypatch.chdir(folder)
    statement = "SELECT sex, COUNT(*) AS n, AVG(age) FROM ward WHERE age > 60 GROUP BY sex"
    planned = run(statement, "--epsilon", "0.2", "--plan")
    assert planned.exit_code == 0
    assert "nothing was charged" in planned.output
    told = run(statement, "--epsilon", "0.2", "--json", "--out", "asked")
    assert told.exit_code == 0
    answers = json.loads(told.stdout)["answers"]
    assert [each["name"] for each in answers] == ["n", "AVG(age)"]
    assert json.loads(told.stdout)["left"] == pytest.approx(0.8)
    for wrong in (
        (statement,),
        ("SELECT MAX(age) FROM ward", "--epsilon", "0.2"),
        (statement, "--epsilon", "0.2", "--session", "none.toml"),
        ("queries.toml", "--epsilon", "0.2"),
    ):
        refused = run(*wrong)
        assert refused.exit_code != 0
        assert "Expected" in str(refused.exception) + refused.output


def test_a_file_whose_last_query_cannot_be_asked_pays_for_none(folder):
    file = folder / "queries.toml"
    file.write_text(FILE + '\n[[query]]\nquery = "sum"\ncolumn = "sex"\nepsilon = 0.1\n')
    refused = run(file, "--out", folder / "asked")
    assert refused.exit_code != 0
    assert "Expected a column of numbers" in str(refused.exception) + refused.output
    assert not (folder / "asked" / "answers.jsonl").exists()


def answered(run, **changed):
    """What a server wrote, of one query."""
    answer = {"name": "n", "table": {"value": [1.0]}, "text": "n: 1"}
    told = {"whole": "ε = 1", "left": 0.5, "answers": [answer], "plans": []} | changed
    (run / "answers.json").write_text(json.dumps(told))
    return read_answers(run, "complete")


def test_a_server_does_not_say_where_its_answers_are_written(folder):
    assert answered(folder)["folder"] == str(folder)
    with pytest.raises(ProcessError, match="Expected answers"):
        answered(folder, folder="/elsewhere")


@pytest.mark.parametrize(
    "changed",
    [
        {"answers": 3},
        {"answers": ["n"]},
        {"answers": [{"name": "n"}]},
        {"answers": [{"name": 3, "table": {}, "text": ""}]},
        {"answers": [{"name": "n", "table": [], "text": ""}]},
        {"answers": [{"name": "n", "table": {"a": [1], "b": []}, "text": ""}]},
        {"plans": 3},
        {"more": 1},
    ],
)
def test_malformed_answers_of_a_server_are_an_error_in_a_line(folder, changed):
    one = FILE[: FILE.index('[[query]]\nquery = "histogram"')]
    begin = one.index("[[query]]")
    session = '[session]\ndataset = "care"\nepsilon = 1.0\n'
    (folder / "queries.toml").write_text(session + one[begin:])
    file = load_queries(folder / "queries.toml")
    schema = load_schema(folder / "schema.toml")
    (folder / "asked.json").write_text(Submission(file=file, schema=schema).to_json())
    assert format_response(answered(folder)) == ["ε = 1", "n: 1"]
    assert (folder / "tables" / "n.csv").read_text().startswith("# ε = 1")
    with pytest.raises(ProcessError, match="Expected answers"):
        format_response(answered(folder, **changed))
