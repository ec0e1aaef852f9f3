"""A curve asked of a simulation, by a file and of parties' own services; data that have none."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from query_parties import charged, make_parties, open_session

import parley
from parley.client.data.data_sources import DataError
from parley.client.data.schema import Schema
from parley.client.queries.base import QueryError

SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100] }
days = { kind = "numeric", range = [0, 100], outside = "refuse" }
arm = { kind = "categorical", categories = ["old", "new"], missing = "old" }
patient = { kind = "ignore" }
state = { kind = "label", positive = "dead", negative = "alive" }
"""
FILE = """
[session]
data = "party-*.csv"
schema = "schema.toml"
epsilon = 4.0
seed = 3

[[query]]
query = "survival"
column = "days"
event = "state"
occurred = "dead"
bins = 10
by = ["arm"]
epsilon = 2.0
"""
ASKED = {"occurred": "dead", "bins": 10}


def rows_of(index, count=400):
    rng = np.random.default_rng(index)
    arm = rng.integers(0, 2, count)
    died, seen = rng.exponential(np.array([40, 80])[arm]), rng.uniform(20, 100, count)
    return {
        "age": rng.integers(0, 101, count),
        "days": np.minimum(died, seen).round(1),
        "arm": np.array(["old", "new"])[arm],
        "patient": [f"p{k}" for k in range(count)],
        "state": np.where(died <= seen, "dead", "alive"),
    }


def exact(rows):
    """`[10]` Kaplan–Meier of the old arm at the ends of ten intervals, times as they are."""
    own = pl.concat(map(pl.DataFrame, rows)).filter(pl.col("arm") == "old")
    days, dead = own["days"].to_numpy(), (own["state"] == "dead").to_numpy()
    times = np.unique(days[dead])
    kept = [1 - (dead & (days == t)).sum() / (days >= t).sum() for t in times]
    return np.array([np.prod(np.array(kept)[times <= end]) for end in np.arange(10, 101, 10)])


def test_a_file_asks_for_curves_and_a_page_draws_them(told):
    rows = [rows_of(place) for place in range(4)]
    answer, page = told(FILE, SCHEMA, rows)
    curve = np.array(answer["table"]["value"][:7])  # later too few are at risk
    assert np.abs(curve - exact(rows)[:7]).max() < 0.03
    beside = answer["beside"]
    assert list(beside) == [
        "log-rank test", "median survival", "precision of the curve", "cumulative hazard",
    ]  # fmt: skip
    assert beside["log-rank test"]["p"][0] < 1e-6
    assert beside["median survival"]["value"] == [30.0, 60.0]
    assert page.count('<svg class="plot"') == 2  # the curves, the budget
    assert "noise and sampling interval" in page
    assert "Log-rank test: survival days by arm" in page


def test_parties_derive_its_price_and_each_has_its_own_curve(tmp_path):
    made = make_parties(tmp_path / "d", rows=rows_of, schema=SCHEMA, epsilon=4.0)
    with open_session(made, tmp_path / "s", schema=SCHEMA, epsilon=4.0) as session:
        answer = session.group_by("arm").survival("days", "state", **ASKED, epsilon=2)
        few = session.where("age < 3").survival("days", "state", **ASKED, epsilon=0.1)
        assert "too few records for this ε" in str(few)
        assert few.beside["precision of the curve"]["records for ±0.05"][0] > 1000
    true = exact(map(rows_of, range(3)))[:5]
    assert np.abs(answer.table["value"][:5] - true).max() < 0.1  # a dozen deviations of its noise
    assert charged(made, answer.ledger.budget.unit) == [2.1] * 3
    changed = answer.nonnegative()
    assert changed.beside == {}


@pytest.mark.parametrize(
    ("days", "said"),
    [("soon", "number"), (-1.0, "-1"), (100.5, "100.5")],
)
def test_times_that_are_none_are_an_error_and_cost_nothing(tmp_path, days, said):
    rows = rows_of(0, 20)
    rows["days"] = [days, *rows["days"].tolist()[1:]]
    with pytest.raises(DataError, match=said):
        parley.Session(
            [rows, rows_of(1)], schema=Schema.from_toml(SCHEMA), epsilon=1, out=tmp_path / "s"
        )
    assert not (tmp_path / "s").exists()


def test_a_column_that_clamps_is_refused_before_a_charge():
    with parley.Session(
        [rows_of(0), rows_of(1)], schema=Schema.from_toml(SCHEMA), epsilon=1
    ) as session:
        with pytest.raises(QueryError, match="an event beyond the range"):
            session.survival("age", "state", **ASKED, epsilon=0.5)
        assert session.remaining == 1
