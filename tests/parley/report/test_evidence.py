"""The report as evidence: who learns what, public ranges."""

import json

import numpy as np
import polars as pl
import pytest

import parley
from parley.report.evidence import parties_named, public_ranges, who_learns_what
from parley.report.page import write_report

SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 110] }
ward = { kind = "categorical", categories = ["north", "south"] }
hospital = { kind = "ignore" }
outcome = { kind = "label", positive = ["died"], negative = ["alive"] }
"""


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(2)
    age = rng.integers(20, 100, 360)
    return pl.DataFrame(
        {
            "age": age,
            "ward": rng.choice(["north", "south"], 360),
            "hospital": rng.choice(["Charité", "St <b>Mary</b>"], 360),
            "outcome": np.where(age + rng.normal(0, 20, 360) > 70, "died", "alive"),
        }
    )


def run_of(frame, folder, *overrides):
    folder.mkdir(exist_ok=True)
    (folder / "schema.toml").write_text(SCHEMA)
    frame.write_csv(folder / "rows.csv")
    job = parley.load_job(
        overrides=[
            *(f"data.source={folder}/rows.csv", f"data.schema={folder}/schema.toml"),
            *("data.partition=column", "data.partition-column=hospital", "parties.count=2"),
            *("algorithm.rounds=3", "secure-aggregation.masked-check=false", *overrides),
        ]
    )
    return parley.run(job, out=folder / "run")


def learns(result):
    (table,) = [who_learns_what(result.summary, of) for of in result.summary.guarantees]
    return {who: can for who, _, can in table.rows}


def test_each_noise_point_says_what_the_server_and_others_can_learn(frame, tmp_path):
    shared = run_of(frame, tmp_path / "share", "secure-aggregation.backend=masked")
    told = learns(shared)
    by = {row.adversary: row for row in shared.summary.primary.accounts}
    # Nobody is told less than what is proved against those who know as much.
    assert (
        f"ε = {shared.summary.primary.epsilon:.4g}" in told["the server"]
        or "= 1 " in told["the server"]
    )
    assert told["readers of the model"] != told["all other parties and the server together"]
    assert by["readers"].epsilon <= by["all-others"].epsilon
    assert "nothing about records" in told["outsiders on the network"]
    trusted = learns(run_of(frame, tmp_path / "server", "privacy.noise-point=server"))
    assert trusted["the server"] == "not bounded by any ε: it is trusted"
    assert trusted["readers of the model"].startswith("at most ε = ")
    assert "all other parties and the server together" not in trusted
    seeded = learns(run_of(frame, tmp_path / "seeded", "run.seed=1"))
    assert all("seed" in can for who, can in seeded.items() if "outsiders" not in who)


def test_the_page_has_names_and_ranges(frame, tmp_path):
    result = run_of(frame, tmp_path)
    page = (result.folder / "report.html").read_text()
    assert result.summary.partition.parties == ("Charité", "St <b>Mary</b>")
    assert result.summary.partition.labels == ("alive", "died")
    assert "Charité" in page
    assert "<b>Mary" not in page  # names are data, never markup
    ranges = public_ranges(result.folder)
    assert ["age", "numeric", "0 to 110"] in ranges.rows
    assert ranges.rows[-1] == ["outcome", "label", "alive, died"]
    shown = result._repr_html_()  # as a notebook has it
    assert "ε = 1 at δ = 1e-05, of a budget of" in shown
    assert "one record; neighbours differ by replacing one record" in shown
    assert "accuracy, held-out records (simulation only)" in shown
    assert str(result.folder / "report.html") in shown


def test_real_parties_are_named_as_they_enrolled(frame, tmp_path):
    folder = run_of(frame, tmp_path).folder
    assert "enrolled" not in (folder / "report.html").read_text()
    board = [
        {"name": "St <b>Mary</b>", "state": "unmasked", "reason": ""},
        {"name": "charite", "state": "declined", "reason": "budget-exhausted"},
    ]
    (folder / "parties.json").write_text(json.dumps({"parties": board}, allow_nan=False))
    assert parties_named(folder).rows[1] == ["charite", "declined (budget-exhausted)"]
    page = write_report(folder).read_text()
    assert "St &lt;b&gt;Mary&lt;/b&gt;" in page
    assert "declined (budget-exhausted)" in page
    (folder / "parties.json").write_text('{"parties": 3}')
    assert parties_named(folder) is None
