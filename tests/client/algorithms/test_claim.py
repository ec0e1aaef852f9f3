"""What follows from the set that a claim names: Δ in both norms, and what a grid adds to it."""

import math
from dataclasses import replace

import pytest

from parley.client.algorithms.base import Claim
from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.privacy.kernel.sets import Ball

CLAIM = Claim(
    dimension=9,
    features=9,
    bound=1.0,
    unit=Unit.RECORD,
    neighbouring=Neighbouring.REPLACE_ONE,
    lies_in=Ball(dimension=9, squared=25),
    grid_bits=3,
)


def test_a_set_s_diameter_or_radius_is_the_sensitivity_in_the_values_unit():
    assert (CLAIM.sensitivity, CLAIM.sensitivity_l1) == (10 / 8, 30 / 8)
    with pytest.raises(ValueError, match="by the set"):
        replace(CLAIM, neighbouring=Neighbouring.ADD_OR_REMOVE_ONE)  # and Δ as it was
    less = {"sensitivity": 0.0, "sensitivity_l1": None}
    removed = replace(CLAIM, neighbouring=Neighbouring.ADD_OR_REMOVE_ONE, **less)
    assert (removed.sensitivity, removed.sensitivity_l1) == (5 / 8, 15 / 8)
    assert CLAIM.covered == CLAIM.sensitivity


def test_rounding_adds_to_it_on_a_coarser_grid_alone():
    assert CLAIM.on_grid(1.25, 2.0**3) == 10
    assert CLAIM.on_grid(1.25, 2.0**2) == 5 + math.sqrt(9)
