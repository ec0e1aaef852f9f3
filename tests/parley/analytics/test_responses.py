"""Randomised response: real parties' records answer for themselves, against everybody."""

from dataclasses import replace

import numpy as np
import pytest
from query_parties import SCHEMA, charged, make_parties, open_session, rows_of

import parley
from parley.client.algorithms.queries import QueryRelease, bound_to
from parley.client.contract.protocol import Declined
from parley.client.data.schema import Schema
from parley.client.queries.batch import Batch
from parley.client.queries.count import Count
from parley.client.queries.counting import Counting
from parley.client.queries.response import Response
from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.privacy.mechanisms.randomised_response import RandomisedResponse
from parley.secure_agg.interface import TooFewSurvivors
from parley.server.queries import party_queries

ALL = {"epsilon": 40.0}


def sick(parties=3):
    return sum((np.asarray(rows_of(k)["sick"]) == "yes").sum() for k in range(parties))


def test_records_of_real_parties_answer_for_themselves_and_each_party_pays(tmp_path):
    made = make_parties(tmp_path / "d", **ALL)
    with open_session(made, tmp_path / "s", **ALL) as s:
        nearly = s.response("sick", epsilon=20)
        yes = nearly.table["value"][list(nearly.table["sick"]).index("yes")]
        assert yes == pytest.approx(sick(), abs=1)  # a lie in 5·10⁸
        assert "against everybody, the server and all other parties among them" in str(nearly)
        answer = s.response("sick", epsilon=1)
        spread = RandomisedResponse(epsilon=1, answers=3).deviation(300, records=603)
        yes = answer.table["value"][list(answer.table["sick"]).index("yes")]
        assert abs(yes - sick()) < 6 * spread
        assert answer.records == 603
        assert s.remaining == pytest.approx(19)
        (entry, *_) = s._session.charged()
        assert entry.entry.facts["noise_point"] == "party"
        assert entry.entry.facts["noise_law"] == "randomised-response"
    assert charged(made, Unit.RECORD) == [21.0] * 3


def test_asked_again_with_fresh_coins_is_another_charge_and_with_kept_ones_none(tmp_path):
    made = make_parties(tmp_path / "d")
    with open_session(made, tmp_path / "s") as s:
        first = s.response("sick", epsilon=0.25, memo=True)
        again = s.response("sick", epsilon=0.25, memo=True)
        assert again.table["value"].tolist() == first.table["value"].tolist()
        assert s.remaining == 0.75
        s.response("sick", epsilon=0.25)
        assert s.remaining == 0.5
    assert charged(made, Unit.RECORD) == [0.5] * 3
    # Another session, which knows of none before: the parties' records say the very same.
    with open_session(made, tmp_path / "t") as s:
        other = s.response("sick", epsilon=0.25, memo=True)
        assert other.table["value"].tolist() == first.table["value"].tolist()
        assert charged(made, Unit.RECORD) == [0.5] * 3
        s.where("age > 50").count(epsilon=0.5)  # all that is left
        with pytest.raises(TooFewSurvivors):
            s.response("sick", epsilon=0.125, memo=True)  # another ε has other coins
    with open_session(made, tmp_path / "u") as s:
        last = s.response("sick", epsilon=0.25, memo=True)
        assert last.table["value"].tolist() == first.table["value"].tolist()
    assert charged(made, Unit.RECORD) == [1.0] * 3


def test_a_session_that_goes_on_has_its_kept_answers_and_those_after_them(tmp_path):
    given = {"schema": Schema.from_toml(SCHEMA), "epsilon": 1.0, "out": tmp_path / "s"}
    data = [rows_of(k) for k in range(3)]

    def asked(s):
        return [
            s.response("sick", epsilon=0.25, memo=True),
            s.response("sick", epsilon=0.25, memo=True),
            s.histogram("sex", epsilon=0.25),
            s.response("sick", epsilon=0.25, memo=True),
        ]

    with parley.Session(data, **given) as s:
        before = asked(s)
        assert s.remaining == 0.5
    assert (tmp_path / "s" / "coins.key").stat().st_mode & 0o777 == 0o600
    with parley.Session(data, resume=tmp_path / "s") as s:
        for one, other in zip(before, asked(s), strict=True):
            assert one.table["value"].tolist() == other.table["value"].tolist()
        assert s.remaining == 0.5


def test_kept_coins_differ_by_party_question_and_secret(tmp_path):
    from parley.client.data.frames import frame_of
    from parley.client.data.table_block import read_table_block

    schema = Schema.from_toml(SCHEMA)
    query = Response(column="sick", memo=True, local=0.5)

    def said(coins, query=query):
        block = read_table_block([frame_of(rows_of(0)), frame_of(rows_of(0))], schema)
        found = query.said(replace(block, coins=coins), fresh=None)
        codes = found.columns["sick"]
        return codes[:200].tolist(), codes[200:].tolist()

    one, other = said((b"a", b"b"))
    assert one != other
    assert said((b"a", b"b")) == (one, other)
    assert said((b"c", b"b"))[1] == other
    assert said((b"c", b"b"))[0] != one
    assert said((b"a", b"b"), replace(query, local=0.25))[0] != one
    with pytest.raises(ValueError, match="Expected keys of kept coins"):
        said(())


def test_a_server_cannot_have_reports_with_less_noise_than_is_charged(tmp_path, monkeypatch):
    made = make_parties(tmp_path / "d")
    ask = party_queries.PartyQueries.ask

    def truer(planned, *, local):
        query = replace(planned.batch.queries[0], local=local)
        return replace(planned, batch=Batch(queries=(query,), weights=(1,)))

    with open_session(made, tmp_path / "s") as s:
        for local in (5.0, 0.0):  # nearly the truth, or the very truth

            def lying(self, planned, state, *, attempt, local=local):
                return ask(self, truer(planned, local=local), state, attempt=attempt)

            with monkeypatch.context() as patch:
                patch.setattr(party_queries.PartyQueries, "ask", lying)
                with pytest.raises(TooFewSurvivors):
                    s.response("sick", epsilon=0.25)
        assert s.remaining == 1.0
    assert charged(made, Unit.RECORD) == [None] * 3


def test_reports_are_of_records_alone_and_by_themselves():
    schema = Schema.from_toml(SCHEMA)
    asked = Response(column="sick", local=0.5)
    relation = Neighbouring.REPLACE_ONE
    for counting in (
        Counting(unit=Unit.PERSON, most=2),
        Counting(unit=Unit.PARTY, most=2, clip="l1"),
        Counting(parties=3),
    ):
        task = QueryRelease(
            batch=Batch(queries=(asked,), weights=(1,)), neighbouring=relation, counting=counting
        )
        with pytest.raises(Declined):
            bound_to(task, schema)
    with pytest.raises(ValueError, match="reports alone"):
        Batch(queries=(asked, Count(by=("sex",))), weights=(1, 1))
    with pytest.raises(ValueError, match="of weight 1"):
        Batch(queries=(asked,), weights=(2,))


def test_a_policy_without_randomised_response_declines_it(tmp_path):
    made = make_parties(tmp_path / "d", policy='laws = ["laplace"]')
    with open_session(made, tmp_path / "s") as s:
        with pytest.raises(TooFewSurvivors):
            s.response("sick", epsilon=0.25)
        assert s.remaining == 1.0
