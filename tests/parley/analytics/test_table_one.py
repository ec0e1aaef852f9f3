"""Table one: figures are the pooled rows', errors even, and nothing is paid for a bad one."""

from __future__ import annotations

import io
import json
import math

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from parley.analytics.backends import build_terms
from parley.analytics.query_file import build_table_one_file
from parley.analytics.session_settings import parse_settings
from parley.analytics.table_one import balance_shares, compute_relative_errors
from parley.analytics.table_one_output import TableOne
from parley.cli import app
from parley.client.data.schema import Schema
from parley.client.queries.base import QueryError
from parley.client.queries.count_queries import Count, Histogram
from parley.client.queries.moments import Variance
from parley.client.queries.quantiles import Quantiles
from parley.server.planning.query_planner import plan_batch

SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100], step = 1 }
ward = { kind = "categorical", categories = ["<b>A</b>", "B"], missing = "B" }
city = { kind = "categorical", categories = [CITIES], missing = "c0" }
note = { kind = "ignore" }
arm = { kind = "label", positive = "new", negative = "old" }
""".replace("CITIES", ", ".join(f'"c{k}"' for k in range(13)))
SESSION = 'data = "party-*.csv"\nschema = "schema.toml"\nepsilon = 1e6\nseed = 3\n'
QUARTERS = {"lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75}


def rows_of(index, count=300):
    rng = np.random.default_rng(index)
    arm = rng.choice(["new", "old"], count)
    return {
        "age": np.where(arm == "new", rng.integers(20, 60, count), rng.integers(40, 101, count)),
        "ward": rng.choice(["<b>A</b>", "B"], count, p=[0.3, 0.7]),
        "city": rng.choice(["c0", "c7"], count),
        "note": ["free text"] * count,
        "arm": arm,
    }


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    for place in range(4):
        pl.DataFrame(rows_of(place)).write_csv(f"party-{place}.csv")
    (tmp_path / "queries.toml").write_text("[session]\n" + SESSION)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["query", *map(str, arguments)])


def truth(rows, column, category, statistic):
    """One figure of pooled rows, by its definition."""
    if not column or category:
        own = rows if not column else rows.filter(pl.col(column) == category)
        return len(own) * (1 if statistic == "n" else 100 / len(rows))
    values = np.sort(rows[column].to_numpy())
    if statistic in QUARTERS:
        return values[math.ceil(QUARTERS[statistic] * len(values)) - 1]
    return values.mean() if statistic == "mean" else values.std()


@pytest.mark.parametrize("by", ["arm", None])
def test_without_noise_its_lines_are_the_pooled_rows_own_figures(folder, by):
    grouped = ["--by", by] if by else []
    done = run("--table-one", "all", *grouped, "--epsilon", "1e6", "--out", "s")
    assert done.exit_code == 0, (done.output, done.exception)
    whole, _, first = done.output.splitlines()[:3]
    assert whole.startswith("ε = 1000000 for all of it at δ = 0 (5 queries in one")
    assert first == (
        "Table one: ε = 1000000 for the whole table at δ = 0 (record, replace-one; against anyone "
        "who sees what was released)"
    )
    text = (folder / "s" / "table-one.csv").read_text()
    assert text.splitlines()[0] == f"# {first}"
    lines = pl.read_csv(io.StringIO(text), comment_prefix="#")
    lines = lines.with_columns(pl.col(pl.String).fill_null(""))
    pooled = pl.concat(pl.DataFrame(rows_of(place)) for place in range(4))
    compared = 0
    for line in lines.iter_rows(named=True):
        own = pooled.filter(pl.col("arm") == line["group"]) if by else pooled
        if not len(own):  # of records without an arm there are none
            assert line["group"] == "(missing)"
            continue
        true = truth(own, line["column"], line["category"], line["statistic"])
        assert line["value"] == pytest.approx(true, abs=0.02), line
        assert line["low"] - 1e-9 <= line["value"] <= line["high"] + 1e-9
        compared += 1
    assert compared == (2 * (1 + 5 + 4 + 26) if by else 1 + 5 + 4 + 26 + 6)
    page = (folder / "s" / "report.html").read_text(encoding="utf-8")
    assert "<h2>Table one</h2>" in page
    assert "&lt;b&gt;A&lt;/b&gt;" in page
    assert "<b>" not in page
    assert ("Left out" in done.output) == bool(by)


def test_it_is_one_release_that_is_planned_asked_and_gone_on_with(folder):
    (folder / "queries.toml").write_text("[session]\n" + SESSION.replace("1e6", "2.0"))
    asked = ("--table-one", "age, ward", "--by", "arm", "--epsilon", 1)
    planned = run(*asked, "--plan")
    assert planned.exit_code == 0, (planned.output, planned.exception)
    assert "the expected error of each figure is" in planned.output
    done = run(*asked, "--out", "s", "--json")
    told = json.loads(done.stdout)
    assert {each["index"] for each in told["answers"]} == {1}
    assert told["left"] == 1
    again = json.loads(run(*asked, "--resume", "s", "--json").stdout)
    assert again["answers"] == told["answers"]
    assert again["left"] == 1
    # One of its counts as a noise beyond its 95 % would leave it: no interval is 0 … 0.
    (wards,) = (each["table"] for each in told["answers"] if "ward" in each["table"])
    assert "draws" not in str(TableOne.from_answers(told["answers"]))
    for end, value in zip(("value", "low", "high"), (-9, -14, -4), strict=True):
        wards[end][0] = value
    shown = str(TableOne.from_answers(told["answers"]))
    assert "-14…-4 (0…" in shown
    assert "was larger than in 95 % of draws" in shown


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("relation", ["replace-one", "add-or-remove-one"])
def test_every_figure_is_expected_to_be_off_by_the_same(law, relation):
    given = {"epsilon": 1.0, "delta": 1e-6, "neighbouring": relation}
    terms = build_terms(
        parse_settings(given),
        schema=Schema.from_toml(SCHEMA),
        sizes=[1000, 2000],
        names=["a", "b"],
        noise_point="server",
    )
    queries = [
        Count(by=("arm",)),
        Histogram(column="city", by=("arm",)),
        Variance(column="age", by=("arm",)),
        Quantiles(column="age", quantiles=(0.25, 0.5, 0.75), by=("arm",)),
    ]
    asked = {"epsilon": 1.0, "run_id": "r", "number": 1, "law": law}
    equal = compute_relative_errors(plan_batch(queries, terms, **asked), terms.facts)
    assert max(equal) > 1.2 * min(equal)  # what even shares are for
    _, shares = balance_shares(queries, terms, epsilon=1.0, law=law)
    planned = plan_batch(queries, terms, shares=shares, **asked)
    errors = compute_relative_errors(planned, terms.facts)
    # The counts of groups alone may be nearer: the other answers say them too.
    assert max(errors) < 1.08 * min(errors[1:])
    assert max(errors) < 0.9 * max(equal)
    # A mean of values half-way to an end, from its sums: in parts of the range, of N/3 records.
    weight, noise = planned.batch.weights[2], planned.compute_noise().deviation
    steps = round(weight / math.sqrt(3))
    records = 3 / (terms.facts.records or 1)
    mean = noise * math.hypot(1 / steps, 0.5 / weight) / 2 * records
    assert errors[2] == pytest.approx(mean, rel=1e-3)
    assert errors[0] < 0.8 * noise / planned.batch.weights[0] * records


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("all", "--by", "age"), "Expected a column of categories, got 'age'"),
        (("all", "--by", "city"), "at most 12 categories, got 'city' with 13"),
        (("age,note",), "got 'note', of kind ignore"),
        (("age,wards",), "the nearest is 'ward'"),
        (("age,arm", "--by", "arm"), "without the column of the groups"),
        (("age,age",), "each column once"),
        (("all", "queries.toml"), "Expected --table-one alone"),
        (("all", "--sampling"), "got --sampling too"),
        (("age", "--by", "arm", "--epsilon", "0.02"), "With about "),
    ],
)
def test_a_table_that_cannot_be_made_says_what_would_do_and_costs_nothing(folder, asked, said):
    epsilon = () if "--epsilon" in asked else ("--epsilon", "1")
    refused = run("--table-one", *asked, *epsilon, "--out", "s")
    assert isinstance(refused.exception, QueryError | ValueError)
    assert said in str(refused.exception)
    assert not (folder / "s" / "answers.jsonl").exists()


TABLE = """
[[query]]
query = "table-one"
columns = ["age", "ward"]
by = ["arm"]
where = "age > 20"
epsilon = 0.75

