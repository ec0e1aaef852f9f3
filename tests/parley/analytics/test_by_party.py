"""Each party's own answer: in cells of its own, where its policy allows it."""

import numpy as np
import pytest
from query_parties import charged, make_parties, open_session, rows_of, simulated

import parley
from parley.analytics.query_file import load_queries
from parley.client.queries.base import QueryError
from parley.privacy.accounting.threat_model import Unit
from parley.secure_agg.interface import TooFewSurvivors

HUGE = {"epsilon": 400.0}
ALLOWED = "by-party = true"


def older(rows):
    return (np.asarray(rows["age"]) > 50).sum()


def test_real_parties_answer_each_in_its_own_row_for_the_price_of_one(tmp_path):
    made = make_parties(tmp_path / "d", policy=ALLOWED, **HUGE)
    with open_session(made, tmp_path / "s", **HUGE) as s:
        answer = s.where("age > 50").count(epsilon=100, by="party")
        assert answer.table["party"].tolist() == ["party-0", "party-1", "party-2"]
        assert answer.table["value"] == pytest.approx([older(rows_of(k)) for k in range(3)], abs=1)
        assert str(answer).startswith("count where age > 50 by party")
        means = s.mean("age", epsilon=200, by="party")
        wanted = [np.mean(rows_of(k)["age"]) for k in range(3)]
        assert means.table["value"] == pytest.approx(wanted, abs=0.5)
        assert s.remaining == pytest.approx(100)
        assert s.answers[0].table["party"].tolist() == answer.table["party"].tolist()
        assert "by party" in s.report().read_text(encoding="utf-8")
    assert charged(made, Unit.RECORD) == [300.0] * 3


def test_a_party_whose_policy_does_not_allow_it_declines_unpaid(tmp_path):
    made = make_parties(tmp_path / "d", policies={0: ("", ""), 1: (ALLOWED, ""), 2: ("", "")})
    with open_session(made, tmp_path / "s") as s:
        with pytest.raises(TooFewSurvivors):
            s.where("age > 50").count(epsilon=0.25, by="party")
        assert s.where("age > 50").count(epsilon=0.25).survivors == 3
        assert s.remaining == 0.75
    assert charged(made, Unit.RECORD) == [0.25] * 3


def test_a_simulation_gives_each_party_the_numbers_that_it_gives_by_itself(tmp_path):
    with simulated(tmp_path, **HUGE, masked=True) as s, s.batch(epsilon=400) as b:
        young = b.where("age < 50").group_by("sex").count(by="party")
        sick = b.histogram("sick", by="party")
    for k in range(3):
        rows = rows_of(k)
        own = np.asarray(young.table["party"]) == str(k)
        wanted = [
            ((np.asarray(rows["age"]) < 50) & (np.asarray(rows["sex"]) == sex)).sum()
            for sex in ("Female", "Male")
        ]
        assert np.asarray(young.table["value"])[own] == pytest.approx(wanted, abs=1)
    assert len(sick.table["value"]) == 9


def test_a_party_that_dropped_out_has_no_row(tmp_path):
    with simulated(tmp_path, count=12, **HUGE, faults="drop:0.15", seed=3) as s:
        answers = [s.group_by("sex").count(epsilon=20, by="party") for _ in range(4)]
    assert min(each.survivors for each in answers) < 12
    for each in answers:
        parties = [int(name) for name in each.table["party"][::2]]
        assert len(parties) == each.survivors
        counts = np.asarray(each.table["value"]).reshape(-1, 2).sum(axis=1)
        assert counts == pytest.approx([200 + k for k in parties], abs=2)


def test_the_noise_is_that_of_one_answer_and_intervals_can_hold_for_all_parties(tmp_path):
    with simulated(tmp_path, seed=1) as s:
        together = s.where("age > 50").count(epsilon=0.25)
        apart = s.where("age > 50").count(epsilon=0.25, by="party")
        assert apart.scale == together.scale == 4
        wide = apart.with_intervals(simultaneous=True)
        assert (np.asarray(wide.table["high"]) > np.asarray(apart.table["high"])).all()
    with parley.Session([rows_of(k) for k in range(3)], resume=tmp_path / "s") as s:
        s.where("age > 50").count(epsilon=0.25)
        again = s.where("age > 50").count(epsilon=0.25, by="party")
        assert again.table["value"].tolist() == apart.table["value"].tolist()
        assert s.remaining == 0.5


def test_what_cannot_be_asked_by_party_is_refused_and_nothing_is_charged(tmp_path):
    with simulated(tmp_path) as s:
        for asked in (
            lambda: s.histogram("sex", epsilon=0.1, by="ward"),
            lambda: s.response("sick", epsilon=0.1, by="party"),
            lambda: s.median("age", step=1.0, epsilon=0.1, law="exponential", by="party"),
            lambda: s.partition("sex", epsilon=0.1)[0].count(epsilon=0.1, by="party"),
        ):
            with pytest.raises(QueryError, match="Expected"):
                asked()
        with pytest.raises(QueryError, match="by party, or none"):
            mixed(s.batch(epsilon=0.1))
        assert s.remaining == pytest.approx(0.9)  # the partition alone


def mixed(batch):
    with batch as b:
        b.histogram("sex", by="party")
        b.histogram("sick")


def test_a_file_says_it_by_a_word(tmp_path):
    session = '[session]\nepsilon = 1.0\n[[query]]\nquery = "histogram"\ncolumn = "sex"\n'
    path = tmp_path / "queries.toml"
    path.write_text(session + 'by = "party"\nepsilon = 0.1\n')
    ((asked,),) = load_queries(path).batches
    assert asked.by_party
    path.write_text(session + 'by = "ward"\nepsilon = 0.1\n')
    with pytest.raises(QueryError, match='Expected by="party"'):
        load_queries(path)
