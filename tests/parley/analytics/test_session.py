"""Sessions of simulated parties: prices, answers, batches, refusals, and what a kill leaves."""

import json

import numpy as np
import pytest
from query_parties import simulated

import parley
from parley import col
from parley.client.data.schema import Schema
from parley.client.queries.base import QueryError
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import BudgetExceeded
from parley.secure_agg.protocol_parameters import choose_min_survivors
from parley.server.jobs.job_file import load_job

SCHEMA = Schema.from_toml(
    """
[columns]
age = { kind = "numeric", range = [0, 100] }
hours = { kind = "numeric", range = [1, 99] }
sex = { kind = "categorical", categories = ["Female", "Male"] }
note = { kind = "ignore" }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)


def party(place, count=400):
    rng = np.random.default_rng(place)
    return {
        "age": rng.uniform(0, 100, count),
        "hours": rng.uniform(1, 99, count),
        "sex": rng.choice(["Female", "Male"], count),
        "sick": rng.choice(["yes", "no"], count),
    }


PARTIES = [party(place, 400 + 10 * place) for place in range(6)]
ALL = {name: np.concatenate([each[name] for each in PARTIES]) for name in PARTIES[0]}


@pytest.fixture
def session(opened):
    return lambda data=PARTIES, **settings: opened(data, **{"schema": SCHEMA, **settings})


def test_an_agent_spends_a_hundredth_and_a_tenth_and_is_refused_the_rest(session):
    s = session()
    for epsilon in (0.01, 0.10):
        s.where(col.age > 60).count(epsilon=epsilon)
    with pytest.raises(BudgetExceeded):
        s.where(col.age > 60).count(epsilon=1.00)
    assert s.remaining == pytest.approx(0.89, abs=1e-12)


def test_answers_are_near_the_truth_and_say_what_they_cost(session):
    s = session(epsilon=10.0)
    old = ALL["age"] > 60
    answer = s.where("age > 60").count(epsilon=1.0)
    assert answer.value == pytest.approx(old.sum(), abs=15)
    assert (answer.law, answer.scale) == ("laplace", 1.0)
    low, high = answer.interval
    assert high - low == 6.0
    assert s.where(col.age > 60).mean("hours", epsilon=1.0).value == pytest.approx(
        ALL["hours"][old].mean(), abs=1.5
    )
    assert s.mean("hours", epsilon=1.0).value == pytest.approx(ALL["hours"].mean(), abs=1.0)
    assert s.sum("hours", epsilon=1.0).value == pytest.approx(ALL["hours"].sum(), abs=3000)
    frame = s.group_by("sex").histogram("age", edges=[0, 50, 100], epsilon=1.0).frame
    assert frame.columns == ["sex", "age from", "age to", "value", "low", "high"]
    truth = [
        ((ALL["sex"] == sex) & (ALL["age"] >= low) & (ALL["age"] < low + 50)).sum()
        for sex in ("Female", "Male", "(missing)")
        for low in (0, 50)
    ]
    assert np.abs(frame["value"].to_numpy() - truth).max() < 60
    text = str(answer)
    for part in ("6 of 6 parties", "charged ε = 1 of 10, left 9", "replace-one", "age > 60"):
        assert part in text
    assert answer.tradeoff(0.05) == pytest.approx(0.135914, abs=1e-5)
    json.dumps(answer.to_json(), allow_nan=False)


def test_a_batch_is_one_release_for_one_price(session):
    s = session()
    with s.batch(epsilon=0.5) as b:
        ages = b.histogram("age", bins=10)
        mean = b.where("sex == 'Male'").mean("hours")
        few = b.where("age < 1").count(share=3)
        assert "one secure sum of 13 integers" in b.plan()
        assert s.remaining == 1.0
        with pytest.raises(QueryError, match="has no answer yet"):
            _ = few.value
    assert s.remaining == pytest.approx(0.5)
    assert len(s.folder.joinpath("answers.jsonl").read_text().splitlines()) == 1
    truth = np.histogram(ALL["age"], bins=10, range=(0, 100))[0]
    assert np.abs(ages.frame["value"].to_numpy() - truth).max() < 150
    assert mean.value == pytest.approx(ALL["hours"][ALL["sex"] == "Male"].mean(), abs=10)
    # Shares 1, 1, 3: a third of the scale for the last. That of ten cells is less by their sum.
    scales = [each.scale * norm for each, norm in ((ages, 1), (few, 1))]
    assert scales[0] / scales[1] == pytest.approx(2 * 3 * np.sqrt(0.9), rel=1e-3)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("point", ["server", "share"])
def test_the_masked_protocol_gives_the_ideal_answers_to_the_bit(session, law, point):
    def answers(masked):
        s = session(masked=masked, law=law, noise_point=point, delta=1e-6)
        with s.batch(epsilon=0.5) as b:
            b.histogram("age", bins=5)
            b.mean("hours")
        s.where("age > 3").count(epsilon=0.25)
        lines = s.folder.joinpath("answers.jsonl").read_text().splitlines()
        return [json.loads(line)["noisy"] for line in lines]

    assert answers(False) == answers(True)


def test_under_add_or_remove_one_nothing_depends_on_the_number_of_records(session):
    s = session(neighbouring="add-or-remove-one")
    answer = s.count(epsilon=0.5)
    assert (answer.scale, answer.records, s.records) == (2.0, None, None)
    assert s.histogram("sex", epsilon=0.2).scale == 5.0  # one record, one cell
    mean = s.mean("hours", epsilon=0.2)
    assert mean.value == pytest.approx(ALL["hours"].mean(), abs=8)


@pytest.mark.parametrize(
    ("neighbouring", "where", "public"),
    [("replace-one", None, True), ("replace-one", "hours > 20", False),
     ("add-or-remove-one", None, False)],
)  # fmt: skip
def test_a_plan_names_the_number_of_records_only_if_it_is_public(
    session, neighbouring, where, public
):
    s = session(neighbouring=neighbouring)
    with s.batch(epsilon=0.1) as b:
        asked = b if where is None else b.where(where)
        asked.histogram("age", bins=4)
        asked.histogram("sex")
        plan = b.plan()
    assert "adjusted to agree with each other" in plan
    assert ("the public number of records" in plan) is public


def test_a_party_with_more_records_than_stated_is_cut_not_wrapped(session):
    s = session(neighbouring="add-or-remove-one", most_records=50, epsilon=100.0)
    assert s.count(epsilon=100.0).value == pytest.approx(6 * 50, abs=2)


def test_dropouts_are_told_and_nothing_is_extrapolated(session):
    s = session(faults="drop:0.34@before-vector", min_survivors=4, corrupt=0)
    answer = s.where("age >= 0").count(epsilon=1.0)
    assert (answer.survivors, answer.parties) == (4, 6)
    assert answer.value == pytest.approx(answer.records, abs=20)
    assert answer.records < s.records


def test_a_session_raises_the_least_number_of_survivors_as_a_job_does(session):
    job = load_job(overrides=["parties.count=6", "secure-aggregation.min-survivors=1"])
    assert job.min_survivors == choose_min_survivors(6, corrupt=1, requested=1) == 4
    few, default = (
        session(noise_point="share", corrupt=1, min_survivors=least)
        .where("age >= 0")
        .count(epsilon=0.5)
        .scale
        for least in (1, None)
    )
    assert few == default


def test_too_few_survivors_cost_nothing(session):
    from parley.secure_agg.interface import TooFewSurvivors

    s = session(faults="drop:0.5@before-vector")
    with pytest.raises(TooFewSurvivors):
        s.where("age > 3").count(epsilon=0.5)
    assert s.remaining == 1.0


def test_a_session_that_goes_on_gives_its_answers_again_and_pays_for_new_ones_alone(
    session, tmp_path
):
    s = session(out=tmp_path / "one", seed=None)
    first = s.where("age > 60").count(epsilon=0.25)
    s.close()
    # A kill between commit and writing: the ledger has what the file lacks.
    (tmp_path / "one" / "answers.jsonl").write_text("")
    with parley.Session(PARTIES, resume=tmp_path / "one") as again:
        assert again.where("age > 60").count(epsilon=0.25).value == first.value
        assert again.remaining == 0.75
        other = again.where("age > 61").count(epsilon=0.25)
        assert other.ledger.index == 2
        assert again.remaining == 0.5
    with Ledger.open(tmp_path / "one" / "ledger.sqlite") as ledger:
        assert ledger.verify() == []


def test_two_sessions_with_one_ledger_share_the_budget_of_the_same_records(session, tmp_path):
    shared = {"ledger": str(tmp_path / "shared.sqlite"), "dataset": "ward"}
    session(**shared).where("age > 60").count(epsilon=0.75)
    backwards = [{name: column[::-1] for name, column in each.items()} for each in PARTIES]
    second = session(backwards, **shared)
    assert second.remaining == 0.25
    with pytest.raises(BudgetExceeded):
        second.where("age > 60").count(epsilon=0.75)


def test_one_table_is_split_among_parties_in_its_order(session):
    s = session([ALL], parties=7, noise_point="share")
    answer = s.where("age > 60").count(epsilon=1.0)
    assert (answer.parties, answer.records) == (7, len(ALL["age"]))
    assert answer.value == pytest.approx((ALL["age"] > 60).sum(), abs=40)


def test_an_answer_of_one_cell_has_a_value_with_or_without_a_key(session):
    s = session(epsilon=100.0)
    median = s.median("age", epsilon=20.0)
    assert median.value == median.frame["value"][0] == pytest.approx(50, abs=5)
    assert median.interval == (median.frame["low"][0], median.frame["high"][0])
    chosen = s.choose("sex", epsilon=20.0)
    assert chosen.value == chosen.frame["value"][0]
    with pytest.raises(QueryError, match="got 2 cells"):
        _ = s.quantiles("age", [0.25, 0.75], epsilon=20.0).value


def test_columns_that_are_named_like_parts_of_an_answer_lose_nothing_in_it(session):
    names = ("value", "low", "table", "party", "lead")
    lines = [f"{name} = {{ kind = 'categorical', categories = ['a', 'b'] }}" for name in names]
    schema = Schema.from_toml(
        "\n".join(
            ["[columns]", *lines, "sick = { kind = 'label', positive = 'y', negative = 'n' }"]
        )
    )
    rng = np.random.default_rng(1)
    data = [
        {name: rng.choice(["a", "b"], 90) for name in names} | {"sick": rng.choice(["y", "n"], 90)}
        for _ in range(3)
    ]
    s = session(data, schema=schema, epsilon=1000.0)
    asked = {
        "counts": (s.group_by("value", "low").count, (), ["value (column)", "low (column)"]),
        "histogram": (s.histogram, ("value",), ["value (column)"]),
        "choose": (s.choose, ("lead",), ["lead (column)", "lead"]),
        "marginals": (
            s.marginals,
            (["table", "party"],),
            ["table", "table (column)", "party (column)"],
        ),
        "response": (s.response, ("value",), ["value (column)"]),
    }
    for name, (ask, given, keys) in asked.items():
        frame = ask(*given, epsilon=5.0).frame
        assert frame.columns == [*keys, "value", "low", "high"], name
        own = frame[keys[-1] if name != "choose" else keys[0]].to_list()
        assert set(own) <= {"a", "b", "(missing)"}, name


@pytest.mark.parametrize(
    ("rows", "value", "ends", "epsilon"),
    [
        (300_000, 9.0, (0.0, 10.0), 1.0),  # rounded record by record it was 29 scales off
        (900, 9e17, (0.0, 1e18), 1000.0),
        (30_000, -1.3, (-3.3, 0.7), 50.0),
    ],
)
@pytest.mark.parametrize("relation", ["replace-one", "add-or-remove-one"])
def test_rounding_does_not_add_up_over_records(session, rows, value, ends, epsilon, relation):
    """|noise| is beyond 20 of its scales with probability e^-20 = 2e-9, and rounding below .01."""
    schema = Schema.from_toml(f'[columns]\nx = {{ kind = "numeric", range = {list(ends)} }}\n'
                              'y = { kind = "label", positive = "p", negative = "n" }')  # fmt: skip
    each = {"x": [value] * (rows // 3), "y": ["p"] * (rows // 3)}
    s = session([each] * 3, schema=schema, epsilon=2 * epsilon, neighbouring=relation)
    total, average = s.sum("x", epsilon=epsilon), s.mean("x", epsilon=epsilon)
    most = max(map(abs, ends))
    width = ends[1] - ends[0] if relation == "replace-one" else most
    assert abs(total.value - rows * value) < 20.1 * width / epsilon
    for answer, scale in ((total, width / epsilon), (average, None)):
        half = (answer.table["high"][0] - answer.table["low"][0]) / 2
        if scale is not None:  # 2.9957 scales hold 95 %: at most a hundredth more
            assert 2.99 * scale < half < 3.03 * scale
        truth = rows * value if scale is not None else value
        assert abs(answer.value - truth) < 20.1 / 2.9 * half


@pytest.mark.parametrize("certificate", ["auto", "gaussian", "zcdp"])
def test_a_pure_release_next_to_a_gaussian_count_is_refused_with_what_is_left(
    tmp_path, certificate
):
    """By the lowest of all bounds it fitted: ε = 0.69 and 0.28 of 1."""
    with simulated(tmp_path, delta=1e-5, certificate=certificate) as s:
        s.where("age > 50").count(epsilon=0.69, law="gaussian")
        assert s.remaining == pytest.approx(0.31, abs=1e-3)
        with pytest.raises(BudgetExceeded, match=r"ε = 0\.69\d* is spent, 0\.3\d* left"):
            s.where("age > 50").count(epsilon=0.28, law="laplace")
        assert s.remaining == pytest.approx(0.31, abs=1e-3)
        s.where("age > 50").count(epsilon=0.25, law="gaussian")
