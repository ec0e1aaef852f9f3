"""What every accountant promises. A new one subclasses `AccountantConformance`: events, no code."""

import math
from types import MappingProxyType
from typing import ClassVar

import pytest

from parley.privacy.accounting.accountants import ACCOUNTANTS
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.gaussian_curve import compute_gaussian_epsilon
from parley.privacy.accounting.privacy_events import (
    BernoulliSteps,
    GaussianEvent,
    PoissonSampledGaussian,
    PrivacyEvent,
    Pure,
    Zcdp,
)

STEP = PoissonSampledGaussian(
    sampling_rate=0.1, noise_multiplier=2.0, neighbouring="add-or-remove-one"
)
FULL_BATCH = PoissonSampledGaussian(
    sampling_rate=1.0, noise_multiplier=2.0, neighbouring="add-or-remove-one"
)
COIN = BernoulliSteps(probability=0.2, event=STEP, count=3)
DELTAS = (1e-9, 1e-5, 1e-2)


class AccountantConformance:
    """
    Attributes:
        name: the row of `ACCOUNTANTS`.
        supported: counted events that it is proved for.
        unsupported: counted events that it is not proved for.
        gaussian: the events, if it takes any, that cost exactly one Gaussian of μ = ½.
    """

    name: ClassVar[str]
    supported: ClassVar[tuple[dict[PrivacyEvent, int], ...]]
    unsupported: ClassVar[tuple[dict[PrivacyEvent, int], ...]] = ()
    gaussian: ClassVar[dict[PrivacyEvent, int] | None] = {GaussianEvent(mu=0.05): 100}

    def epsilon(self, counts, delta):
        return ACCOUNTANTS[self.name].curve(MappingProxyType(counts))(delta)

    def test_it_says_what_it_is_proved_for(self):
        accountant = ACCOUNTANTS[self.name]
        assert all(accountant.supports(counts) for counts in self.supported)
        assert not any(accountant.supports(counts) for counts in self.unsupported)

    def test_a_composition_reports_it_only_where_it_is_proved(self):
        def names(counts):
            return set(
                Composition(counts=MappingProxyType(counts), releases=1).compute_epsilons(1e-5)
            )

        assert all(self.name in names(counts) for counts in self.supported)
        assert all(self.name not in names(counts) for counts in self.unsupported)

    def test_epsilon_is_at_least_0_and_falls_as_delta_grows(self):
        for counts in self.supported:
            values = [self.epsilon(counts, delta) for delta in DELTAS]
            assert all(value >= 0 for value in values)
            assert values == sorted(values, reverse=True)

    def test_one_more_release_never_costs_less(self):
        for counts in self.supported:
            for event in counts:
                more = counts | {event: counts[event] + 1}
                assert self.epsilon(more, 1e-5) >= self.epsilon(counts, 1e-5) * (1 - 1e-12)

    def test_the_order_of_events_does_not_matter(self):
        for counts in self.supported:
            backwards = dict(reversed(counts.items()))
            assert self.epsilon(backwards, 1e-5) == self.epsilon(counts, 1e-5)

    def test_it_is_never_below_the_exact_curve_of_a_gaussian(self):
        if self.gaussian is None:
            pytest.skip(f"{self.name} takes no Gaussian")
        for delta in DELTAS:
            assert self.epsilon(self.gaussian, delta) >= compute_gaussian_epsilon(0.5, delta) * (
                1 - 1e-6
            )

    def test_no_finite_epsilon_at_delta_0_but_for_pure_events(self):
        for counts in self.supported:
            pure = all(isinstance(event, Pure) for event in counts)
            assert math.isinf(self.epsilon(counts, 0.0)) or pure


class TestExact(AccountantConformance):
    name = "exact"
    supported = ({GaussianEvent(mu=0.5): 1}, {GaussianEvent(mu=0.5): 3, GaussianEvent(mu=0.1): 7})
    unsupported = ({GaussianEvent(mu=0.5): 1, Zcdp(rho=0.1): 1}, {Pure(epsilon=1.0): 1}, {STEP: 1})


class TestCks20(AccountantConformance):
    name = "cks20"
    supported = (
        {GaussianEvent(mu=0.5): 1, Zcdp(rho=0.1): 2},
        {Pure(epsilon=1.0): 2},
        {STEP: 5, Pure(epsilon=0.1): 1},
        {COIN: 5, STEP: 5},
    )


class TestZcdp(AccountantConformance):
    name = "zcdp"
    supported = TestCks20.supported


class TestPure(AccountantConformance):
    name = "pure"
    supported = ({Pure(epsilon=0.5): 1}, {Pure(epsilon=0.5): 3, Pure(epsilon=0.1, rho=0.001): 7})
    unsupported = ({GaussianEvent(mu=0.5): 1}, {Pure(epsilon=0.5): 1, GaussianEvent(mu=0.5): 1})
    gaussian = None


class TestMixed(AccountantConformance):
    name = "mixed"
    supported = (
        {Pure(epsilon=0.5): 1, GaussianEvent(mu=0.5): 1},
        {Pure(epsilon=0.5): 2, Zcdp(rho=0.1): 1, GaussianEvent(mu=0.1): 1},
    )
    unsupported = ({Pure(epsilon=0.5): 1}, {GaussianEvent(mu=0.5): 1})
    gaussian: ClassVar = {GaussianEvent(mu=0.05): 100, Pure(epsilon=1e-9): 1}


class TestRdp(AccountantConformance):
    name = "rdp"
    supported = ({COIN: 9}, {STEP: 50, COIN: 9, GaussianEvent(mu=0.2): 1, Zcdp(rho=0.01): 1})
    unsupported = ({GaussianEvent(mu=0.5): 1},)
    gaussian: ClassVar = {FULL_BATCH: 1}


class TestPld(AccountantConformance):
    name = "pld"
    supported = ({COIN: 9}, {STEP: 50, COIN: 9, GaussianEvent(mu=0.2): 1, Pure(epsilon=0.1): 1})
    unsupported = ({GaussianEvent(mu=0.5): 1}, {COIN: 1, Zcdp(rho=0.01): 1})
    gaussian: ClassVar = {FULL_BATCH: 1}


def test_every_accountant_is_held_to_it():
    held = {kind.name for kind in AccountantConformance.__subclasses__()}
    assert held == set(ACCOUNTANTS)
