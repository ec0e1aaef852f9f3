"""The noise laws: known answers and what each charges; the rest is in tests/conformance."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.privacy.accounting import events
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.gaussian_curve import cks20_epsilon
from parley.privacy.mechanisms.gaussian import DiscreteGaussian, Gaussian
from parley.privacy.mechanisms.laplace import L2Laplace, LaplaceAsPrinted, LaplaceL1
from parley.privacy.sampling.gaussian import DISTANCE_PER_COORDINATE

# m=100 parties of n=500 records, λ=.01, G=1, ε=.5
SENSITIVITY = 2 / (100 * 500 * 0.01)


@pytest.mark.parametrize(
    ("noise", "norm"),
    [
        (L2Laplace(sensitivity=SENSITIVITY, epsilon=0.5, dimension=10), 0.0839047),
        (LaplaceAsPrinted(sensitivity=SENSITIVITY, epsilon=0.5, dimension=10), 0.0357771),
        (LaplaceL1(sensitivity=SENSITIVITY, epsilon=0.5, dimension=10), 0.113137),
        (Gaussian(sensitivity=SENSITIVITY, sigma=SENSITIVITY * 7.031827, dimension=10), 0.0889464),
    ],
)
def test_expected_norms_are_as_specified(noise, norm):
    assert noise.expected_norm() == pytest.approx(norm, rel=5e-6)


def test_as_printed_charges_the_truth():
    event = LaplaceAsPrinted(sensitivity=1.0, epsilon=0.5, dimension=104).event()
    assert event.epsilon == pytest.approx(5.09902, rel=2e-6)
    assert event.epsilon**2 >= 104 * 0.25
    assert float(event.exact_rho) == 0.125
    total = Composition.empty().add(event)
    assert total.epsilon(1e-5) == ("cks20", pytest.approx(2.16572, rel=3e-6))
    assert total.epsilon(0.0)[1] == event.epsilon


def test_as_printed_is_not_epsilon_private():
    """d=10, ε=1, shift Δ/√10 in every coordinate: P[all ≤ 0] differs by e^√10, not by e."""
    scale = LaplaceAsPrinted(sensitivity=1.0, epsilon=1.0, dimension=10).scale
    with_record = 0.5**10
    without = (0.5 * math.exp(-1 / (math.sqrt(10) * scale))) ** 10
    assert with_record == pytest.approx(9.76563e-4, rel=1e-5)
    assert without == pytest.approx(4.13371e-5, rel=1e-5)
    assert math.log(with_record / without) == pytest.approx(math.sqrt(10))


def test_events_carry_only_what_is_proved():
    shape = {"sensitivity": 1.0, "dimension": 7}
    gaussian = Gaussian(sigma=20.0, **shape).event()
    assert gaussian == events.Approximate(
        event=events.Gaussian(mu=0.05), delta=7 * DISTANCE_PER_COORDINATE
    )
    assert DiscreteGaussian(sigma=20.0, **shape).event() == events.Zcdp(rho=0.00125)
    l2 = L2Laplace(epsilon=0.5, **shape).event()
    assert l2.event == events.Pure(epsilon=0.5)
    assert 0 < l2.delta <= 2.0**-40
    l1 = LaplaceL1(epsilon=0.5, **shape).event()
    assert l1 == events.Pure(epsilon=0.5, rho=l1.rho)
    assert l1.rho == pytest.approx(0.25 / 14)


def test_laplace_l1_rho_is_the_sum_over_coordinates():
    noise = LaplaceL1(sensitivity=1.0, epsilon=0.5, dimension=16)
    worst = 16 * ((1 / 4) / noise.scale) ** 2 / 2  # Δ spread evenly
    assert float(noise.event().exact_rho) == pytest.approx(worst, rel=1e-12)
    assert cks20_epsilon(float(noise.event().exact_rho), 1e-5) < 0.5


@settings(max_examples=60, deadline=None)
@given(sensitivity=st.floats(1e-6, 1e9), epsilon=st.floats(1e-6, 1e3))
def test_the_scale_is_never_below_what_the_event_charges(sensitivity, epsilon):
    noise = L2Laplace(sensitivity=sensitivity, epsilon=epsilon, dimension=3)
    assert Fraction(noise.scale) * Fraction(epsilon) >= Fraction(sensitivity)
    gaussian = Gaussian(sensitivity=sensitivity, sigma=epsilon, dimension=3)
    assert Fraction(gaussian.event().event.mu) * Fraction(epsilon) >= Fraction(sensitivity)
