"""Intervals of all cells at once, or of sampling too: Python, command line, page."""

import json

import numpy as np
import polars as pl
import pytest
from query_parties import SCHEMA, rows_of
from typer.testing import CliRunner

import parley
from parley.analytics.answer import format_to_width
from parley.cli import app
from parley.client.data.schema import Schema
from parley.client.queries.base import QueryError

ROWS = rows_of(200)  # 400 of them
HOW = {"schema": Schema.from_toml(SCHEMA), "epsilon": 1.0, "seed": 1, "parties": 4}
BOTH = {"simultaneous": True, "sampling": True}


def ends(answer):
    return [np.asarray(answer.table[name]).tolist() for name in ("low", "high")]


def test_an_answer_is_given_other_intervals_at_no_cost(tmp_path):
    with parley.Session(ROWS, out=tmp_path / "s", **HOW) as s:
        plain = s.histogram("age", bins=5, epsilon=0.2)
        both = plain.with_intervals(**BOTH)
        assert all(np.less(ends(both)[0], ends(plain)[0]))
        assert all(np.greater(ends(both)[1], ends(plain)[1]))
        assert both.table["value"].tolist() == plain.table["value"].tolist()
        assert "noise and sampling intervals 95 % for all cells at once" in str(both)
        assert (both.to_json()["simultaneous"], both.to_json()["sampling"]) == (True, True)
        assert ends(both.with_intervals()) == ends(plain)
        assert s.remaining == 0.8
        with pytest.raises(QueryError, match="before nonnegative"):
            plain.nonnegative().with_intervals(sampling=True)
        with pytest.raises(QueryError, match="got choose"):
            s.choose("sex", epsilon=0.1).with_intervals(sampling=True)
        with pytest.raises(QueryError, match="share one noise"):
            s.kmeans(["age"], 2, grid=4, epsilon=0.1).with_intervals(simultaneous=True)
        with pytest.raises(QueryError, match="was chosen"):
            s.median("age", epsilon=0.1, law="exponential").with_intervals(sampling=True)


def test_a_value_that_rounds_to_0_has_no_sign():
    assert format_to_width(-0.3, 60.0) == "0"
    assert format_to_width(-0.6, 60.0) == "-1"
    assert format_to_width(-0.004, 1.0) == "0.00"


def test_counts_by_two_columns_come_with_a_test_of_independence(tmp_path):
    with parley.Session(ROWS, out=tmp_path / "s", **HOW) as s:
        answer = s.marginals(["sex", "sick"], epsilon=0.5)
        ((name, table),) = answer.beside.items()
        assert name == "test of independence"
        assert name in str(answer)
        assert 0 < table["p"][0] <= 1
        assert answer.to_json()["beside"][name]["p"] == table["p"]
        assert s.group_by("sex").count(epsilon=0.1).beside == {}
        assert s.remaining == 0.4
        means = s.group_by("sex").variance("age", epsilon=0.1)
        table = means.beside["mean age of two groups"]
        assert table["from"][0] <= table["difference"][0] <= table["to"][0]
        assert "mean age of two groups" in str(means)


def test_a_session_by_party_whose_sums_are_cut_has_none_of_sampling(tmp_path):
    given = {**HOW, "unit": "party", "records_per_party": 10}
    with pytest.raises(QueryError, match="Expected no sampling intervals with unit party"):
        parley.Session(ROWS, out=tmp_path / "s", sampling=True, **given)
    with parley.Session(ROWS, out=tmp_path / "t", **given) as s:
        answer = s.histogram("age", bins=5, epsilon=0.2)
        with pytest.raises(QueryError, match="is clipped to records_per_party"):
            answer.with_intervals(sampling=True)
        assert answer.with_intervals(simultaneous=True).intervals.simultaneous
        assert s.marginals(["sex", "sick"], epsilon=0.2).beside == {}  # no test of what is left


def test_a_session_has_them_in_every_answer_that_can_and_on_its_page(tmp_path):
    with parley.Session(ROWS, out=tmp_path / "s", **HOW, **BOTH) as s:
        s.histogram("age", bins=5, epsilon=0.2)
        s.mean("age", epsilon=0.2)
        chosen = s.choose("sex", epsilon=0.1)
        assert (chosen.intervals.simultaneous, chosen.intervals.sampling) == (False, False)
        page = " ".join(s.report().read_text(encoding="utf-8").split()).lower()
        for said in (
            "noise and sampling intervals 95 % for all cells at once",
            "and its noise and sampling interval 95 %",
            "by a normal approximation",
            "noise intervals 95 %",
        ):
            assert said in page, said
    with parley.Session(ROWS, resume=tmp_path / "s") as s:
        assert [each.intervals.sampling for each in s.answers] == [True, True, False]


def test_the_command_line_has_them_in_its_json(tmp_path):
    (tmp_path / "schema.toml").write_text(SCHEMA)
    pl.DataFrame(ROWS).write_csv(tmp_path / "all.csv")
    asked = tmp_path / "queries.toml"
    asked.write_text(
        '[session]\ndata = "all.csv"\nschema = "schema.toml"\nparties = 4\nepsilon = 1.0\n'
        'seed = 1\n[[query]]\nquery = "histogram"\ncolumn = "age"\nbins = 5\nepsilon = 0.2\n'
    )

    def run(*more):
        return CliRunner().invoke(app, ["query", str(asked), *map(str, more)])

    plain = json.loads(run("--json", "--out", tmp_path / "a").stdout)["answers"][0]
    wide = run("--json", "--out", tmp_path / "b", "--simultaneous", "--sampling")
    both = json.loads(wide.stdout)["answers"][0]
    assert (plain["simultaneous"], both["simultaneous"], both["sampling"]) == (False, True, True)
    assert all(np.less(both["table"]["low"], plain["table"]["low"]))
    refused = run("--resume", tmp_path / "a", "--sampling")
    assert refused.exit_code != 0
    assert "a session that goes on has its settings" in str(refused.exception)
