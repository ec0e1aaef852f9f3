"""What people read of a cost is never less than it; of what is left, never more."""

from __future__ import annotations

import ast
import re
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parley.privacy.accounting.rounding import format_exact, format_rounded_down, format_rounded_up
from parley.server.statements.number_format import format_cost, format_epsilon

AMOUNTS = st.floats(min_value=1e-12, max_value=1e9)
DUST = Decimal("1e-12")


@given(value=AMOUNTS, digits=st.integers(3, 9))
@example(value=4.144251, digits=4)
@example(value=0.1 + 0.2, digits=6)
def test_a_cost_is_rounded_up_and_a_rest_down_by_less_than_one_in_the_last_digit(
    value: float, digits: int
) -> None:
    exact = Decimal(repr(value))
    up, down = (
        Decimal(format_rounded_up(value, digits)),
        Decimal(format_rounded_down(value, digits)),
    )
    assert up >= exact * (1 - DUST)
    assert down <= exact * (1 + DUST)
    step = Decimal(10) ** (exact.adjusted() - digits + 1)
    assert up - exact < step * 10
    assert exact - down < step * 10
    assert len(up.normalize().as_tuple().digits) <= digits


@given(value=AMOUNTS)
def test_what_a_person_wrote_is_shown_as_it_was_written(value: float) -> None:
    assert float(format_exact(value)) == value


@given(value=st.floats(min_value=1e-3, max_value=1e3))
def test_terminal_and_report_never_show_less_than_was_charged(value: float) -> None:
    assert Decimal(format_epsilon(value)) >= Decimal(repr(value)) * (1 - DUST)


@pytest.mark.parametrize(
    ("value", "shown"), [(1.2341e-5, "1.24 × 10⁻⁵"), (1e-5, "10⁻⁵"), (7.385, "7.39"), (None, "–")]
)
def test_a_report_rounds_delta_and_rho_up_too(value: float | None, shown: str) -> None:
    assert format_cost(value) == shown


def test_what_has_no_bound_is_shown_as_infinite() -> None:
    assert format_rounded_up(float("inf")) == format_rounded_down(float("inf")) == "∞"


ROOT = Path(__file__).parents[3]
COSTS = re.compile(r"epsilon|delta|\brho\b|budget|slack", re.IGNORECASE)


def formatted_costs(source: str) -> list[str]:
    """Costs that a program text formats by a rule of rounding to nearest."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FormattedValue)
        and node.format_spec is not None
        and ast.unparse(node.format_spec).rstrip("'\"")[-1:] in "efgn%"
        and COSTS.search(ast.unparse(node.value))
    ]


def test_no_cost_is_written_by_any_other_rule() -> None:
    """A new message that formats ε, δ, ρ or what is left by itself is found here."""
    assert formatted_costs('f"{run.epsilon:.4g} {steps:.3g} {as_written(delta)}"')
    found = {
        str(path.relative_to(ROOT)): formatted_costs(path.read_text(encoding="utf-8"))
        for package in ("privacy", "secure_agg", "client", "server", "simulations", "parley")
        for path in (ROOT / package).rglob("*.py")
    }
    assert {path: costs for path, costs in found.items() if costs} == {}
