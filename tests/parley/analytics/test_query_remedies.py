"""What a refused query's message advises works as typed; nothing is charged for a refusal."""

import re

import numpy as np
import polars as pl
import pytest

import parley
from parley.analytics.query_file import load_queries
from parley.client.data.schema import Schema
from parley.client.queries.base import QueryError
from parley.privacy.calibration.noise_calibration import CalibrationError
from parley.privacy.ledger.ledger_errors import BudgetExceeded
from tests.fixtures.commands import invoked

ROWS = pl.DataFrame({"age": np.arange(300) % 90, "sex": np.array(["f", "m"])[np.arange(300) % 2]})
SCHEMA = Schema.from_toml(
    '[columns]\nage = { kind = "numeric", range = [0, 100] }\n'
    'sex = { kind = "categorical", categories = ["f", "m"] }\n'
)
QUERIES = """
[session]
schema = "s.toml"
data = "rows.csv"
parties = 5
epsilon = 1.0

[[query]]
query = "count"
name = "all"
where = "age > 30"
epsilon = 0.8

[[query]]
query = "mean"
column = "age"
name = "age"
epsilon = 0.6
"""
FIRST = {"law": "gaussian", "epsilon": 0.69}
REFUSED = {
    "pure noise after Gaussian": (
        {"epsilon": 1.0, "delta": 1e-5},
        FIRST,
        {"law": "laplace", "epsilon": 0.28},
    ),
    "Gaussian noise after pure": (
        {"epsilon": 1.0, "delta": 1e-5},
        {"law": "laplace", "epsilon": 0.69},
        {"law": "gaussian", "epsilon": 0.28},
    ),
    "more of the same": ({"epsilon": 1.0}, {"epsilon": 0.7}, {"epsilon": 0.5}),
    "a small budget": ({"epsilon": 1e-4}, {"epsilon": 7e-5}, {"epsilon": 5e-5}),
    "an account of another kind": (
        {"epsilon": 1.0, "delta": 1e-5, "certificate": "pure"},
        {"law": "laplace", "epsilon": 0.1},
        {"law": "gaussian", "epsilon": 0.1},
    ),
    "a sampler that takes all of δ": (
        {"epsilon": 2000.0, "delta": 1e-6},
        {"law": "laplace", "epsilon": 1.0},
        {"law": "gaussian", "epsilon": 1000.0},
    ),
    "Gaussian noise without δ": (
        {"epsilon": 1.0},
        {"epsilon": 0.1},
        {"law": "gaussian", "epsilon": 0.5},
    ),
}


def open_session(folder, **settings):
    return parley.Session(ROWS, schema=SCHEMA, parties=5, out=folder, **settings)


@pytest.mark.parametrize(("settings", "first", "second"), REFUSED.values(), ids=list(REFUSED))
def test_a_refused_query_names_what_fits_and_that_is_answered(settings, first, second, tmp_path):
    with open_session(tmp_path / "session", **settings) as session:
        session.where("age > 30").count(**first)
        left = session.remaining
        with pytest.raises((BudgetExceeded, CalibrationError)) as refused:
            session.where("sex == 'f'").count(**second)
        assert session.remaining == left
        said = re.search(
            r"It fits with (?:law = '(\w+)' and )?epsilon = (\S+)\.$", str(refused.value)
        )
        assert said is not None, str(refused.value)
        law = {"law": said[1]} if said[1] else {k: v for k, v in second.items() if k == "law"}
        session.where("sex == 'f'").count(**law, epsilon=float(said[2]))


def test_a_session_without_a_secure_sum_is_refused_before_a_query_is_charged(tmp_path):
    ledger = tmp_path / "ledger.sqlite"
    for wrong in ({"corrupt": 4}, {"masked": True, "parties": 1}):
        with pytest.raises(QueryError, match=r"threshold|at least 2 parties"):
            parley.Session(
                ROWS,
                schema=SCHEMA,
                out=tmp_path / str(len(wrong)),
                epsilon=1.0,
                ledger=str(ledger),
                **{"parties": 5, **wrong},
            )
    assert not ledger.exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"eps": 1.0}, "got 'eps'"),
        ({}, "Expected epsilon in the settings"),
        ({"epsilon": 1.0, "delta": 1e-5, "reserved_delta": 1e-5}, "reserved_delta below delta"),
    ],
)
def test_settings_that_are_wrong_are_named(settings, said, tmp_path):
    with pytest.raises(QueryError, match=said):
        open_session(tmp_path / "session", **settings)


def test_a_query_beyond_any_epsilon_or_with_another_calls_words_is_refused(tmp_path):
    with open_session(tmp_path / "session", epsilon=1e300) as session:
        with pytest.raises(QueryError, match="at most"):
            session.where("age > 30").count(epsilon=1e300)
        with pytest.raises(QueryError, match=r"session\.where"):
            session.count(where="age > 30", epsilon=0.1)


def test_a_file_that_costs_too_much_names_an_epsilon_for_each_batch_that_fits(tmp_path):
    ROWS.write_csv(tmp_path / "rows.csv")
    (tmp_path / "s.toml").write_text(SCHEMA.to_toml())
    path = tmp_path / "queries.toml"
    path.write_text(QUERIES)
    with pytest.raises(BudgetExceeded) as refused:
        release_file(path, tmp_path / "refused")
    advice = re.findall(r"([\d.]+) for '(\w+)'", str(refused.value))
    assert [name for _, name in advice] == ["all", "age"]
    for old, (new, _) in zip(("0.8", "0.6"), advice, strict=True):
        path.write_text(path.read_text().replace(f"epsilon = {old}\n", f"epsilon = {new}\n"))
    assert len(release_file(path, tmp_path / "answered")) == 2


def test_the_plan_of_a_file_that_costs_too_much_begins_with_the_refusal(tmp_path):
    ROWS.write_csv(tmp_path / "rows.csv")
    (tmp_path / "s.toml").write_text(SCHEMA.to_toml())
    path = tmp_path / "queries.toml"
    path.write_text(QUERIES)
    refused = invoked("query", "--plan", path)
    assert refused.exit_code == 3
    assert refused.output.startswith("`parley query` would refuse this file.")
    path.write_text(QUERIES.replace("epsilon = 0.8", "epsilon = 0.2"))
    assert invoked("query", "--plan", path).exit_code == 0


def release_file(path, folder):
    file = load_queries(path)
    settings = dict(file.session)
    with parley.Session(settings.pop("data"), out=folder, **settings) as session:
        return list(file.release_batches(session, file.plan_batches(session)))
