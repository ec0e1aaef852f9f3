"""A regression asked in steps: of parties' own services, by a session that goes on, and refused."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from query_parties import SCHEMA, charged, make_parties, open_session, rows_of

import parley
from parley.client.data.schema import Schema
from parley.client.queries.base import QueryError
from parley.privacy.ledger.ledger_errors import BudgetExceeded

ASKED = {"column": "sick", "of": ["age", "sex"], "family": "logistic", "occurred": "yes"}


def test_parties_answer_every_step_and_pay_for_all_of_them_what_was_asked(tmp_path):
    parties = make_parties(tmp_path / "d", epsilon=60.0)
    with open_session(parties, tmp_path / "s", epsilon=60.0) as session:
        answer = session.regression(**ASKED, epsilon=50.0)
        assert 49.9 < answer.epsilon <= 50
        assert len(answer.earlier) == 3
        assert 9.9 < session.remaining < 60
        assert "of 60 in 4 steps" in str(answer)
        pages = session.report().read_text()
    assert "step 3 of 4" in pages  # among the releases
    assert answer.table["coefficient"] == ["age", "sex: Male"]
    low, high = np.asarray(answer.table["low"]), np.asarray(answer.table["high"])
    assert (low < high).all()
    assert (np.abs(answer.table["value"]) < [0.05, 1.5]).all()  # there is no effect
    assert all(49 < spent <= 50 for spent in charged(parties, "record"))


def test_a_session_that_goes_on_finds_its_steps_paid(tmp_path):
    frames = [pl.DataFrame(rows_of(place)) for place in range(3)]
    given = {"epsilon": 60.0, "delta": 1e-6, "schema": Schema.from_toml(SCHEMA)}
    with parley.Session(frames, out=tmp_path / "s", **given) as session:
        batch = session.batch(epsilon=1.0)
        batch.regression(**ASKED)
        batch.mean("age")
        with pytest.raises(QueryError, match="as a single query"):
            batch.plan()
        batch.__exit__(ValueError)
        with pytest.raises(BudgetExceeded):
            session.regression(**ASKED, epsilon=61.0)
        with pytest.raises(QueryError, match="each party's own"):
            session.regression(**ASKED, epsilon=1.0, by="party")
        assert session.remaining == 60
        first = session.regression(**ASKED, epsilon=59.0)
        left = session.remaining
    with parley.Session(frames, resume=tmp_path / "s") as session:
        again = session.regression(**ASKED, epsilon=59.0)
        assert again.table["value"].tolist() == first.table["value"].tolist()
        assert session.remaining == left
        assert session.answers[-1].epsilon == first.epsilon
