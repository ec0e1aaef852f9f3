"""Sessions of simulated parties, closed at a test's end, and `parley query` in this process."""

import json

import polars as pl
import pytest
from typer.testing import CliRunner

import parley
from parley.cli import app


@pytest.fixture
def opened(tmp_path):
    """Opens a session, of ε = 1 and a seed unless it is said otherwise, in a folder by itself."""
    made = []

    def make(data, **settings):
        own = {"epsilon": 1.0, "seed": 5, "out": tmp_path / f"s{len(made)}"}
        made.append(parley.Session(data, **{**own, **settings}))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def told(tmp_path):
    """The one answer that `parley query --json` gives of a file, and the session's page."""

    def ask(text, schema, parties):
        (tmp_path / "schema.toml").write_text(schema)
        for place, rows in enumerate(parties):
            pl.DataFrame(rows).write_csv(tmp_path / f"party-{place}.csv")
        (tmp_path / "queries.toml").write_text(text)
        words = ["query", str(tmp_path / "queries.toml"), "--out", str(tmp_path / "s"), "--json"]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        (answer,) = json.loads(done.stdout)["answers"]
        return answer, (tmp_path / "s" / "report.html").read_text(encoding="utf-8")

    return ask
