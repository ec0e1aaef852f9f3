"""Queries for a server that runs: submitted, read strictly, answered by parties that consent."""

from __future__ import annotations

import json
import random
import shutil
import threading

import numpy as np
import polars as pl
import pytest
from attending import NAMES, World
from commands import invoked

from parley.analytics.submitted_queries import ServedQueries, parse_submission
from parley.client.data.schema import SchemaError
from parley.client.queries.base import QueryError
from parley.client.queries.filters.expressions import WhereError
from parley.deploy.stream.operator_client import OperatorClient, load_operator_home
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.ledger import Ledger

SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100], outside = "refuse" }
sex = { kind = "categorical", categories = ["Female", "Male"] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
DATA = """
most-cells = 40

[data.ward]
path = "records.csv"
schema = "schema.toml"
epsilon = 1.0
delta = 1e-6
"""
FILE = """
[session]
dataset = "ward"
schema = "schema.toml"
epsilon = 1.0

[[query]]
query = "count"
where = "age > 50"
epsilon = 0.25

[[query]]
query = "histogram"
column = "age"
bins = {bins}
epsilon = 0.25
"""


class Ward(World):
    """Three parties with records, and a server that answers queries."""

    def __init__(self, root):
        super().__init__(root)
        for index in range(3):
            home, rng = self.home(index), np.random.default_rng(index)
            rows = {
                "age": rng.integers(0, 101, 300),
                "sex": rng.choice(["Female", "Male"], 300),
                "sick": rng.choice(["yes", "no"], 300),
            }
            pl.DataFrame(rows).write_csv(home / "records.csv")
            (home / "schema.toml").write_text(SCHEMA)
            (home / "party.toml").write_text("version = 1\n" + DATA)
        self.serving = self.serve(questions=ServedQueries(), away_s=2.0)

    def conduct(self):
        def work():
            while True:
                self.serving.run_next()

        threading.Thread(target=work, daemon=True).start()
        self.everybody()

    def spent(self):
        for name in NAMES:
            path = self.home(name) / "ledger.sqlite"
            if not path.exists():
                yield 0.0
                continue
            with Ledger.open(path, read_only=True) as ledger:
                yield ledger.get_account("ward", Unit.RECORD).spent.compute_lowest_epsilon(1e-6)[1]


@pytest.fixture
def ward(tmp_path):
    made = Ward(tmp_path)
    yield made
    made.close()


def run(*arguments):
    return invoked("query", *map(str, arguments))


def test_an_operator_elsewhere_gets_answers_that_parties_paid_for(ward, tmp_path, monkeypatch):
    ward.conduct()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    asked = tmp_path / "queries.toml"
    asked.write_text(FILE.format(bins=4))
    laptop = tmp_path / "laptop"
    shutil.copytree(ward.root / "operator", laptop)
    planned = run(asked, "--server", laptop, "--plan")
    assert planned.exit_code == 0, planned.output
    assert "expected error" in planned.stdout
    assert list(ward.spent()) == [0.0] * 3
    done = run(asked, "--server", laptop, "--json", "--simultaneous")
    assert done.exit_code == 0, (done.output, done.exception)
    told = json.loads(done.stdout)
    assert [each["name"] for each in told["answers"]] == ["count 1", "histogram 2"]
    assert told["answers"][1]["simultaneous"]
    ages = pl.concat([pl.read_csv(ward.home(k) / "records.csv")["age"] for k in range(3)])
    assert abs(told["answers"][0]["table"]["value"][0] - (ages > 50).sum()) < 120
    assert told["left"] == pytest.approx(0.5)
    assert list(ward.spent()) == pytest.approx([0.5] * 3)
    copy = tmp_path / "runs" / told["run"]
    for name in ("answers.json", "asked.json"):
        assert (copy / name).read_bytes() == (ward.runs / told["run"] / name).read_bytes()
    page = (copy / "answers.html").read_text(encoding="utf-8")
    assert "count where age" in page
    assert page.startswith("<!doctype html>")
    assert page.lower().count("http-equiv") == 1  # of whoever copied it
    # What is released is not paid for again: the same run, gone on with, is complete.
    again = run("--server", laptop, "--resume", told["run"])
    assert "is complete" in str(again.exception)
    # A statement whose first half a policy allows and whose cells it does not.
    asked.write_text(FILE.format(bins=41))
    refused = run(asked, "--server", ward.root)
    assert refused.exit_code != 0
    assert type(refused.exception).__name__ == "TooFewSurvivors"
    assert list(ward.spent()) == pytest.approx([0.75] * 3)  # of the count alone
    status = invoked("status", laptop)
    said = " ".join(status.stdout.split())
    assert "failed; 3 parties: algorithm (its policy does not accept" in said
    select = "SELECT sex, COUNT(*) FROM ward GROUP BY sex"
    given = run(select, "--epsilon", 0.125, "--server", ward.root, "--session", asked, "--json")
    assert given.exit_code == 0, (given.output, given.exception)
    assert list(ward.spent()) == pytest.approx([0.875] * 3)


STUDY = """
[session]
dataset = "ward"
schema = "schema.toml"
epsilon = 1.0

[[query]]
query = "survival"
column = "age"
event = "sick"
occurred = "yes"
bins = 5
by = ["sex"]
epsilon = 0.5

[[query]]
query = "table-one"
columns = ["sex"]
by = ["sick"]
epsilon = 0.5
"""


def test_a_study_of_parties_that_attend_is_one_file(ward, tmp_path):
    ward.conduct()
    (tmp_path / "schema.toml").write_text(SCHEMA)
    asked = tmp_path / "queries.toml"
    asked.write_text(STUDY.replace('columns = ["sex"]\n', ""))
    noise = run(asked, "--server", ward.root)
    assert "Expected a larger epsilon for this table" in str(noise.exception)
    asked.write_text(STUDY.replace("0.5", "0.75"))
    dear = run(asked, "--server", ward.root)
    assert "got ε = 1.5" in str(dear.exception)  # more than there is: none of it is paid for
    assert list(ward.spent()) == [0.0] * 3
    asked.write_text(STUDY)
    done = run(asked, "--server", ward.root)
    assert done.exit_code == 0, (done.output, done.exception)
    whole = (
        "ε = 1 for all of it at δ = 0 (3 queries in 2 releases; record, replace-one; against the "
        "server and those who collude with it); the budget holds even if later releases depend on "
        "earlier answers (certificate pure)"
    )
    assert done.stdout.splitlines()[0] == whole
    assert list(ward.spent()) == pytest.approx([1.0] * 3)
    (table,) = ward.runs.glob("*/table-one.csv")
    folder, lines = table.parent, table.read_text().splitlines()
    assert "ε = 0.5 for the whole table" in lines[0]
    assert lines[0].removeprefix("# ") in done.stdout
    rows = pl.concat([pl.read_csv(ward.home(k) / "records.csv") for k in range(3)])
    (count,) = (line.split(",") for line in lines if line.startswith(",,yes,n,"))
    assert abs(float(count[4]) - (rows["sick"] == "yes").sum()) < 300
    log_rank = (folder / "tables" / "survival-1-log-rank-test.csv").read_text().splitlines()
    assert log_rank[:2] == [f"# {whole}", "chi-squared,degrees of freedom,p"]
    assert "<h2>Table one</h2>" in (folder / "answers.html").read_text()


FIRST = {
    "name": "a",
    "query": {"query": "count", "by": ["sex"], "where": None},
    "epsilon": 0.1,
    "share": 1.0,
    "law": "",
    "by_party": False,
}
SECOND = FIRST | {
    "name": "b",
    "query": {"query": "count", "by": ["sex", "sick"], "where": None},
    "epsilon": 0.25,
    "law": "laplace",
}
SESSION = {"dataset": "ward", "epsilon": 1.0}
GOOD = json.dumps(
    {
        "version": 1,
        "schema": SCHEMA,
        "session": SESSION,
        "plan": False,
        "batches": [[FIRST]],
        "table": None,
    }
)


def text_of(**change):
    return json.dumps(json.loads(GOOD) | change)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "Expected the keys"),
        ("{", "Expected a submission"),
        (text_of(version=2), "Expected version 1"),
        (text_of(more=1), "Expected the keys"),
        (text_of(schema="[columns]"), "olumn"),
        (text_of(session={"epsilon": 1.0}), "Expected dataset"),
        (text_of(session=SESSION | {"seed": 1}), "Expected no seed"),
        (text_of(session=SESSION | {"deployment": "/"}), "no deployment"),
        (text_of(session=SESSION | {"ledger": "/l"}), "no file, folder or address in ledger"),
        (text_of(session=SESSION | {"out": "/o"}), "Expected one of the settings"),
        (text_of(batches=[]), "Expected 1 to"),
        (text_of(table=1), "index of one of 1 batches"),
        (text_of(table=True), "table to be a valid integer"),
        (text_of(table=0, batches=[[FIRST, SECOND | {"epsilon": None}]]), "of a table one"),
        (GOOD.replace("0.1", "true"), "epsilon to be a valid number"),
        (GOOD.replace("0.1", "null"), "Expected epsilon"),
        (GOOD.replace('"sex"', '"sexx"'), "sexx"),
        (GOOD.replace('"by": ["sex"]', '"by": []'), "Expected where or group_by"),
    ],
)
def test_what_is_no_submission_is_refused_at_once_and_leaves_no_run(ward, text, said):
    with OperatorClient(load_operator_home(ward.root / "operator")) as there:
        with pytest.raises((QueryError, SchemaError), match=said):
            there.send_request("query", queries=text)
        assert there.send_request("status")["runs"] == []
    assert list(ward.runs.iterdir()) == []
    assert list(ward.spent()) == [0.0] * 3


