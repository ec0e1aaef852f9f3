"""Questions built to single out one record: the budget covers all of them together."""

from __future__ import annotations

import numpy as np
import pytest
from blocks import block_of_columns

import parley
from parley.client.data.schema import Schema
from parley.client.queries.base import QueryFacts
from parley.client.queries.count_queries import Count
from parley.client.queries.filters.parser import parse_where
from parley.client.queries.query_batch import Counting, QueryBatch
from parley.privacy.accounting.threat_model import NOISE_POINTS, Neighbouring, Unit
from parley.privacy.accounting.tradeoff_bounds import compute_power
from parley.privacy.ledger.ledger_errors import BudgetExceeded
from parley.privacy.sampling.random_stream import NoiseStream
from parley.server.planning.query_planner import plan_batch
from parley.server.planning.session_terms import SessionTerms

SCHEMA = Schema.from_toml(
    """
[columns]
age = { kind = "numeric", range = [0, 100] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)
TARGET = 37.125
PAIR = [Count(where=parse_where(text)) for text in ("age >= 37", "age >= 37 and age != 37.125")]


RECORD = Counting()


def world(age, records=1):
    rng = np.random.default_rng(1)
    ages = [*[age] * records, *rng.integers(0, 100, 200 - records).tolist()]
    return {"age": ages, "sick": ["no"] * 200}


def differences(age, worlds, *, records=1, counting=RECORD, planned_for=None):
    """Of the two noisy counts, which differ in the target alone, each asked at ε = ½.

    Of `records` of one unit, which is counted as `counting` says and planned for as `planned_for`.
    """
    block, own = block_of_columns([world(age, records)], SCHEMA), planned_for or counting
    terms = SessionTerms(
        facts=QueryFacts(
            schema=SCHEMA, neighbouring=own.get_relation(Neighbouring.REPLACE_ONE), records=200
        ),
        counting=own,
        relation=Neighbouring.REPLACE_ONE,
        parties=1,
        min_records=200,
        most_records=200,
        min_survivors=1,
        corrupt=0,
        noise_point=NOISE_POINTS["server"],
        delta=0.0,
        seeded=True,
    )
    noisy = []
    for number, query in enumerate(PAIR, start=1):
        planned = plan_batch([query], terms, epsilon=0.5, run_id="attack", number=number)
        batch = QueryBatch(queries=(query,), weights=(1,))
        (exact,) = counting.compute_party_vectors(batch, block, [0])
        stream = NoiseStream.from_seed(7, "differencing", str(age), number)
        mechanism = planned.plan.primary.mechanism
        noisy.append(int(exact[0]) + mechanism.draw_many(worlds, stream)[:, 0])
    return noisy[0] - noisy[1]


def test_two_counts_that_differ_in_one_record_tell_no_more_than_their_epsilons_together():
    worlds = 20_000
    there, gone = differences(TARGET, worlds), differences(90.0, worlds)
    assert there.mean() - gone.mean() == pytest.approx(1, abs=0.15)  # the attack is not idle
    slack = 4 * np.sqrt(0.25 / worlds)
    for threshold in range(-8, 10):
        found, alarms = (there >= threshold).mean(), (gone >= threshold).mean()
        assert found <= compute_power(alarms, epsilon=1.0) + slack
    # And no less than ε = .1 would have to be charged: the two are not free.
    assert (there >= 1).mean() > compute_power((gone >= 1).mean(), epsilon=0.1) + slack


@pytest.mark.parametrize(
    ("counting", "records"),
    [
        (Counting(unit=Unit.PERSON, most=4), 4),
        (Counting(unit=Unit.PARTY, most=6, clip="l1"), 200),
    ],
)
def test_two_counts_that_differ_in_one_person_or_party_tell_no_more_either(counting, records):
    worlds = 20_000
    told = {"records": records, "counting": counting}
    there, gone = (differences(age, worlds, **told) for age in (TARGET, 90.0))
    most = counting.most
    assert there.mean() - gone.mean() == pytest.approx(most, abs=1)  # the attack is not idle
    slack, places = 4 * np.sqrt(0.25 / worlds), range(-8 * most, 10 * most, most)
    for threshold in places:
        found, alarms = (there >= threshold).mean(), (gone >= threshold).mean()
        assert found <= compute_power(alarms, epsilon=1.0) + slack
    # Under the noise that covers one record they would tell more than both ε: it is not enough.
    there, gone = (differences(age, worlds, **told, planned_for=RECORD) for age in (TARGET, 90.0))
    assert any(
        (there >= threshold).mean() > compute_power((gone >= threshold).mean(), epsilon=1.0) + slack
        for threshold in places
    )


def test_the_third_question_about_one_record_is_refused(tmp_path):
    with parley.Session(
        world(TARGET), schema=SCHEMA, parties=2, epsilon=1.0, seed=1, out=tmp_path / "s"
    ) as s:
        for query in PAIR:
            s.ask(query, epsilon=0.5)
        with pytest.raises(BudgetExceeded):
            s.where("age == 37.125").count(epsilon=0.01)
        assert s.remaining == 0
