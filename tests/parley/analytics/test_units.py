"""Sessions that hide persons or parties: what each costs, and what a server may not make of it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from query_parties import charged, make_parties, open_session, rows_of, simulated

import parley
from parley.client.contract.refusals import Declined
from parley.client.party.dataset_loader import load_dataset
from parley.client.party.owner_policy import PolicyError, load_policy
from parley.client.queries.base import QueryError
from parley.client.queries.count_queries import Count
from parley.client.queries.filters.parser import parse_where
from parley.client.queries.query_batch import Counting
from parley.deploy.party_check import check_items
from parley.privacy.accounting.attack_power import compute_gaussian_power
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.accounting.tradeoff_bounds import compute_power
from parley.privacy.calibration.inverse_curves import compute_cks20_rho
from parley.secure_agg.interface import TooFewSurvivors
from parley.server.jobs.section_base import JobError
from parley.server.rounds.connected_parties import QueryParties
from parley.simulations.engine.party_folders import party_folders

PERSONS = 'unit = "person"\nid = "patient"\nrecords-per-id = 2'
PARTY = 'unit = "party"'
HUGE = {"epsilon": 2e4}
"""So much that the noise is a fraction of a record: sums show what was counted."""


def kept_of(rows, most):
    return sum(np.minimum(np.unique(rows["patient"], return_counts=True)[1], most))


def test_real_parties_count_so_many_records_of_a_person_and_no_more(tmp_path):
    made = make_parties(tmp_path / "d", data=PERSONS, **HUGE)
    settings = {"unit": "person", "records_per_id": 2, **HUGE}
    with open_session(made, tmp_path / "s", **settings) as s:
        expected = sum(kept_of(rows_of(k), 2) for k in range(3))
        assert s.records == expected
        answer = s.histogram("sex", epsilon=1e4)
        assert sum(answer.table["value"]) == pytest.approx(expected, abs=1)
        assert "(person, replace-one; against the server and those" in str(answer)
        assert "in each party separately" in str(answer)
    assert charged(made, Unit.PERSON) == [1e4] * 3


def test_a_session_of_persons_costs_as_many_times_the_noise(tmp_path):
    with simulated(tmp_path, unit="person", id="patient", records_per_id=3) as s:
        plan = s.plan([Count(where=parse_where("age > 50"))], epsilon=0.5).plan
    assert plan.primary.unit is Unit.PERSON
    assert plan.primary.mechanism.sensitivity_l1 == 3
    assert plan.primary.mechanism.scale == 6


def test_a_party_counts_for_so_many_records_whatever_it_holds(tmp_path):
    def rows(index):  # the first has ten times as many as the others
        own = rows_of(index)
        return {name: list(cells) * (10 if index == 0 else 1) for name, cells in own.items()}

    made = make_parties(tmp_path / "d", data=PARTY, rows=rows, **HUGE)
    settings = {"unit": "party", "records_per_party": 300, **HUGE}
    with open_session(made, tmp_path / "s", **settings) as s:
        assert s.records is None
        assert s.count(epsilon=1e4).value == pytest.approx(300 + 201 + 202, abs=2)
        mean = s.mean("age", epsilon=1e4)
        assert "(party, replace-one; against the server and those" in str(mean)
    parts = [(np.mean(rows(k)["age"]), n) for k, n in ((0, 300), (1, 201), (2, 202))]
    expected = np.average([a for a, _ in parts], weights=[n for _, n in parts])
    assert mean.value == pytest.approx(expected, abs=0.5)
    assert charged(made, Unit.PARTY) == [2e4] * 3


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        (PERSONS, {"unit": "person", "records_per_id": 3}),
        pytest.param(PERSONS, {"unit": "person", "records_per_id": 1}, marks=pytest.mark.heavy),
        (PERSONS, {}),
        (PERSONS, {"unit": "party", "records_per_party": 300}),
        (PARTY, {}),
        pytest.param(PARTY, {"unit": "person", "records_per_id": 2}, marks=pytest.mark.heavy),
        pytest.param("", {"unit": "person", "records_per_id": 2}, marks=pytest.mark.heavy),
        ("", {"unit": "party", "records_per_party": 300}),
    ],
)
def test_a_party_answers_for_its_own_unit_alone_and_pays_for_no_other(tmp_path, data, settings):
    made = make_parties(tmp_path / "d", data=data)
    if data == PARTY:  # what a session of records or persons begins with: the sizes
        with pytest.raises(JobError, match="sizes-not-disclosed"):
            open_session(made, tmp_path / "s", **settings)
    else:
        with open_session(made, tmp_path / "s", **settings) as s:
            with pytest.raises(TooFewSurvivors):
                s.where("age > 50").count(epsilon=0.25)
            assert s.remaining == 1.0
    assert charged(made, Unit.RECORD) == [None] * 3


@pytest.mark.parametrize(
    ("data", "settings", "claimed"),
    [
        # Of one record, to parties that keep two of a person: half the noise.
        (PERSONS, {"unit": "person", "records_per_id": 2}, Counting(unit=Unit.PERSON, most=1)),
        pytest.param(
            PERSONS,
            {"unit": "person", "records_per_id": 2},
            Counting(),
            marks=pytest.mark.heavy,
        ),
        # Clipped wider than the noise is made for.
        (
            PARTY,
            {"unit": "party", "records_per_party": 300},
            Counting(unit=Unit.PARTY, most=600, clip="l1"),
        ),
        (
            PARTY,
            {"unit": "party", "records_per_party": 300},
            Counting(unit=Unit.PARTY, most=400, clip="l2"),
        ),
    ],
)
def test_a_server_that_asks_for_more_of_one_than_it_plans_noise_for_is_declined(
    tmp_path, monkeypatch, data, settings, claimed
):
    made = make_parties(tmp_path / "d", data=data)
    ask = QueryParties.aggregate

    def lying(self, *given, **named):
        algorithm = replace(self.algorithm, counting=claimed)
        return ask(replace(self, algorithm=algorithm), *given, **named)

    with open_session(made, tmp_path / "s", **settings) as s:
        monkeypatch.setattr(QueryParties, "aggregate", lying)
        with pytest.raises(TooFewSurvivors):
            s.histogram("sex", epsilon=0.25, law="laplace")
    assert charged(made, Unit.RECORD) == [None] * 3


def test_data_of_persons_is_for_queries_alone_and_its_owner_can_check_it(tmp_path):
    (home, *_) = party_folders(make_parties(tmp_path / "d", data=PERSONS)[1], 3)
    said = {each.what: each for each in check_items(home)}["data set ward"]
    assert said.status == 0
    assert said.said.startswith(f"{kept_of(rows_of(0), 2)} records")
    dataset = load_policy(home / "party.toml").data["ward"]
    with pytest.raises(Declined, match="Expected queries of a data set with unit = person"):
        load_dataset(dataset, home, label="logistic", intercept=True)


def test_no_server_can_ask_about_whose_a_record_is(tmp_path):
    made = make_parties(tmp_path / "d", data=PERSONS)
    with open_session(made, tmp_path / "s", unit="person", records_per_id=2) as s:
        for asked in (
            lambda: s.where("patient == 'p3'").count(epsilon=0.1),
            lambda: s.group_by("patient").count(epsilon=0.1),
            lambda: s.histogram("patient", epsilon=0.1),
        ):
            with pytest.raises(ValueError, match="got 'patient', of kind ignore"):
                asked()
        assert s.remaining == 1.0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"unit": "person", "id": "patient"}, "Expected records_per_id with unit person"),
        ({"unit": "person", "records_per_id": 2}, "Expected id, the column"),
        ({"unit": "person", "id": "age", "records_per_id": 2}, "kind ignore in the schema"),
        ({"unit": "person", "id": "who", "records_per_id": 2}, "got none 'who'"),
        ({"unit": "person", "id": "patient", "records_per_id": 0}, "records_per_id"),
        ({"unit": "party"}, "Expected records_per_party with unit party"),
        ({"unit": "party", "records_per_party": True}, "records_per_party"),
        ({"records_per_id": 2}, "got one with unit record"),
        ({"records_per_party": 2}, "got one with unit record"),
        ({"id": "patient"}, "Expected id only with unit person"),
        ({"unit": "hospital"}, "'record', 'person' or 'party'"),
    ],
)
def test_a_unit_without_its_bound_is_refused_and_leaves_no_folder(tmp_path, settings, said):
    with pytest.raises(ValueError, match=said):
        simulated(tmp_path, **settings)
    assert not (tmp_path / "s").exists()


def test_what_hides_records_alone_is_refused_of_persons_and_parties_and_nothing_is_charged(
    tmp_path,
):
    with simulated(tmp_path, unit="party", records_per_party=200) as s:
        with pytest.raises(QueryError, match="Expected unit record or person"):
            s.median("age", step=1.0, epsilon=0.1, law="exponential")
        with pytest.raises(ValueError, match="replace-one with randomised response"):
            s.response("sick", epsilon=0.1)
        assert s.remaining == 1.0


def test_a_partition_costs_as_many_cells_as_one_of_the_unit_may_be_in(tmp_path):
    settings = {"unit": "person", "id": "patient", "records_per_id": 1}
    with simulated(tmp_path, **settings) as s:
        cells = s.partition("sex", cells={"Female": 0.3, "Male": 0.1})
        assert s.remaining == pytest.approx(0.6)
        assert cells[0].count(epsilon=0.3).ledger.budget.unit is Unit.PERSON
    (tmp_path / "t").mkdir()
    settings = {"unit": "party", "records_per_party": 200, "neighbouring": "add-or-remove-one"}
    with simulated(tmp_path / "t", **settings) as s:
        assert [cell.remaining for cell in s.partition("sex", epsilon=0.5)] == [0.25] * 2


def test_every_answer_says_what_is_found_of_one_of_the_unit_and_of_five(tmp_path):
    settings = {"unit": "person", "id": "patient", "records_per_id": 2, "delta": 1e-6}
    with simulated(tmp_path, **settings) as s:
        pure = s.histogram("sex", epsilon=0.25, law="laplace")
        assert pure.mu is None
        assert pure.tradeoff() == pytest.approx(compute_power(0.05, epsilon=0.25))
        assert pure.tradeoff(members=2) == pytest.approx(compute_power(0.05, epsilon=0.5))
        assert "recognises one person in at most" in str(pure)
        smooth = s.histogram("sex", epsilon=0.5, law="gaussian")
        assert smooth.mu == pytest.approx(math.sqrt(2 * compute_cks20_rho(0.5, 0.99e-6)), rel=1e-3)
        assert f"(μ = {smooth.mu:.3f}" in str(smooth)[: str(smooth).index("together")]
        for members in (1, 5):
            wanted = compute_gaussian_power(0.05, mu=members * smooth.mu)
            assert smooth.tradeoff(members=members) == pytest.approx(wanted, rel=1e-6)
        page = s.report().read_text(encoding="utf-8")
        assert "5 persons together" in page
        assert "protected together in one party" in page
    (tmp_path / "t").mkdir()
    with simulated(tmp_path / "t", unit="party", records_per_party=200) as s:
        assert "; 5 parties together in " in str(s.count(epsilon=0.5))


def test_a_session_of_persons_goes_on_without_another_charge(tmp_path):
    settings = {"unit": "person", "id": "patient", "records_per_id": 2}
    with simulated(tmp_path, **settings) as s:
        first = s.where("age > 50").count(epsilon=0.25)
    with parley.Session([rows_of(k) for k in range(3)], resume=tmp_path / "s") as s:
        assert s.where("age > 50").count(epsilon=0.25).value == first.value
        assert s.remaining == 0.75


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('unit = "person"\nid = "patient"', "records-per-id with unit = person"),
        ('unit = "person"\nrecords-per-id = 2', "records-per-id with unit = person"),
        ('id = "patient"\nrecords-per-id = 2', "records-per-id with unit = person"),
        ('unit = "person"\nid = "patient"\nrecords-per-id = 0', "records-per-id"),
        (f"{PERSONS}\nparty-epsilon = 1.0\nparty-delta = 1e-6", "unit = record with party-eps"),
    ],
)
def test_a_policy_of_persons_says_whose_records_and_how_many(tmp_path, lines, said):
    data = '[data.ward]\npath = "r.csv"\nschema = "s.toml"\nepsilon = 1.0\ndelta = 1e-6\n'
    (tmp_path / "party.toml").write_text(f"version = 1\n{data}{lines}\n")
    with pytest.raises(PolicyError, match=said):
        load_policy(tmp_path / "party.toml")
