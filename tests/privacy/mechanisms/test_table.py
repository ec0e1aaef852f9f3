"""The noise laws, on sampled sums too: known answers, charges; the rest is in tests/conformance."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.privacy.accounting import privacy_events
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.gaussian_curve import compute_cks20_epsilon
from parley.privacy.accounting.privacy_events import PoissonSampledGaussian
from parley.privacy.calibration.noise_calibration import calibrate
from parley.privacy.mechanisms.discrete_gaussian import DiscreteGaussian
from parley.privacy.mechanisms.gaussian import Gaussian
from parley.privacy.mechanisms.laplace import L2Laplace, LaplaceAsPrinted, LaplaceL1
from parley.privacy.mechanisms.subsampled_gaussian import SampledGaussian
from parley.privacy.sampling.random_stream import NoiseStream
from parley.privacy.sampling.rounded_gaussian import DISTANCE_PER_COORDINATE

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
    total = Composition().add(event)
    assert total.compute_lowest_epsilon(1e-5) == ("cks20", pytest.approx(2.16572, rel=3e-6))
    assert total.compute_lowest_epsilon(0.0)[1] == event.epsilon


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
    assert gaussian == privacy_events.Approximate(
        event=privacy_events.GaussianEvent(mu=0.05), delta=7 * DISTANCE_PER_COORDINATE
    )
    assert DiscreteGaussian(sigma=20.0, **shape).event() == privacy_events.Zcdp(rho=0.00125)
    l2 = L2Laplace(epsilon=0.5, **shape).event()
    assert l2.event == privacy_events.Pure(epsilon=0.5)
    assert 0 < l2.delta <= 2.0**-40
    l1 = LaplaceL1(epsilon=0.5, **shape).event()
    assert l1 == privacy_events.Pure(epsilon=0.5, rho=l1.rho)
    assert l1.rho == pytest.approx(0.25 / 14)


def test_laplace_l1_rho_is_the_sum_over_coordinates():
    noise = LaplaceL1(sensitivity=1.0, epsilon=0.5, dimension=16)
    worst = 16 * ((1 / 4) / noise.scale) ** 2 / 2  # Δ spread evenly
    assert float(noise.event().exact_rho) == pytest.approx(worst, rel=1e-12)
    assert compute_cks20_epsilon(float(noise.event().exact_rho), 1e-5) < 0.5


@settings(max_examples=60, deadline=None)
@given(sensitivity=st.floats(1e-6, 1e9), epsilon=st.floats(1e-6, 1e3))
def test_the_scale_is_never_below_what_the_event_charges(sensitivity, epsilon):
    noise = L2Laplace(sensitivity=sensitivity, epsilon=epsilon, dimension=3)
    assert Fraction(noise.scale) * Fraction(epsilon) >= Fraction(sensitivity)
    gaussian = Gaussian(sensitivity=sensitivity, sigma=epsilon, dimension=3)
    assert Fraction(gaussian.event().event.mu) * Fraction(epsilon) >= Fraction(sensitivity)


GRID = 2.0**20


def noise(sigma=3.2, **changes):
    given = {"rate": 0.05, "steps": 1000, "relation": "add-or-remove-one", **changes}
    lengths = 2 if given["relation"] == "replace-one" else 1
    return SampledGaussian(
        sensitivity=lengths * GRID,
        dimension=given.get("dimension", 10),
        sigma=sigma * GRID,
        sampling_rate=given["rate"],
        steps=given["steps"],
        neighbouring=given["relation"],
    )


@pytest.mark.parametrize(
    ("shares", "of", "epsilon"),
    [(8, 8, 2.05794), (10, 8, 1.80378), (9, 8, 1.91914), (1, 8, 8.74115)],
)
def test_a_thousand_steps_cost_the_known_figures(shares, of, epsilon):
    """σ = 3.2, q = .05, δ = 1e-5, by PLD; and with more, or fewer, shares than were charged."""
    own = noise(3.2 * math.sqrt(shares / of))
    account = Composition.from_events([own.event()]).compute_epsilons(1e-5)
    assert account["pld"] == pytest.approx(epsilon, abs=1e-4)


def test_a_party_is_hidden_by_the_known_noise_without_amplification():
    """ε = 2, T = 100, replace-one: σ/S = 39.87625; with the party zeroed out half of that."""
    found = calibrate(
        law="gaussian", calibration="exact", epsilon=2.0, delta=1e-5, rounds=100,
        sensitivity=2 * GRID, dimension=10,
    )  # fmt: skip
    assert found.scale / GRID == pytest.approx(39.87625, abs=1e-4)
    own = noise(found.scale / GRID, rate=1.0, steps=10, relation="replace-one")
    ten = Composition().add(own.event(), count=10)
    assert 1.999 < ten.compute_lowest_epsilon(1e-5)[1] <= 2.0 * (1 + 1e-9)


def test_its_event_is_that_many_subsampled_steps_and_one_gaussian_at_rate_one():
    sampled = noise(steps=7, relation="replace-one")
    assert list(sampled.event().iterate_leaves()) == [
        (
            PoissonSampledGaussian(
                sampling_rate=0.05, noise_multiplier=3.2, neighbouring="replace-one"
            ),
            7,
        )
    ]
    ((whole, count),) = noise(steps=4, rate=1.0).event().iterate_leaves()
    assert isinstance(whole, privacy_events.GaussianEvent)
    assert count == 1
    assert whole.mu == pytest.approx(2 / 3.2)


def test_the_multiplier_that_is_charged_is_never_more_than_the_noise():
    for seed in range(200):
        sigma, length = np.random.default_rng(seed).uniform(0.1, 1e6, 2)
        own = dataclasses.replace(noise(), sensitivity=length, sigma=sigma)
        assert Fraction(own.multiplier) * Fraction(length) <= Fraction(sigma)
        assert own.multiplier == pytest.approx(sigma / length, rel=1e-15)


def test_a_draw_is_one_sums_noise_and_neither_two_thirds_nor_three_halves_of_it():
    own = noise(dimension=4000)
    drawn = own.draw(NoiseStream.from_seed(1))
    assert drawn.dtype == np.int64
    ratio = math.sqrt((drawn.astype(float) ** 2).mean()) / own.scale
    assert abs(ratio - 1) < 0.05
    assert abs(ratio / (2 / 3) - 1) > 0.4
    assert np.abs(drawn).max() <= own.noise_tail(1e-6) + 0.5
    assert own.expected_norm() == pytest.approx(math.sqrt(4000) * own.scale)


@pytest.mark.parametrize(
    "change",
    [{"sigma": 0.0}, {"sigma": math.nan}, {"steps": 0}, {"steps": True}, {"sampling_rate": 0.0},
     {"sampling_rate": 1.5}, {"neighbouring": "none"}, {"dimension": 0}],
)  # fmt: skip
def test_bad_values_are_refused(change):
    with pytest.raises(ValueError, match=r"Expected|valid"):
        dataclasses.replace(noise(), **change)
