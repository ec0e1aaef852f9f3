"""What an attacker finds at a rate of false alarms, and what a group costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.events import Gaussian, Pure
from parley.privacy.accounting.gaussian_curve import gaussian_delta
from parley.privacy.accounting.tradeoff import (
    curve_of,
    curve_power,
    group_approximate,
    power,
    spent_power,
)
from parley.privacy.accounting.tradeoff import gaussian_power as proved_power


def gaussian_power(alpha, *, mu):
    """Φ(Φ⁻¹(α) + μ) (Dong, Roth & Su 2022)."""
    return float(ndtr(ndtri(alpha) + mu))


def test_known_answers():
    assert [gaussian_power(0.05, mu=mu) for mu in (0.5, 1.0, 2.0)] == pytest.approx(
        [0.126135, 0.259511, 0.638760], abs=1e-6
    )
    assert power(0.05, epsilon=1.0) == pytest.approx(0.135914, abs=1e-6)
    assert power(0.5, epsilon=1.0) == pytest.approx(0.816060, abs=1e-6)
    assert power(0.05, epsilon=math.log(3)) == pytest.approx(0.15)


@given(st.floats(0, 1), st.floats(0, 5), st.floats(0, 0.5))
def test_power_is_a_rate_no_lower_than_a_guess(alpha, epsilon, delta):
    assert alpha - 1e-12 <= power(alpha, epsilon=epsilon, delta=delta) <= 1


def test_a_composition_is_bounded_by_what_each_of_its_curves_says():
    pure = Composition.of([Pure(epsilon=1.0)])
    curve = curve_of(lambda d: pure.epsilon(d)[1])
    assert curve_power(0.05, curve) <= power(0.05, epsilon=1.0) + 1e-12
    gaussian = Composition.of([Gaussian(mu=0.5)])
    curve = curve_of(lambda d: gaussian.epsilon(d)[1])
    bound = curve_power(0.05, curve)
    assert gaussian_power(0.05, mu=0.5) <= bound < gaussian_power(0.05, mu=0.5) + 0.01
    together = gaussian_power(0.05, mu=1.5)
    assert together <= curve_power(0.05, curve, members=3) < together + 0.05


@given(st.floats(0, 1), st.floats(0, 3), st.integers(1, 5))
def test_the_view_of_gaussians_is_that_of_their_law_and_never_below_it(alpha, mu, members):
    spent = Composition.of([Gaussian(mu=mu)])
    curve = []  # nothing else is known
    found, exact = (
        spent_power(alpha, spent, curve, members=members),
        gaussian_power(alpha, mu=members * mu),
    )
    assert exact - 1e-12 <= found <= min(1.0, exact + 1e-9)
    assert proved_power(alpha, mu=mu, slack=0.01) >= min(1.0, proved_power(alpha, mu=mu) + 0.01)


@pytest.mark.parametrize("members", [2, 5])
def test_a_groups_delta_bounds_the_gaussians(members):
    mu, epsilon = 0.3, 0.5
    delta = gaussian_delta(mu, epsilon)
    total, bound = group_approximate(epsilon, delta, members)
    assert total == members * epsilon
    assert gaussian_delta(mu * members, total) <= bound
    assert bound == pytest.approx(delta * np.expm1(members * epsilon) / np.expm1(epsilon))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: power(1.5, epsilon=1.0),
        lambda: power(0.1, epsilon=math.inf),
        lambda: power(math.nan, epsilon=1.0),
        lambda: group_approximate(0.1, 0.0, 0),
        lambda: group_approximate(0.1, 0.0, True),
    ],
)
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match="Expected"):
        wrong()
