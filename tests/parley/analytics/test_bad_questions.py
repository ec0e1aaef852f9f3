"""Every question that cannot be asked: what was expected, what came, and nothing charged."""

import math

import numpy as np
import pytest

import parley
from parley import col
from parley.client.data.schema import Schema
from parley.privacy.ledger.errors import BudgetExceeded

WIDE = "\n".join(
    f'w{k} = {{ kind = "categorical", categories = [{", ".join(f"{c!r}" for c in "abcdefghij")}] }}'
    for k in range(8)
)
SCHEMA = Schema.from_toml(
    f"""
[columns]
age = {{ kind = "numeric", range = [0, 100] }}
share = {{ kind = "numeric", range = [0, 1] }}
part = {{ kind = "numeric", range = [0, 1] }}
sex = {{ kind = "categorical", categories = ["Female", "Male"], missing = "Male" }}
note = {{ kind = "ignore" }}
sick = {{ kind = "label", positive = "yes", negative = "no" }}
{WIDE}
"""
)
ROWS = {
    "age": np.arange(50.0),
    "share": np.full(50, 0.5),
    "part": np.full(50, 0.25),
    "sex": ["Male"] * 50,
    "sick": ["yes"] * 50,
    **{f"w{k}": ["a"] * 50 for k in range(8)},
}
NAMES = [f"w{k}" for k in range(8)]
E = {"epsilon": 0.1}
REPLACE = {
    "an unknown column": lambda s: s.mean("agee", **E),
    "a column that is no name": lambda s: s.mean(3, **E),
    "a partition of a condition that is none": lambda s: s.partition("sex", epsilon=0.1, where=3),
    "an unknown column in where": lambda s: s.where("weight > 3").count(**E),
    "an unknown category": lambda s: s.where("sex == 'Femle'").count(**E),
    "a column of kind ignore": lambda s: s.histogram("note", **E),
    "a text compared with a number": lambda s: s.where("sex > 3").count(**E),
    "a number compared with a text": lambda s: s.where("age > 'x'").count(**E),
    "a column with a column": lambda s: s.where("age > share").count(**E),
    "columns with each other": lambda s: s.where(col.age > col.share).count(**E),
    "a call": lambda s: s.where("abs(age) > 3").count(**E),
    "a lambda": lambda s: s.where("(lambda: age)() > 3").count(**E),
    "a subscript": lambda s: s.where("age[0] > 3").count(**E),
    "a condition that is none": lambda s: s.where(True).count(**E),
    "the sum of categories": lambda s: s.sum("sex", **E),
    "the mean of a label": lambda s: s.mean("sick", **E),
    "groups of numbers": lambda s: s.group_by("age").count(**E),
    "q above 1": lambda s: s.quantiles("age", [0.5, 1.5], **E),
    "q below 0": lambda s: s.quantiles("age", [-0.1], **E),
    "q that is no number": lambda s: s.quantiles("age", [math.nan], **E),
    "no q": lambda s: s.quantiles("age", [], **E),
    "no bins": lambda s: s.histogram("age", bins=0, **E),
    "negative bins": lambda s: s.histogram("age", bins=-1, **E),
    "bins that are true": lambda s: s.histogram("age", bins=True, **E),
    "edges that fall": lambda s: s.histogram("age", edges=[0, 50, 20], **E),
    "edges outside the range": lambda s: s.histogram("age", edges=[0, 50, 200], **E),
    "one edge": lambda s: s.histogram("age", edges=[5], **E),
    "edges that are no numbers": lambda s: s.histogram("age", edges=[0, math.nan, 3], **E),
    "no epsilon": lambda s: s.mean("age"),
    "epsilon 0": lambda s: s.mean("age", epsilon=0.0),
    "a negative epsilon": lambda s: s.mean("age", epsilon=-1.0),
    "epsilon NaN": lambda s: s.mean("age", epsilon=math.nan),
    "epsilon infinite": lambda s: s.mean("age", epsilon=math.inf),
    "epsilon true": lambda s: s.mean("age", epsilon=True),
    "epsilon a text": lambda s: s.mean("age", epsilon="0.1"),
    "epsilon above what is left": lambda s: s.mean("age", epsilon=1.5),
    "Gaussian noise without delta": lambda s: s.mean("age", law="gaussian", **E),
    "an unknown law": lambda s: s.mean("age", law="cauchy", **E),
    "an empty batch": lambda s: s.batch(epsilon=0.1).__enter__().__exit__(None, None, None),
    "a batch of a negative share": lambda s: s.batch(epsilon=0.1).mean("age", share=-1.0),
    "a batch within a query's price": lambda s: s.batch(epsilon=0.1).mean("age", epsilon=0.1),
    "a count of all": lambda s: s.count(**E),
    "one group key twice": lambda s: s.group_by("sex", "sex").count(**E),
    "more cells than any vector has": lambda s: s.group_by(*NAMES).count(**E),
    "N times the largest beyond every ring": lambda s: _uneven(s.batch(epsilon=0.1)),
    "one candidate": lambda s: s.choose_best(["share"], **E),
    "scores outside [0, 1]": lambda s: s.choose_best(["share", "age"], **E),
    "candidates of numbers": lambda s: s.choose("age", **E),
    "more clusters than cells": lambda s: s.kmeans(["age"], 5, grid=4, **E),
    "no clusters": lambda s: s.kmeans(["age"], 0, **E),
    "no rounds": lambda s: s.lloyd(["age"], clusters=2, rounds=0, **E),
    "clusters of categories": lambda s: s.kmeans(["sex"], 2, **E),
    "more ways than columns": lambda s: s.marginals(["sex"], ways=2, **E),
    "no ways": lambda s: s.marginals(["sex", "sick"], ways=0, **E),
    "the least value": lambda s: s.min("age", **E),
    "the greatest value": lambda s: s.max("age", **E),
    "a cell that is none": lambda s: s.partition("sex", cells={"Femle": 0.1}),
    "a partition without a price": lambda s: s.partition("sex"),
    "a partition above what is left": lambda s: s.partition("sex", epsilon=3.0),
    "a step wider than the range": lambda s: s.median("age", step=500.0, **E),
    "a step that makes millions": lambda s: s.median("age", step=1e-9, **E),
    "hidden scores of several winners": lambda s: s.quantiles(
        "age", [0.1, 0.9], law="exponential", **E
    ),
}


