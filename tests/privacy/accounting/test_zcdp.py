"""The Gaussian curve and the zCDP conversions: known answers, direction, extremes, cost."""

import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.privacy.accounting.gaussian_curve import (
    compute_cks20_epsilon,
    compute_gaussian_delta,
    compute_gaussian_epsilon,
    compute_zcdp_epsilon,
)
from parley.privacy.calibration.inverse_curves import (
    compute_cks20_rho,
    compute_gaussian_mu,
    compute_zcdp_rho,
)

DELTAS = [1e-300, 1e-100, 1e-12, 1e-5, 1e-3, 0.1, 0.5, 0.999]
EPSILONS = [1e-6, 1e-3, 0.5, 1.0, 12.0, 100.0, 1e4]
CONVERSIONS = {
    "exact": (compute_gaussian_epsilon, compute_gaussian_mu),
    "zcdp": (compute_zcdp_epsilon, compute_zcdp_rho),
    "cks20": (compute_cks20_epsilon, compute_cks20_rho),
}

deltas = st.floats(-300, -0.001).map(lambda power: 10.0**power)
epsilons = st.floats(-6, 4).map(lambda power: 10.0**power)
sizes = st.floats(-8, 4).map(lambda power: 10.0**power)


def reference_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """Theorem 8 of Balle & Wang 2018, literally, in 400 digits."""
    with mpmath.workdps(400):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)

        def phi(x: mpmath.mpf) -> mpmath.mpf:
            return mpmath.erfc(-x / mpmath.sqrt(2)) / 2

        return phi(m / 2 - e / m) - mpmath.exp(e) * phi(-m / 2 - e / m)


def reference_cks20(rho: float, delta: float) -> float:
    """The minimum over a fine grid of α − 1, in 50 digits: an upper end of the infimum."""
    with mpmath.workdps(50):
        r, log_inverse = mpmath.mpf(rho), -mpmath.log(mpmath.mpf(delta))

        def value(power: float) -> mpmath.mpf:
            alpha = 1 + mpmath.mpf(10) ** power
            return (
                alpha * r
                + (log_inverse - mpmath.log(alpha)) / (alpha - 1)
                + mpmath.log(1 - 1 / alpha)
            )

        best = min((value(p / 4), p / 4) for p in range(-40, 41))[1]
        for width in (0.25, 0.01, 1e-3, 1e-4):
            best = min(
                (value(best + width * k / 20), best + width * k / 20) for k in range(-20, 21)
            )[1]
        return float(max(0, value(best)))


def test_known_answers():
    for epsilon, delta in {0: 0.382925, 1: 0.126937, 2: 0.0209236, 4: 4.71224e-5}.items():
        assert compute_gaussian_delta(1.0, epsilon) == pytest.approx(delta, rel=4e-6)
    for epsilon, multiplier in ((0.5, 7.03183), (1.0, 3.73063), (12.0, 0.431644)):
        assert 1 / compute_gaussian_mu(epsilon, 1e-5) == pytest.approx(multiplier, rel=2e-6)
    assert compute_zcdp_epsilon(0.5, 1e-5) == pytest.approx(5.29853, abs=5e-6)
    assert compute_cks20_epsilon(0.5, 1e-5) == pytest.approx(4.72839, abs=5e-6)
    assert compute_gaussian_epsilon(1.0, 1e-5) == pytest.approx(4.37718, abs=5e-6)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_gaussian_epsilon_is_an_upper_end_close_to_the_truth(epsilon, delta):
    mu = compute_gaussian_mu(epsilon, delta)
    assert mu > 0
    returned = compute_gaussian_epsilon(mu, delta)
    assert returned <= epsilon
    assert reference_delta(mu, returned) <= delta
    # A μ a billionth larger no longer fits: the root was found, not merely bounded.
    assert reference_delta(mu * (1 + 1e-8), epsilon) > delta


@pytest.mark.parametrize("mu", [1e-12, 1e-6, 9.99e-4, 1e-3, 1.01e-3, 0.3, 5.0, 60.0])
@pytest.mark.parametrize("standard", [-2.0, -0.01, 0.0, 1.0, 6.0, 20.0, 37.0])
def test_gaussian_delta_agrees_with_400_digits(mu, standard):
    epsilon = max(0.0, mu * (mu / 2 + standard))
    expected = float(reference_delta(mu, epsilon))
    assert compute_gaussian_delta(mu, epsilon) == pytest.approx(expected, rel=1e-8, abs=1e-305)


