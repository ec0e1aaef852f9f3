"""The budget agent: check, then deduct, in exact rational arithmetic."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.privacy.accounting.pure_budget import OverBudgetError, PureBudget


def test_the_specified_questions():
    budget = PureBudget.of("1").spend("0.01").spend("0.10")
    with pytest.raises(OverBudgetError, match=r"Expected epsilon ≤ 0\.89 left, got 1\."):
        budget.spend("1.00")
    assert budget.left() == Fraction(89, 100)
    assert budget.spend("0.89").left() == 0


def test_floats_stand_for_their_decimals():
    budget = PureBudget.of(1.0)
    for _ in range(10):
        budget = budget.spend(0.1)
    assert budget.left() == 0
    assert PureBudget.of(Decimal("0.3")).spend(0.1).spend(0.2).left() == 0


def test_a_partition_costs_its_greatest_part():
    budget = PureBudget.of(1).spend("0.5", part="a").spend("0.7", part="b").spend("0.1")
    assert budget.left("a") == Fraction(4, 10)
    assert budget.left("b") == budget.left() == Fraction(2, 10)
    assert budget.left("c") == Fraction(9, 10)
    with pytest.raises(OverBudgetError):
        budget.spend("0.3", part="b")
    assert budget.spend("0.2", part="a").left() == Fraction(2, 10)


@given(st.lists(st.decimals("0.001", "0.5", places=3), max_size=20))
def test_never_overspent_and_nothing_lost(costs):
    budget, accepted = PureBudget.of(1), Fraction(0)
    for cost in costs:
        try:
            budget = budget.spend(cost)
        except OverBudgetError:
            assert accepted + Fraction(cost) > 1
        else:
            accepted += Fraction(cost)
    assert budget.left() == 1 - accepted >= 0


@pytest.mark.parametrize("bad", [0, -1, "x", float("nan"), float("inf"), "1/0", None])
def test_bad_amounts_are_refused(bad):
    with pytest.raises(ValueError, match=r"^Expected "):
        PureBudget.of(bad)
    with pytest.raises(ValueError, match=r"^Expected "):
        PureBudget.of(1).spend(bad)
