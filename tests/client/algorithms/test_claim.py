"""What follows from the set that a claim names: Δ in both norms, and what a grid adds to it."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from parley.client.algorithms.base import Claim
from parley.client.models.bounded import real_ball
from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.privacy.accounting.rounding import exact
from parley.privacy.kernel.sets import Set

CLAIM = Claim(
    dimension=9,
    features=9,
    bound=1.0,
    unit=Unit.RECORD,
    neighbouring=Neighbouring.REPLACE_ONE,
    lies_in=Set.ball(9, squared=25),
    grid_bits=3,
)


def test_a_set_s_diameter_or_radius_is_the_sensitivity_in_the_values_unit():
    assert (CLAIM.sensitivity, CLAIM.sensitivity_l1) == (10 / 8, 30 / 8)
    removed = replace(CLAIM, neighbouring=Neighbouring.ADD_OR_REMOVE_ONE)
    assert (removed.sensitivity, removed.sensitivity_l1) == (5 / 8, 15 / 8)
    assert CLAIM.covered == CLAIM.sensitivity


@given(norm=st.floats(1e-6, 1e6))
def test_a_ball_of_real_vectors_has_their_diameter_and_no_bound_in_l1(norm):
    ball, bits = real_ball(9, exact(norm))
    claim = replace(CLAIM, lies_in=ball, grid_bits=bits, whole=False)
    assert 2 * norm <= claim.sensitivity <= 2 * norm * (1 + 2.0**-52)
    assert claim.sensitivity_l1 is None
    assert claim.on_grid(1.0, 2.0**bits) == 2.0**bits + 3  # rounding comes on top, on any grid


def test_rounding_adds_to_it_on_a_coarser_grid_alone():
    assert CLAIM.on_grid(1.25, 2.0**3) == 10
    assert CLAIM.on_grid(1.25, 2.0**2) == 5 + math.sqrt(9)