@pytest.mark.parametrize("rho", [1e-12, 1e-6, 1e-3, 0.125, 0.5, 10.0, 1e4])
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-5, 0.1, 0.9])
def test_cks20_is_the_minimum_over_alpha_rounded_up(rho, delta):
    expected = reference_cks20(rho, delta)
    returned = compute_cks20_epsilon(rho, delta)
    assert returned == pytest.approx(expected, rel=1e-7, abs=1e-12)
    assert returned <= compute_zcdp_epsilon(rho, delta)


@settings(max_examples=150, deadline=None)
@given(mu=sizes, delta=deltas)
def test_exact_is_at_most_cks20_at_most_zcdp(mu, delta):
    rho = mu * mu / 2
    exact, cks20, zcdp = (
        compute_gaussian_epsilon(mu, delta),
        compute_cks20_epsilon(rho, delta),
        compute_zcdp_epsilon(rho, delta),
    )
    assert exact <= cks20 * (1 + 1e-9) + 1e-14
    assert cks20 <= zcdp


@settings(max_examples=100, deadline=None)
@given(size=sizes, factor=st.floats(1.0, 10.0), delta=deltas)
@pytest.mark.parametrize("name", CONVERSIONS)
def test_epsilon_grows_with_the_release_and_shrinks_with_delta(name, size, factor, delta):
    epsilon_of, _ = CONVERSIONS[name]
    here = epsilon_of(size, delta)
    assert 0 <= here < math.inf
    slack = 1e-12 * here + 1e-14
    assert epsilon_of(size * factor, delta) >= here - slack
    assert epsilon_of(size, min(0.999999, delta * factor)) <= here + slack


@settings(max_examples=60, deadline=None)
@given(epsilon=epsilons, delta=deltas)
@pytest.mark.parametrize("name", CONVERSIONS)
def test_inverses_meet_epsilon_from_below_and_tightly(name, epsilon, delta):
    epsilon_of, inverse = CONVERSIONS[name]
    size = inverse(epsilon, delta)
    assert epsilon_of(size, delta) <= epsilon
    assert epsilon_of(size * (1 + 1e-7), delta) > epsilon


@pytest.mark.parametrize("name", CONVERSIONS)
def test_extremes_have_answers(name):
    epsilon_of, inverse = CONVERSIONS[name]
    assert epsilon_of(0.0, 0.0) == epsilon_of(0.0, 0.5) == 0.0
    assert epsilon_of(1.0, 0.0) == math.inf
    assert inverse(1.0, 0.0) == 0.0
    for size in (5e-324, 1e-300, 1e-20, 1e20, 1e149, 1e200, 1.7e308, math.inf):
        for delta in (5e-324, 1e-300, 1e-5, 0.999, 1 - 2**-53):
            epsilon = epsilon_of(size, delta)
            assert epsilon >= 0
            assert not math.isnan(epsilon)
    for epsilon in (0.0, 1e-300, 1.0, 1e4, 1e200):
        for mu in (0.0, 5e-324, 1e-200, 1.0, 1e100, 1e200, math.inf):
            assert 0 <= compute_gaussian_delta(mu, epsilon) <= 1
    for epsilon in (0.0, 5e-324, 1e-300, 1e100):
        for delta in (5e-324, 1e-300, 1e-5, 0.999):
            size = inverse(epsilon, delta)
            assert 0 <= size < math.inf
            assert epsilon_of(size, delta) <= epsilon


@pytest.mark.parametrize("bad", [-1.0, math.nan])
def test_out_of_range_values_are_refused_with_their_number(bad):
    for epsilon_of, inverse in CONVERSIONS.values():
        with pytest.raises(ValueError, match=f"Expected .* got {bad}"):
            epsilon_of(bad, 1e-5)
        with pytest.raises(ValueError, match=f"Expected .* got {bad}"):
            inverse(bad, 1e-5)
        with pytest.raises(ValueError, match=f"Expected 0 ≤ delta < 1, got {bad}"):
            epsilon_of(1.0, bad)
        with pytest.raises(ValueError, match="Expected 0 ≤ delta < 1, got 1"):
            inverse(1.0, 1.0)