def test_a_server_that_was_killed_goes_on_with_its_queries_and_pays_for_nothing_twice(
    ward, monkeypatch
):
    asked = text_of(batches=[[FIRST], [SECOND]])
    with OperatorClient(load_operator_home(ward.root)) as here:
        name = here.send_request("query", queries=asked)["run"]

        with monkeypatch.context() as patch:
            ward.everybody()
            patch.setattr(
                "parley.analytics.session.Session.report",
                lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt),
            )
            ward.serving.interrupted.set()
            with pytest.raises(KeyboardInterrupt):
                ward.serving.run_next()
            ward.serving.interrupted.clear()
        assert here.send_request("look", run=name)["state"] == "queued"
        paid = list(ward.spent())
        assert paid == pytest.approx([0.35] * 3)
        assert ward.serving.run_next().state == "complete"
        assert list(ward.spent()) == paid
    told = json.loads((ward.runs / name / "answers.json").read_text())
    assert [each["name"] for each in told["answers"]] == ["a", "b"]


def test_submissions_are_read_strictly_or_refused_in_words_of_ours():
    rng = random.Random(5)
    values = [None, True, -1, 0, 2**70, 1e308, "", "x" * 600, [], {}, [[]], "sex", 0.5]
    refused = 0
    for _ in range(600):
        given = json.loads(GOOD)
        spot, depth = given, 0
        while True:
            key = rng.choice(list(spot) if isinstance(spot, dict) else range(len(spot)))
            inside = spot[key]
            if isinstance(inside, dict | list) and inside and rng.random() < 0.7 and depth < 6:
                spot, depth = inside, depth + 1
                continue
            if rng.random() < 0.5:
                spot[key] = rng.choice(values)
            elif isinstance(spot, dict) and rng.random() < 0.5:
                spot["more"] = inside
            else:
                del spot[key]
            break
        try:
            parse_submission(json.dumps(given))
        except (QueryError, SchemaError, WhereError):
            refused += 1
    assert refused > 300
