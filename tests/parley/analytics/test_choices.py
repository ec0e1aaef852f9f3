"""One winner that a trusted server chooses: what it is, what it costs, who is never asked so."""

import json

import numpy as np
import pytest

import parley
from parley.client.data.schema import Schema
from parley.privacy.accounting.privacy_events import BoundedRange, Pure

SCHEMA = Schema.from_toml(
    """
[columns]
age = { kind = "numeric", range = [0, 100] }
ridge = { kind = "numeric", range = [0, 1] }
forest = { kind = "numeric", range = [0, 1] }
far = { kind = "numeric", range = [0, 2] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)


def party(place, count=500):
    rng = np.random.default_rng(place)
    return {
        "age": rng.uniform(0, 100, count),
        "ridge": rng.random(count) * 0.9,
        "forest": rng.random(count),
        "far": rng.random(count),
        "sick": rng.choice(["yes", "no"], count),
    }


DATA = [party(place) for place in range(4)]
AGES = np.sort(np.concatenate([each["age"] for each in DATA]))


@pytest.fixture
def session(tmp_path):
    with parley.Session(DATA, schema=SCHEMA, epsilon=20.0, seed=3, out=tmp_path / "s") as s:
        yield s


@pytest.mark.parametrize("law", ["exponential", "permute-and-flip"])
def test_a_trusted_server_shows_the_winner_alone(session, law):
    median = session.median("age", step=0.25, epsilon=1.0, law=law)
    rank = np.searchsorted(AGES, median.table["value"][0])
    assert abs(rank - 1000) < 40  # steps of 5 ranks, and 2·ln(401)/ε of loss
    best = session.choose_best(["ridge", "forest"], least=True, epsilon=1.0, law=law)
    assert best.table["winner"] == ["ridge"]
    assert "ridge" in str(best)
    line = json.loads((session.folder / "answers.jsonl").read_text().splitlines()[-1])
    assert line["noisy"] == [[0]]  # no score leaves the server, nor is one kept
    rho = {"exponential": 0.125, "permute-and-flip": None}[law]
    event = Pure(epsilon=1.0) if rho is None else BoundedRange(epsilon=1.0, rho=rho)
    assert best.ledger.event == event
    assert session.remaining == 18.0
    assert [each.table["value"][0] for each in session.answers[:1]] == list(median.table["value"])
    assert "forest" not in session.report().read_text().split("ridge", 2)[0]


def test_the_same_question_with_noise_needs_no_trust(session):
    best = session.choose_best(["ridge", "forest"], epsilon=1.0)
    assert (best.table["winner"], best.law) == (["forest"], "laplace")
    assert best.table["value"][0] == pytest.approx(1000, abs=40)


def test_records_answer_for_themselves_by_randomised_response(session):
    answer = session.response("sick", epsilon=2.0)
    truth = [sum((each["sick"] == text).sum() for each in DATA) for text in ("yes", "no")]
    table, (k, odds) = answer.table, (3, np.exp(2.0))
    half = np.asarray(table["high"]) - np.asarray(table["value"])
    p, q, n = odds / (odds + k - 1), 1 / (odds + k - 1), 2000
    for at, true in enumerate([*truth, 0]):
        # Chernoff is far below 10^-6 at six deviations, with this seed or any.
        deviation = np.sqrt(true * p * (1 - p) + (n - true) * q * (1 - q)) / (p - q)
        assert abs(table["value"][at] - true) < 6 * deviation
        assert half[at] == pytest.approx(1.96 * deviation, rel=0.2)
    assert (answer.law, answer.ledger.event) == ("randomised-response", Pure(epsilon=2.0))
    reports = json.loads((session.folder / "answers.jsonl").read_text())["noisy"][0]
    assert sum(reports) == n
    assert np.abs(np.array(reports) - [*truth, 0]).max() > 50  # what they say, not what they have
    # Asked again it has fresh coins, and is paid for again.
    again = session.response("sick", epsilon=2.0)
    assert list(again.table["value"]) != list(table["value"])
    assert session.remaining == 16.0
    assert [str(each) for each in session.answers] == [str(answer), str(again)]


def test_masked_reports_are_the_ideal_ones(tmp_path):
    def reports(masked, **settings):
        out = tmp_path / f"{masked}{len(settings)}"
        given = {"schema": SCHEMA, "epsilon": 2.0, "seed": 3, "masked": masked, **settings}
        with parley.Session(DATA, out=out, **given) as s:
            s.response("sick", epsilon=2.0)
        return json.loads((out / "answers.jsonl").read_text())["noisy"]

    assert reports(False) == reports(True) == reports(False, noise_point="share")
