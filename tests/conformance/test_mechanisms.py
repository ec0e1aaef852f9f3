"""What every noise law promises. A new one subclasses `MechanismConformance`: its class alone."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from parley.privacy.accounting.composition import Composition
from parley.privacy.mechanisms.discrete_gaussian import DiscreteGaussian
from parley.privacy.mechanisms.gaussian import Gaussian, GaussianLaw
from parley.privacy.mechanisms.laplace import (
    L2Laplace,
    Laplace,
    LaplaceAsPrinted,
    LaplaceL1,
    LaplaceLaw,
)
from parley.privacy.mechanisms.registry import MECHANISMS
from parley.privacy.sampling.random_stream import NoiseStream

GRID = 2.0**12
"""Sensitivity in grid units where a test draws: rounding is small beside it."""


class MechanismConformance:
    """
    Attributes:
        kind: the class of the law.
    """

    kind: ClassVar[type[GaussianLaw] | type[LaplaceLaw]]

    def law(self, *, sensitivity=1.0, size=2.0, dimension=4):
        """`size` is σ/Δ of a Gaussian, 1/ε of a Laplace."""
        size = (
            {"sigma": sensitivity * size}
            if issubclass(self.kind, GaussianLaw)
            else {"epsilon": 1 / size}
        )
        return self.kind(sensitivity=sensitivity, dimension=dimension, **size)

    def draws(self, count, **shape):
        law = self.law(sensitivity=GRID, **shape)
        drawn = [law.draw(NoiseStream.from_seed(7, law.law, i)) for i in range(count)]
        return law, np.stack(drawn)

    @settings(
        max_examples=40,
        deadline=None,
        suppress_health_check=[HealthCheck.differing_executors],
    )
    @given(power=st.integers(-20, 20), size=st.floats(0.1, 100.0), dimension=st.integers(1, 300))
    def test_scale_follows_the_unit_and_the_event_does_not(self, power, size, dimension):
        one = self.law(size=size, dimension=dimension)
        other = self.law(sensitivity=2.0**power, size=size, dimension=dimension)
        unit = 2.0**power
        assert other.scale == pytest.approx(one.scale * unit, rel=1e-14)
        assert other.expected_norm() == pytest.approx(one.expected_norm() * unit, rel=1e-13)
        assert other.noise_tail(1e-9) == pytest.approx(one.noise_tail(1e-9) * unit, rel=1e-13)
        assert other.event().sampler_distance == one.event().sampler_distance
        rho = float(one.event().exact_rho)
        assert float(other.event().exact_rho) == pytest.approx(rho, rel=1e-14)

    def test_draws_have_the_stated_size_and_not_two_thirds_or_three_halves(self):
        law, draws = self.draws(300, size=3.0, dimension=40)
        assert draws.shape == (300, 40)
        assert draws.dtype == np.int64
        rms = math.sqrt((draws.astype(float) ** 2).sum(axis=1).mean())

        def accepted(expected):
            return abs(rms / expected - 1) < 0.08

        assert accepted(law.expected_norm())
        assert not accepted(law.expected_norm() * 2 / 3)
        assert not accepted(law.expected_norm() * 3 / 2)
        assert np.abs(draws).max() <= law.noise_tail(1e-6) + 0.5

    def test_one_seed_gives_the_same_noise_again_and_another_seed_does_not(self):
        law = self.law(sensitivity=GRID, dimension=40)
        first, again, other = (law.draw(NoiseStream.from_seed(seed)) for seed in (1, 1, 2))
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)

    def test_many_draws_at_once_are_of_the_law_of_one(self):
        law = self.law(sensitivity=GRID, size=1.5, dimension=3)
        for seed in range(20):
            one, first = law.draw, law.draw_many(1, NoiseStream.from_seed(seed))[0]
            assert np.array_equal(one(NoiseStream.from_seed(seed)), first)
        many = law.draw_many(30_000, NoiseStream.from_seed(3, law.law))
        assert many.shape == (30_000, 3)
        assert law.draw_many(0, NoiseStream.from_seed(3)).shape == (0, 3)
        single = self.draws(3000, size=1.5, dimension=3)[1]
        # Every coordinate, and the length, which tells a σ that rows share from one of their own.
        for view in (lambda z: z[:, 0], lambda z: z[:, 2], lambda z: np.linalg.norm(z, axis=1)):
            assert ks_2samp(view(many), view(single)).pvalue > 1e-6
            assert ks_2samp(view(many), view(single) * 1.5).pvalue < 1e-6

    def test_two_neighbours_are_as_hard_to_tell_apart_as_the_event_says(self):
        """Thresholds on one coordinate, at δ = 0.1; half the noise fails the same check."""
        law, draws = self.draws(3000, size=1.0, dimension=1)
        epsilon = Composition.from_events([law.event()]).compute_lowest_epsilon(0.1)[1]
        margin = 4 * math.sqrt(0.25 / len(draws)) * (1 + math.exp(epsilon))
        assert told_apart(draws, epsilon) <= 0.1 + margin
        assert told_apart(draws / 2, epsilon) > 0.1 + margin

    @pytest.mark.parametrize("dimension", [1, 3, 50])
    def test_tails_hold_as_often_as_stated_and_are_not_loose(self, dimension):
        law, draws = self.draws(1000, size=1.0, dimension=dimension)
        largest = np.abs(draws).max(axis=1)
        assert (largest > law.noise_tail(0.2) + 0.5).mean() < 0.2 + 0.04
        assert law.noise_tail(0.01) < 3 * np.quantile(largest, 0.99)
        assert law.noise_tail(1e-300) < math.inf

    @pytest.mark.parametrize("probability", [0.0, 1.0, math.nan])
    def test_tails_want_a_probability(self, probability):
        with pytest.raises(ValueError, match="Expected 0 < probability < 1"):
            self.law().noise_tail(probability)

    def test_it_is_a_frozen_fact_that_describes_itself_in_a_sentence(self):
        law = self.law()
        assert law.describe().endswith(".")
        assert "\n" not in law.describe()
        with pytest.raises(dataclasses.FrozenInstanceError):
            law.sensitivity = 2.0

    @pytest.mark.parametrize(
        "change",
        [
            {"sensitivity": 0.0},
            {"sensitivity": math.nan},
            {"sensitivity": math.inf},
            {"dimension": 0},
            {"dimension": 2.0},
            {"dimension": True},
            {"size": -1.0},
            {"size": math.nan},
        ],
    )
    def test_bad_values_are_refused(self, change):
        with pytest.raises(ValueError, match=r"^Expected .*, got "):
            self.law(**change)

    def test_it_says_whether_its_sampler_has_slack(self):
        assert self.kind.has_sampler_distance == (self.law().event().sampler_distance > 0)


def told_apart(draws, epsilon):
    """The largest P[z + Δ > t] − e^ε·P[z > t] over thresholds t: δ at ε is no lower."""
    z = np.sort(draws.ravel())
    below = np.searchsorted(z, z, side="right") / z.size
    shifted = np.searchsorted(z, z + GRID, side="right") / z.size
    return float(np.max((1 - below) - math.exp(epsilon) * (1 - shifted)))


class TestGaussian(MechanismConformance):
    kind = Gaussian


class TestDiscreteGaussian(MechanismConformance):
    kind = DiscreteGaussian


class TestL2Laplace(MechanismConformance):
    kind = L2Laplace


class TestLaplaceL1(MechanismConformance):
    kind = LaplaceL1


class TestLaplaceAsPrinted(MechanismConformance):
    kind = LaplaceAsPrinted


class TestLaplace(MechanismConformance):
    kind = Laplace

    def law(self, *, sensitivity=1.0, size=2.0, dimension=4):
        """All coordinates move alike: the largest Δ₁ that Δ₂ allows."""
        return Laplace(
            sensitivity=sensitivity,
            sensitivity_l1=sensitivity * math.sqrt(dimension),
            dimension=dimension,
            epsilon=1 / size,
        )


def test_every_mechanism_is_held_to_it():
    held = {kind.kind.law: kind.kind for kind in MechanismConformance.__subclasses__()}
    assert held == {**MECHANISMS, "laplace": Laplace}
