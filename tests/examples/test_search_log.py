"""The search log as printed: its own figures, and why they are no ε."""

import math
import runpy
from pathlib import Path

import pytest

EXAMPLE = runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples/search_log.py"))
CLICKS, costs, most = EXAMPLE["CLICKS"], EXAMPLE["costs"], EXAMPLE["most"]


@pytest.mark.parametrize(
    ("limit", "clicks", "relaxed"),
    [(math.log(2), 1, 1.25658), (2.0, 3, 3.62571), (5.0, 8, 9.06429)],
)
def test_the_most_clicks_that_the_printed_rule_allows(limit, clicks, relaxed):
    found = most(CLICKS, limit)
    assert round(found.sum()) == clicks
    assert found[0] == found[3] == 0  # one user has all of them
    assert max(costs(CLICKS, found)) <= limit * (1 + 1e-9)
    assert most(CLICKS, limit, whole=False).sum() == pytest.approx(relaxed, abs=1e-5)


def test_one_user_fewer_makes_an_output_impossible_that_was_allowed():
    book = (0, 1, 0, 0, 0)
    assert max(costs(CLICKS, book)) < 1.5
    assert max(costs(CLICKS[1:], book)) == math.inf
    assert most(CLICKS[1:], 100.0)[1] == 0


def test_the_example_says_it_all():
    text = EXAMPLE["main"](seed=1)
    for said in ("17.3245", "13.8691", "5.30241", "δ ≥ 1 − 3e-08", "3.62571", "∞", "charged ε = 1"):
        assert said in text, said
