"""A log of users that never were: of what the schema lists, as many clicks as the counts say."""

import runpy
from pathlib import Path

import numpy as np
import pytest

import parley
from parley.client.data.schema import Schema
from parley.client.queries.base import QueryError

SCHEMA = Schema.from_toml(
    """
[columns]
asked = { kind = "categorical", categories = ["book", "car"], missing = "book" }
link = { kind = "categorical", categories = ["shop", "dealer"], missing = "shop" }
user = { kind = "ignore" }
day = { kind = "label", positive = "weekday", negative = "weekend" }
"""
)
RNG = np.random.default_rng(2)
ROWS = {
    "asked": RNG.choice(["book", "car"], 900, p=[0.8, 0.2]),
    "link": RNG.choice(["shop", "dealer"], 900),
    "user": [f"u{k // 9}" for k in range(900)],
    "day": ["weekday"] * 900,
}


def opened(tmp_path, **more):
    given = {"schema": SCHEMA, "parties": 3, "epsilon": 2.0, "neighbouring": "add-or-remove-one"}
    return parley.Session(ROWS, out=tmp_path / "s", **given, **more)


def test_a_log_has_the_noisy_counts_clicks_and_nobodys_name(tmp_path):
    with opened(tmp_path, seed=3) as s:
        log = s.search_log(["asked", "link"], clicks=4, epsilon=1.0, seed=1)
        noisy = np.maximum(np.rint(np.asarray(log.counts.table["value"])), 0)
        assert log.frame["clicks"].sum() == noisy.sum()
        assert log.frame.columns == ["user", "asked", "link", "clicks"]
        each = log.frame["user"].repeat_by(log.frame["clicks"]).explode().value_counts()["count"]
        assert each.max() <= 4
        assert len(each) == log.users == -(-int(noisy.sum()) // 4)
        assert not set(log.frame["user"]) & set(ROWS["user"])
        books = log.frame.filter(log.frame["asked"] == "book")["clicks"].sum()
        assert abs(books / noisy.sum() - 0.8) < 0.08
        assert s.remaining == 1.0
        assert "ε protects one record." in str(log)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"method": "as-printed"}, "has no ε"),
        ({"clicks": 0}, "at least one click"),
        ({"clicks": True}, "at least one click"),
        ({"columns": "asked"}, "a list of categorical columns"),
        ({"columns": ["user"]}, "user"),
        ({"columns": []}, "a list of categorical columns"),
    ],
)
def test_what_is_no_log_is_refused_and_costs_nothing(tmp_path, settings, said):
    with opened(tmp_path) as s:
        with pytest.raises(ValueError, match=said) as error:
            s.search_log(**{"columns": ["asked"], "epsilon": 0.5, **settings})
        assert isinstance(error.value, QueryError) or settings["columns"] == ["user"]
        assert s.remaining == 2.0


def test_a_log_of_no_click_is_empty(tmp_path):
    rows = {name: part[:3] for name, part in ROWS.items()}
    given = {"schema": SCHEMA, "epsilon": 2.0, "neighbouring": "add-or-remove-one", "seed": 9}
    with parley.Session([rows], out=tmp_path / "s", **given) as s:
        log = s.search_log(["asked"], where="asked == 'car' and link == 'dealer'", epsilon=1e-3)
        assert (log.users == 0) == (log.frame["clicks"].sum() == 0)
        assert log.frame.columns == ["user", "asked", "clicks"]


@pytest.mark.heavy
def test_the_example_asks_real_processes():
    example = Path(__file__).resolve().parents[3] / "examples/search_log_parties.py"
    text = runpy.run_path(str(example))["main"](users=200)
    for said in (
        "As printed: Expected method counts",
        "3 of 3 parties",
        "(person, add-or-remove-one",
    ):
        assert said in text, said
