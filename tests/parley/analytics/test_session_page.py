"""A session's page: every answer, and the budget as it went."""

import numpy as np
import pytest

import parley
from parley.client.data.schema import Schema
from parley.client.queries.base import QueryError

WARD, OTHER = "ward", "B"
SCHEMA = Schema.from_toml(
    f"""
[columns]
age = {{ kind = "numeric", range = [0, 100] }}
"{WARD}" = {{ kind = "categorical", categories = ["A & E", "{OTHER}"] }}
sick = {{ kind = "label", positive = "yes", negative = "no" }}
"""
)


def party(place, count=300):
    rng = np.random.default_rng(place)
    return {
        "age": rng.uniform(0, 100, count),
        WARD: rng.choice(["A & E", OTHER], count),
        "sick": rng.choice(["yes", "no"], count),
    }


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A session's answers, those that it has when it goes on, and its page."""
    folder = tmp_path_factory.mktemp("page") / "session"
    data = [party(place) for place in range(4)]
    with parley.Session(data, schema=SCHEMA, epsilon=2.0, delta=1e-6, out=folder) as s:
        answers = [s.where("age > 60").count(epsilon=0.25)]
        with s.batch(epsilon=0.5) as b:
            later = [b.histogram("age", bins=5), b.group_by(WARD).mean("age")]
        answers += [each.answer for each in later]
        answers += [s.histogram("age", bins=300, law="gaussian", epsilon=0.25)]
        (cell, _, _) = s.partition(WARD, epsilon=0.2)
        answers += [cell.mean("age", epsilon=0.1)]
        page = s.report().read_text(encoding="utf-8")
    with parley.Session(data, resume=folder) as s:
        again = s.answers
    return answers, again, page


def test_every_answer_is_on_it_and_so_is_what_is_spent(told):
    answers, again, page = told
    assert "5 questions answered for ε\xa0=\xa01.84957" in page  # by Σρ: both kinds of noise
    for text in ("count where age &gt; 60", "histogram age", "left of the budget", "together"):
        assert text in page
    assert page.count('<svg class="plot"') == 4  # two histograms, a mean in groups, the budget
    # A session that goes on knows all of its answers, by its folder alone.
    assert [each.table["value"] == pytest.approx(new.table["value"], nan_ok=True)
            for each, new in zip(answers, again, strict=True)] == [True] * 5  # fmt: skip
    assert [str(each) for each in answers] == [str(each) for each in again]


def test_a_session_without_answers_has_a_page(tmp_path):
    with parley.Session(party(0), schema=SCHEMA, epsilon=1.0, out=tmp_path / "s") as s:
        assert "0 questions" in s.report().read_text(encoding="utf-8")
    with pytest.raises(QueryError, match="closed"):
        s.report()


def test_a_question_at_another_price_is_asked_anew_by_a_session_that_goes_on(tmp_path):
    with parley.Session(party(0), schema=SCHEMA, epsilon=2.0, out=tmp_path / "s") as s:
        first = s.where("age > 60").count(epsilon=0.5)
    with parley.Session(party(0), resume=tmp_path / "s") as s:
        other = s.where("age > 60").count(epsilon=0.25)
        assert (other.ledger.index, other.scale) == (2, 2 * first.scale)


def test_a_session_goes_on_with_its_own_records_alone(tmp_path):
    with parley.Session(party(0), schema=SCHEMA, epsilon=2.0, out=tmp_path / "s") as s:
        s.where("age > 60").count(epsilon=0.5)
    with pytest.raises(QueryError, match="records that the session began with"):
        parley.Session(party(1), resume=tmp_path / "s")