[[query]]
query = "mean"
column = "age"
epsilon = 0.25
"""


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (('by = ["arm"]', 'by = ["arm", "ward"]'), "Expected at most one column in by"),
        (('by = ["arm"]', "by = 3"), "by to be a valid tuple"),
        (("epsilon = 0.75", ""), "Expected epsilon, the price of the table one"),
        (("epsilon = 0.75", "bins = 3"), "got bins too"),
        (('query = "mean"\ncolumn = "age"', 'query = "table-one"'), "Expected one table-one"),
        (("epsilon = 0.75", "epsilon = 2e6"), "got ε = 2000000.25"),
        (("epsilon = 0.75", "epsilon = 0.01"), "Expected a larger epsilon for this table"),
    ],
)
def test_a_file_with_a_table_that_cannot_be_made_costs_nothing(folder, edit, said):
    (folder / "queries.toml").write_text("[session]\n" + SESSION + TABLE.replace(*edit))
    refused = run("queries.toml", "--out", "s")
    assert said in str(refused.exception)
    assert not (folder / "s" / "answers.jsonl").exists()


def test_a_file_says_what_all_of_it_costs_and_has_the_table_of_whom_it_selects(folder):
    known = SESSION.replace("1e6", "2e6") + "sampling = true\n"
    costly = TABLE.replace("0.75", "1e6").replace("0.25", "1e6")
    (folder / "queries.toml").write_text("[session]\n" + known + costly)
    planned = run("queries.toml", "--plan").output
    done = run("queries.toml", "--out", "s")
    first = "ε = 2000000 for all of it at δ = 0 (5 queries in 2 releases; record, replace-one; "
    assert planned.startswith(first)
    assert done.output.startswith(first)
    old = pl.concat(pl.DataFrame(rows_of(place)) for place in range(4)).filter(pl.col("age") > 20)
    assert f"{(old['arm'] == 'new').sum()}" in done.output
    assert (folder / "s" / "tables" / "mean-2.csv").read_text().startswith(f"# {first}")
    page = (folder / "s" / "report.html").read_text(encoding="utf-8")
    assert page.count("<h2>Table one</h2>") == 1
    assert "variance age" not in page.split("The budget as it went")[0].split("Answers")[0]


def test_a_price_is_asked_for_and_groups_belong_to_a_table(folder):
    with pytest.raises(QueryError, match="Expected --epsilon"):
        build_table_one_file("all", by=None, epsilon=None, session_file=folder / "queries.toml")
    assert "Expected --by with --table-one" in str(run("queries.toml", "--by", "arm").exception)


def test_an_epsilon_that_would_do_does(folder):
    wanted = run("--table-one", "age", "--by", "arm", "--epsilon", "0.02").exception
    enough = float(str(wanted).split("With about ")[1].split(" ")[0])
    assert run("--table-one", "age", "--by", "arm", "--epsilon", 1.05 * enough).exit_code == 0
