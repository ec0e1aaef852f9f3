"""Correlations and regressions asked by a file and of parties' own services, and read again."""

from __future__ import annotations

import numpy as np
import pytest
from query_parties import charged, make_parties, open_session

from parley.client.queries.base import QueryError

SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100] }
cost = { kind = "numeric", range = [0, 100] }
arm = { kind = "categorical", categories = ["old", "new"], missing = "old" }
patient = { kind = "ignore" }
state = { kind = "label", positive = "sick", negative = "well" }
"""
FILE = """
[session]
data = "party-*.csv"
schema = "schema.toml"
epsilon = 4.0
seed = 3

[[query]]
query = "correlations"
of = ["age", "cost", "arm"]
regressions = ["cost ~ age + arm"]
epsilon = 2.0
"""
COLUMNS = ["age", "cost", "arm"]


def rows_of(index, count=2000):
    rng = np.random.default_rng(index)
    age, arm = rng.uniform(20, 90, count), rng.integers(0, 2, count)
    cost = np.clip(10 + 0.5 * age + 8 * arm + 10 * rng.normal(size=count), 0, 100)
    return {
        "age": age.round(1),
        "cost": cost.round(1),
        "arm": np.array(["old", "new"])[arm],
        "patient": [f"p{k}" for k in range(count)],
        "state": np.where(rng.random(count) < 0.5, "sick", "well"),
    }


def test_a_file_asks_for_regressions_and_a_page_shows_them(told):
    answer, page = told(FILE, SCHEMA, map(rows_of, range(4)))
    assert answer["table"]["with"] == ["cost", "arm: new", "arm: new"]
    assert list(answer["beside"]) == [
        "cost ~ age + arm", "fit of regressions", "means", "precision of correlations",
    ]  # fmt: skip
    fitted = answer["beside"]["cost ~ age + arm"]
    assert fitted["term"] == ["1", "age", "arm: new"]
    for low, true, high in zip(fitted["from"], [10, 0.5, 8], fitted["to"], strict=True):
        assert low < true < high
    assert "cost ~ age + arm: correlations age, cost, arm" in page
    assert "Intervals and p cover noise and sampling" in page


def test_parties_derive_its_price_and_another_regression_costs_nothing(tmp_path):
    made = make_parties(tmp_path / "d", rows=rows_of, schema=SCHEMA, epsilon=4.0)
    with open_session(made, tmp_path / "s", schema=SCHEMA, epsilon=4.0) as session:
        answer = session.correlations(COLUMNS, epsilon=2)
        again = answer.reread(regressions=["cost ~ .", "age ~ arm"])
        assert session.remaining == 2
        with pytest.raises(QueryError, match="Expected a column of numbers"):
            session.correlations(COLUMNS, regressions=["arm ~ age"], epsilon=0.1)
        with pytest.raises(QueryError, match="Expected regressions for a released answer"):
            answer.reread(of=["age", "cost"])
        with pytest.raises(QueryError, match="Expected columns of age, cost, arm"):
            answer.reread(regressions=["cost ~ state"])
    assert again.beside["age ~ arm"]["term"][1] == "arm: new"
    assert abs(again.beside["cost ~ ."]["coefficient"][1] - 0.5) < 0.1
    assert again.table["value"].tolist() == answer.table["value"].tolist()
    assert charged(made, answer.ledger.budget.unit) == [2.0] * 3
