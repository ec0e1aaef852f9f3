"""Every question that cannot be asked: what was expected, what came, and nothing charged."""

import math
import re

import numpy as np
import pytest

import parley
from parley import col
from parley.client.data.schema import Schema
from parley.client.queries.base import QueryError
from parley.client.queries.moments import Mean
from parley.privacy.calibration.noise_calibration import CalibrationError
from parley.privacy.ledger.ledger_errors import BudgetExceeded

NAMES = [f"w{k}" for k in range(8)]
CELLS = list("abcdefghij")
WIDE = "\n".join(f"{name} = {{ kind = 'categorical', categories = {CELLS} }}" for name in NAMES)
SCHEMA = Schema.from_toml(
    f"""
[columns]
age = {{ kind = "numeric", range = [0, 100] }}
share = {{ kind = "numeric", range = [0, 1] }}
part = {{ kind = "numeric", range = [0, 1] }}
sex = {{ kind = "categorical", categories = ["Female", "Male"], missing = "Male" }}
alone = {{ kind = "categorical", categories = ["here"], missing = "here" }}
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
    "alone": ["here"] * 50,
    "sick": ["yes"] * 50,
    **{name: ["a"] * 50 for name in NAMES},
}
E = {"epsilon": 0.1}
LAW = {"law": "exponential", **E}
BAD = [
    ("nearest is 'age'", lambda s: s.mean("agee", **E)),
    ("Expected a column of", lambda s: s.mean(3, **E)),
    ("a condition", lambda s: s.partition("sex", epsilon=0.1, where=3)),
    ("weight", lambda s: s.where("weight > 3").count(**E)),
    ("Femle", lambda s: s.where("sex == 'Femle'").count(**E)),
    ("kind ignore", lambda s: s.histogram("note", **E)),
    ("Expected", lambda s: s.where("sex > 3").count(**E)),
    ("Expected", lambda s: s.where("age > 'x'").count(**E)),
    ("Expected", lambda s: s.where("age > share").count(**E)),
    ("Expected", lambda s: s.where(col.age > col.share).count(**E)),
    ("Expected", lambda s: s.where("abs(age) > 3").count(**E)),
    ("Expected", lambda s: s.where("(lambda: age)() > 3").count(**E)),
    ("Expected", lambda s: s.where("age[0] > 3").count(**E)),
    ("Expected a condition", lambda s: s.where(True).count(**E)),
    ("a column of numbers", lambda s: s.sum("sex", **E)),
    ("a column of numbers", lambda s: s.mean("sick", **E)),
    ("a column of numbers", lambda s: s.variance("sex", **E)),
    ("numbers", lambda s: s.median("sex", **E)),
    ("a column of categories", lambda s: s.group_by("age").count(**E)),
    ("not grouped by", lambda s: s.group_by("sex").histogram("sex", **E)),
    ("once each", lambda s: s.group_by("sex", "sex").count(**E)),
    ("quantiles in", lambda s: s.quantiles("age", [0.5, 1.5], **E)),
    ("quantiles in", lambda s: s.quantiles("age", [-0.1], **E)),
    ("quantiles in", lambda s: s.quantiles("age", [math.nan], **E)),
    ("Expected", lambda s: s.quantiles("age", [], **E)),
    ("Expected bins", lambda s: s.histogram("age", **E)),
    ("bins", lambda s: s.histogram("age", bins=-1, **E)),
    ("bins", lambda s: s.histogram("age", bins=True, **E)),
    ("bins", lambda s: s.histogram("age", bins=10**8, **E)),
    ("no bins", lambda s: s.histogram("sex", bins=3, **E)),
    ("increasing", lambda s: s.histogram("age", edges=[0, 50, 20], **E)),
    ("increasing", lambda s: s.histogram("age", edges=[0, math.nan, 3], **E)),
    ("within", lambda s: s.histogram("age", edges=[0, 50, 200], **E)),
    ("Expected", lambda s: s.histogram("age", edges=[5], **E)),
    ("Expected epsilon", lambda s: s.mean("age")),
    *[
        ("Expected epsilon", lambda s, bad=bad: s.mean("age", epsilon=bad))
        for bad in (0.0, -1.0, math.nan, math.inf, True, "0.1")
    ],
    ("0 is spent|ε = 1", lambda s: s.mean("age", epsilon=1.5)),
    ("delta > 0", lambda s: s.mean("age", law="gaussian", **E)),
    ("Expected law", lambda s: s.mean("age", law="cauchy", **E)),
    ("a share, which is for batches", lambda s: s.mean("age", share=2, **E)),
    ("delta", lambda s: s.mean("age", delta=1, **E)),
    ("at least one query", lambda s: s.batch(epsilon=0.1).__exit__(None, None, None)),
    ("a share > 0", lambda s: s.batch(epsilon=0.1).mean("age", share=-1.0)),
    ("Expected only a share", lambda s: s.batch(epsilon=0.1).mean("age", epsilon=0.1)),
    ("is public", lambda s: s.count(**E)),
    ("cells", lambda s: s.group_by(*NAMES).count(**E)),
    ("Expected", lambda s: _uneven(s.batch(epsilon=0.1))),
    ("2 to 1024 distinct", lambda s: s.choose_best(["share"], **E)),
    (r"in \[0, 1\]", lambda s: s.choose_best(["share", "age"], **E)),
    ("Expected", lambda s: s.choose("age", **E)),
    ("Expected", lambda s: s.choose("alone", **E)),
    ("Expected", lambda s: s.kmeans(["age"], 5, grid=4, **E)),
    ("Expected", lambda s: s.kmeans(["age"], 0, **E)),
    ("a list of column names", lambda s: s.kmeans("age", 2, **E)),
    ("numbers", lambda s: s.kmeans(["sex"], 2, **E)),
    ("Expected", lambda s: s.marginals(["sex"], ways=2, **E)),
    ("Expected", lambda s: s.marginals(["sex", "sick"], ways=0, **E)),
    ("Expected", lambda s: s.marginals(["sex", "sex"], **E)),
    ("not available", lambda s: s.min("age", **E)),
    ("not available", lambda s: s.max("age")),
    ("Expected cells", lambda s: s.partition("sex", cells={"Femle": 0.1})),
    ("got neither", lambda s: s.partition("sex")),
    ("got both", lambda s: s.partition("sex", epsilon=0.1, cells={"Male": 0.1})),
    ("at least one cell", lambda s: s.partition("sex", cells={})),
    ("epsilon, a number", lambda s: s.partition("sex", cells={"Male": math.nan})),
    ("epsilon, a number", lambda s: s.partition("sex", epsilon=-1)),
    ("got ε = 3", lambda s: s.partition("sex", epsilon=3.0)),
    ("Expected", lambda s: s.partition("age", epsilon=0.1)),
    ("Expected", lambda s: s.median("age", step=500.0, **E)),
    ("Expected", lambda s: s.median("age", step=1e-9, **E)),
    ("at least one cluster", lambda s: s.lloyd(["age"], clusters=0, **E)),
    ("coordinates", lambda s: s.lloyd(["age"], clusters=65, **E)),
    ("at least one round", lambda s: s.lloyd(["age"], clusters=2, rounds=0, **E)),
    ("at least one round", lambda s: s.lloyd(["age"], clusters=2, rounds=True, **E)),
    ("Expected noise", lambda s: s.lloyd(["age"], clusters=2, noise="none", **E)),
    ("epsilon, a number", lambda s: s.lloyd(["age"], clusters=2, epsilon=0.0)),
    ("at most 1", lambda s: s.lloyd(["age"], clusters=2, epsilon=1.5)),
    ("at most 1", lambda s: s.lloyd(["age"], clusters=2, noise="as-printed", epsilon=0.6)),
    ("finite coordinates", lambda s: s.lloyd(["age"], centres=[[0.1, 0.2]], **E)),
    ("finite coordinates", lambda s: s.lloyd(["age"], centres=[[math.nan]], **E)),
    ("numbers", lambda s: s.lloyd(["sex"], clusters=2, **E)),
    ("one quantile", lambda s: s.quantiles("age", [0.1, 0.9], **LAW)),
    ("one query of candidates", lambda s: s.where("age > 3").count(**LAW)),
    ("without groups", lambda s: s.group_by("sick").median("age", **LAW)),
    ("Expected", lambda s: s.choose_best(["share", "sick"], **LAW)),
    ("of all records", lambda s: s.where("age > 3").response("sick", **E)),
    ("without groups", lambda s: s.group_by("sex").response("sick", **E)),
    ("Expected", lambda s: s.response("age", **E)),
    ("Expected", lambda s: s.response("sick", law="laplace", **E)),
    ("Expected", lambda s: s.where("age > 3").count(law="randomised-response", **E)),
    (
        r"Histogram\.edges to have at most 64 items, got 65\. Use fewer values, or",
        lambda s: s.histogram("age", edges=range(65), epsilon=0.1),
    ),
    (
        r"Quantiles\.quantiles to have at most 64 items, got 70\. Use fewer values, or",
        lambda s: s.quantiles("age", [k / 71 for k in range(1, 71)], epsilon=0.1),
    ),
]


def _uneven(batch):
    """N times the largest is beyond every ring."""
    with batch as b:
        b.sum("age", share=1e-13)
        b.mean("share", share=1.0)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    out = tmp_path_factory.mktemp("bad") / "s"
    with parley.Session([ROWS, ROWS], schema=SCHEMA, epsilon=1.0, out=out) as s:
        yield s


@pytest.mark.parametrize(("said", "ask"), BAD)
def test_it_is_refused_in_words_and_nothing_is_charged(session, said, ask):
    with pytest.raises((ValueError, BudgetExceeded), match=f"(?i){said}"):
        ask(session)
    assert session.remaining == 1.0
    assert session.answers == ()


def test_scores_that_a_server_would_have_to_see_do_not_go_with_hidden_sums(tmp_path):
    given = {"schema": SCHEMA, "epsilon": 1.0, "noise_point": "share", "out": tmp_path / "s"}
    # A seed, because noise may choose the smaller sum.
    with parley.Session([ROWS, ROWS], seed=1, **given) as s:
        for ask in (
            lambda law: s.choose_best(["share", "part"], law=law, epsilon=0.5),
            lambda law: s.median("age", law=law, epsilon=0.5),
        ):
            for law in ("exponential", "permute-and-flip"):
                with pytest.raises(ValueError, match="would see the exact scores"):
                    ask(law)
        assert s.remaining == 1.0
        assert s.choose_best(["share", "part"], epsilon=0.5).table["winner"] == ["share"]


def test_a_mean_that_divides_by_a_private_number_is_refused(tmp_path):
    given = {"schema": SCHEMA, "epsilon": 1.0, "neighbouring": "add-or-remove-one"}
    with parley.Session([ROWS], out=tmp_path / "s", **given) as s:
        with pytest.raises(ValueError, match="epsilon"):
            s.ask(Mean(column="age", counted=False))
        assert s.mean("age", epsilon=0.5).records is None  # it counts, whatever was asked
        assert s.remaining == 0.5


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"epsilon": 0.0}, "epsilon: Expected greater than 0"),
        ({"epsilon": True}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 1.0}, "less than 1"),
        ({"neighbouring": "swap"}, "replace-one"),
        ({"parties": 0}, "parties"),
        ({"parties": 3}, "Expected 3 files or frames, got 2"),
        ({"colour": 1}, "Expected one of the settings"),
        ({"min_survivors": 3}, "min_survivors from 1 to 2"),
        ({"corrupt": 2}, "corrupt from 0 to 1"),
        ({"deployment": "d"}, "either data or a deployment"),
    ],
)
def test_settings_that_are_none_leave_no_folder(tmp_path, settings, said):
    given = {"schema": SCHEMA, "epsilon": 1.0, "out": tmp_path / "s", **settings}
    with pytest.raises(ValueError, match=said):
        parley.Session([ROWS, ROWS], **given)
    assert not (tmp_path / "s").exists()


def test_a_batch_that_was_left_and_a_session_that_is_closed_ask_nothing(tmp_path):
    with parley.Session([ROWS], schema=SCHEMA, epsilon=1.0, out=tmp_path / "s") as s:
        batch = s.batch(epsilon=0.1)
        with pytest.raises(KeyError), batch as b:  # noqa: PT012
            b.mean("age")
            _ = {}["nothing"]
        with pytest.raises(ValueError, match="got one that has ended"):
            batch.mean("age")
        assert s.remaining == 1.0
    for ask in (
        lambda: s.mean("age", epsilon=0.1),
        lambda: s.batch(epsilon=0.1),
        lambda: s.where("age > 1").count(epsilon=0.1),
        lambda: s.partition("sex", epsilon=0.1),
        lambda: s.remaining,
    ):
        with pytest.raises(ValueError, match="got a closed one"):
            ask()


@pytest.mark.parametrize("epsilon", [1e-13, 1e9])
@pytest.mark.parametrize("noise_point", ["server", "share"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda s, e: s.where("age > 20").count(epsilon=e),
        lambda s, e: s.quantiles("age", [0.5], step=1, epsilon=e),
        lambda s, e: s.find_quantile("age", 0.5, epsilon=e),
    ],
)
def test_an_epsilon_whose_noise_no_sampler_draws_is_refused_before_a_charge(
    ask, noise_point, epsilon
):
    total = max(epsilon, 1e3)
    with parley.Session(
        ROWS, schema=SCHEMA, epsilon=total, parties=2, noise_point=noise_point, law="laplace"
    ) as s:
        with pytest.raises(CalibrationError, match="Use an epsilon from 1e-06 to 1000"):
            ask(s, epsilon)
        assert s.remaining == total
        for fits in (1e-6, 1e3 - 1):  # as the message says
            ask(s, fits)


def test_a_delta_that_may_reveal_a_record_is_refused_with_one_that_works(tmp_path):
    facts = {"schema": SCHEMA, "epsilon": 1, "parties": 2}
    with pytest.raises(QueryError, match=r"Expected delta well below 1/50, .* got 0\.5") as refused:
        parley.Session(ROWS, delta=0.5, out=tmp_path / "s", **facts)
    assert not (tmp_path / "s").exists()
    works = float(re.search(r"delta=(\S+) is small enough", str(refused.value))[1])
    with parley.Session(ROWS, delta=works, **facts) as s:
        s.mean("age", epsilon=0.5)
