"""The search log: the printed method's own figures, why they are no ε, and counts that have one."""

from __future__ import annotations

import math
import runpy
from pathlib import Path

import numpy as np
import pytest

from parley.privacy.sampling.stream import NoiseStream
from parley.simulations.search_log import COURSE, SearchLog, synthetic_log

PUBLIC = ("book", "google", "car price", "weather")


def test_the_courses_output_costs_what_no_limit_allows():
    costs = COURSE.costs((0, 3, 20, 0, 4))
    assert costs == pytest.approx([13.8690, 5.30240, 17.3245], abs=1e-4)
    epsilon, delta = COURSE.needed((0, 3, 20, 0, 4))
    assert epsilon == max(costs)
    assert 1 - delta == pytest.approx(3e-8, rel=0.01)


@pytest.mark.parametrize(
    ("limit", "most", "relaxed"), [(math.log(2), 1, 1.25658), (2.0, 3, 3.62571), (5.0, 8, 9.06429)]
)
def test_the_most_clicks_that_the_printed_rule_allows(limit, most, relaxed):
    found = COURSE.most(limit)
    assert sum(found) == most
    assert found[0] == found[3] == 0  # one user has all of them
    assert max(COURSE.costs(found)) <= limit
    assert COURSE.most_relaxed(limit) == pytest.approx(relaxed, abs=1e-5)
    known = {2.0: (0, 0, 3, 0, 0), 5.0: (0, 1, 7, 0, 0)}.get(limit, found)
    assert max(COURSE.costs(known)) <= limit  # of several optima


def test_one_user_fewer_makes_an_output_impossible_that_was_allowed():
    assert max(COURSE.costs((0, 1, 0, 0, 0))) < 1.5
    assert max(COURSE.without("081").costs((0, 1, 0, 0, 0))) == math.inf
    assert COURSE.without("081").most(100.0)[1] == 0


def test_the_printed_draws_have_the_counts_and_the_users_shares():
    drawn = COURSE.as_printed((0, 0, 39_000, 0, 0), NoiseStream.from_seed(1)).clicks
    assert drawn.sum() == drawn[:, 2].sum() == 39_000
    np.testing.assert_allclose(drawn[:, 2] / 1000, [15, 7, 17], rtol=0.04)


def test_a_user_moves_the_counts_by_its_limit_at_most():
    # The same noise on both: the difference is that of the counts.
    both = [
        synthetic_log(log, pairs=PUBLIC, clicks=6, epsilon=1.0, stream=NoiseStream.from_seed(4))[1]
        for log in (COURSE, COURSE.without("081"))
    ]
    moved = [both[0][name] - both[1][name] for name in PUBLIC]
    assert moved == [3, 3, 0, 0]  # 18 clicks of which the first 6 count


def test_of_a_user_so_many_pairs_count_as_is_said():
    def counts(most):
        given = {"pairs": PUBLIC, "clicks": 30, "epsilon": 1e4, "most_pairs": most}
        found = synthetic_log(COURSE, **given, stream=NoiseStream.from_seed(4))[1]
        return [found[name] for name in PUBLIC]

    assert counts(None) == [4, 39, 7, 0]
    assert counts(2) == [4, 39, 2, 0]  # user 083 has three of them
    assert counts(1) == [4, 7, 0, 0]
    with pytest.raises(ValueError, match="at least one pair a user, got 0"):
        counts(0)


def test_the_noise_on_the_counts_has_the_scale_and_no_other():
    empty = SearchLog(users=(), pairs=(), clicks=np.zeros((0, 0), dtype=np.int64))
    names = tuple(str(k) for k in range(4000))
    _, counts = synthetic_log(
        empty, pairs=names, clicks=4, epsilon=1.0, stream=NoiseStream.from_seed(2)
    )
    deviation = math.sqrt(31.8339)  # discrete Laplace of scale 4
    found = np.std(list(counts.values()))
    assert abs(found / deviation - 1) < 0.1
    assert abs(found / (deviation * 1.5) - 1) > 0.2
    assert abs(found / (deviation / 1.5) - 1) > 0.2


def test_synthetic_users_have_the_noisy_counts_and_no_more_clicks_than_allowed():
    made, counts = synthetic_log(
        COURSE, pairs=PUBLIC, clicks=5, epsilon=50.0, stream=NoiseStream.from_seed(3)
    )
    assert made.pairs == PUBLIC
    assert (made.clicks.sum(axis=1) <= 5).all()
    assert made.clicks.sum() == sum(max(count, 0) for count in counts.values())
    assert not set(made.users) & set(COURSE.users)


@pytest.mark.parametrize(
    "change",
    [{"pairs": ()}, {"pairs": ("a", "a")}, {"clicks": 0}, {"epsilon": 0.0}, {"epsilon": math.nan}],
)
def test_what_has_no_meaning_is_refused(change):
    settings = {"pairs": PUBLIC, "clicks": 5, "epsilon": 1.0, **change}
    with pytest.raises(ValueError, match="Expected"):
        synthetic_log(COURSE, **settings, stream=NoiseStream.from_seed(1))


def test_a_log_whose_shape_is_no_users_by_pairs_is_refused():
    with pytest.raises(ValueError, match="Expected counts"):
        SearchLog(users=("a",), pairs=("b",), clicks=np.zeros((2, 1), dtype=np.int64))
    with pytest.raises(ValueError, match="Expected clicks"):
        COURSE.without("082").as_printed((0, 0, 0, 1, 0), NoiseStream.from_seed(1))


def test_the_example_says_it_all():
    example = Path(__file__).resolve().parents[2] / "examples/search_log.py"
    text = runpy.run_path(str(example))["main"](seed=1)
    for said in ("17.3245", "13.8691", "5.30241", "δ ≥ 1 − 3e-08", "3.62571", "∞", "with ε = 1"):
        assert said.lower() in text.lower(), said
