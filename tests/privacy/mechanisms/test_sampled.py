"""Noise on sampled sums: what it draws is what it says, and what it costs are the known figures."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.events import Gaussian, PoissonSampledGaussian
from parley.privacy.calibration.calibration import calibrate
from parley.privacy.mechanisms.sampled import SampledGaussian
from parley.privacy.sampling.stream import NoiseStream

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
    account = Composition.of([own.event()]).epsilons(1e-5)
    assert account["pld"] == pytest.approx(epsilon, abs=1e-4)


def test_a_party_is_hidden_by_the_known_noise_without_amplification():
    """ε = 2, T = 100, replace-one: σ/S = 39.87625; with the party zeroed out half of that."""
    found = calibrate(
        law="gaussian", calibration="exact", epsilon=2.0, delta=1e-5, rounds=100,
        sensitivity=2 * GRID, dimension=10, accepted=("gaussian",),
    )  # fmt: skip
    assert found.scale / GRID == pytest.approx(39.87625, abs=1e-4)
    own = noise(found.scale / GRID, rate=1.0, steps=10, relation="replace-one")
    ten = Composition.empty().add(own.event(), count=10)
    assert 1.999 < ten.epsilon(1e-5)[1] <= 2.0 * (1 + 1e-9)


def test_its_event_is_that_many_subsampled_steps_and_one_gaussian_at_rate_one():
    sampled = noise(steps=7, relation="replace-one")
    assert list(sampled.event().leaves()) == [
        (
            PoissonSampledGaussian(
                sampling_rate=0.05, noise_multiplier=3.2, neighbouring="replace-one"
            ),
            7,
        )
    ]
    ((whole, count),) = noise(steps=4, rate=1.0).event().leaves()
    assert isinstance(whole, Gaussian)
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