def _uneven(batch):
    with batch as b:
        b.sum("age", share=1e-13)
        b.mean("share", share=1.0)


def _interrupted(batch):
    with batch as b:
        b.mean("age")
        raise InterruptedError


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    out = tmp_path_factory.mktemp("bad") / "s"
    with parley.Session([ROWS, ROWS], schema=SCHEMA, epsilon=1.0, out=out) as s:
        yield s


@pytest.mark.parametrize("name", REPLACE)
def test_it_is_refused_in_words_and_nothing_is_charged(session, name):
    with pytest.raises((ValueError, BudgetExceeded), match=r"(?i)expected|not offered|budget|left"):
        REPLACE[name](session)
    assert session.remaining == 1.0
    assert session.answers == ()


def test_a_mean_that_divides_by_a_private_number_is_refused(tmp_path):
    from parley.client.queries.mean import Mean

    given = {"schema": SCHEMA, "epsilon": 1.0, "neighbouring": "add-or-remove-one"}
    with parley.Session([ROWS], out=tmp_path / "s", **given) as s:
        with pytest.raises(ValueError, match="epsilon"):
            s.ask(Mean(column="age", counted=False))
        assert s.mean("age", epsilon=0.5).records is None  # it counts, whatever was asked
        assert s.remaining == 0.5


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"epsilon": 0.0}, "greater than 0"),
        ({"epsilon": True}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 1.0}, "less than 1"),
        ({"neighbouring": "swap"}, "replace-one"),
        ({"parties": 0}, "parties"),
        ({"colour": 1}, "Expected settings"),
        ({"min_survivors": 3}, "min_survivors"),
        ({"deployment": "d"}, "either data or a deployment"),
    ],
)
def test_settings_that_are_none_leave_no_folder(tmp_path, settings, said):
    given = {"schema": SCHEMA, "epsilon": 1.0, "out": tmp_path / "s", **settings}
    with pytest.raises(ValueError, match=said):
        parley.Session([ROWS, ROWS], **given)
    assert not (tmp_path / "s").exists()


def test_a_batch_that_was_left_by_an_error_and_a_session_that_is_closed_ask_nothing(tmp_path):
    with parley.Session([ROWS], schema=SCHEMA, epsilon=1.0, out=tmp_path / "s") as s:
        b = s.batch(epsilon=0.1)
        with pytest.raises(InterruptedError):
            _interrupted(b)
        with pytest.raises(ValueError, match="this one is over"):
            b.mean("age")
        assert s.remaining == 1.0
    with pytest.raises(ValueError, match="this one was closed"):
        s.mean("age", epsilon=0.1)
