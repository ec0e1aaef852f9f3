"""Randomised response: real parties' records answer for themselves, against everybody."""

from dataclasses import replace

import numpy as np
import pytest
from query_parties import SCHEMA, charged, make_parties, open_session, rows_of

from parley.client.algorithms.query_release import QueryRelease, bind_schema
from parley.client.algorithms.task_codec import decode_task, describe_task
from parley.client.contract.refusals import Declined
from parley.client.contract.strict_decoding import DecodingError
from parley.client.data.schema import Schema
from parley.client.queries.count_queries import Count
from parley.client.queries.query_batch import Counting, QueryBatch
from parley.client.queries.randomised_response import ResponseQuery
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.mechanisms.randomised_response import RandomisedResponse
from parley.secure_agg.interface import TooFewSurvivors
from parley.server.rounds.connected_parties import QueryParties

ALL = {"epsilon": 40.0}


def sick(parties=3):
    return sum((np.asarray(rows_of(k)["sick"]) == "yes").sum() for k in range(parties))


def test_records_of_real_parties_answer_for_themselves_and_each_party_pays(tmp_path):
    made = make_parties(tmp_path / "d", **ALL)
    with open_session(made, tmp_path / "s", **ALL) as s:
        nearly = s.response("sick", epsilon=20)
        yes = nearly.table["value"][list(nearly.table["sick"]).index("yes")]
        assert yes == pytest.approx(sick(), abs=1)  # a lie in 5·10⁸
        assert "against the server and all other parties" in str(nearly)
        answer = s.response("sick", epsilon=1)
        spread = RandomisedResponse(epsilon=1, answers=3).compute_deviation(300, records=603)
        yes = answer.table["value"][list(answer.table["sick"]).index("yes")]
        assert abs(yes - sick()) < 6 * spread
        assert answer.records == 603
        assert s.remaining == pytest.approx(19)
        (entry, *_) = s._session.list_charged()
        assert entry.entry.facts["noise_point"] == "party"
        assert entry.entry.facts["noise_law"] == "randomised-response"
    assert charged(made, Unit.RECORD) == [21.0] * 3


def test_asked_again_records_have_fresh_coins_and_it_is_another_charge(tmp_path):
    made = make_parties(tmp_path / "d")
    for run, charges in (("s", [0.25, 0.5]), ("t", [0.75])):  # another session knows of none before
        with open_session(made, tmp_path / run) as s:
            for spent in charges:
                s.response("sick", epsilon=0.25)
                assert charged(made, Unit.RECORD) == [spent] * 3


@pytest.mark.parametrize("memo", [True, False])
def test_no_task_asks_for_coins_that_were_drawn_before(memo):
    """Coins that were kept by column, texts and ε met other values where a schema's reading of
    cells was edited in between: the two answers' difference told who had those cells."""
    query = ResponseQuery(column="sick", local=0.5)
    relation = Neighbouring.REPLACE_ONE
    task = describe_task(
        QueryRelease(batch=QueryBatch(queries=(query,), weights=(1,)), neighbouring=relation)
    )
    assert decode_task(task).batch.queries == (query,)
    task["batch"][0]["memo"] = memo
    with pytest.raises(DecodingError):
        decode_task(task)


def test_a_server_cannot_have_reports_with_less_noise_than_is_charged(tmp_path, monkeypatch):
    made = make_parties(tmp_path / "d")
    ask = QueryParties.aggregate

    def truer(asked, *, local):
        query = replace(asked.algorithm.batch.queries[0], local=local)
        batch = QueryBatch(queries=(query,), weights=(1,))
        return replace(asked, algorithm=replace(asked.algorithm, batch=batch))

    with open_session(made, tmp_path / "s") as s:
        for local in (5.0, 0.0):  # nearly the truth, or the very truth

            def lying(self, *given, local=local, **named):
                return ask(truer(self, local=local), *given, **named)

            with monkeypatch.context() as patch:
                patch.setattr(QueryParties, "aggregate", lying)
                with pytest.raises(TooFewSurvivors):
                    s.response("sick", epsilon=0.25)
        assert s.remaining == 1.0
    assert charged(made, Unit.RECORD) == [None] * 3


def test_reports_are_of_records_alone_and_by_themselves():
    schema = Schema.from_toml(SCHEMA)
    asked = ResponseQuery(column="sick", local=0.5)
    relation = Neighbouring.REPLACE_ONE
    for counting in (
        Counting(unit=Unit.PERSON, most=2),
        Counting(unit=Unit.PARTY, most=2, clip="l1"),
        Counting(parties=3),
    ):
        task = QueryRelease(
            batch=QueryBatch(queries=(asked,), weights=(1,)),
            neighbouring=relation,
            counting=counting,
        )
        with pytest.raises(Declined):
            bind_schema(task, schema)
    with pytest.raises(ValueError, match="the only one of its batch"):
        QueryBatch(queries=(asked, Count(by=("sex",))), weights=(1, 1))
    with pytest.raises(ValueError, match="with weight 1"):
        QueryBatch(queries=(asked,), weights=(2,))


def test_a_policy_without_randomised_response_declines_it(tmp_path):
    made = make_parties(tmp_path / "d", policy='laws = ["laplace"]')
    with open_session(made, tmp_path / "s") as s:
        with pytest.raises(TooFewSurvivors):
            s.response("sick", epsilon=0.25)
        assert s.remaining == 1.0
