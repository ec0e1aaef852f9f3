"""What an attacker finds at a rate of false alarms, and what a group costs."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from parley.privacy.accounting.attack_power import GROUP_SIZES, compute_attack_power
from parley.privacy.accounting.attack_power import compute_gaussian_power as proved_power
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.gaussian_curve import compute_gaussian_delta
from parley.privacy.accounting.group_privacy import compute_group_guarantee
from parley.privacy.accounting.privacy_events import GaussianEvent, PoissonSampledGaussian, Pure
from parley.privacy.accounting.tradeoff_bounds import (
    compute_curve_power,
    compute_power,
    compute_renyi_power,
    sample_curve,
)
from parley.privacy.calibration.inverse_curves import compute_gaussian_mu
from parley.privacy.mechanisms.discrete_gaussian import DiscreteGaussian
from parley.privacy.mechanisms.gaussian import Gaussian as RoundedGaussian
from parley.privacy.mechanisms.laplace import Laplace
from parley.privacy.sampling.random_stream import NoiseStream
from parley.server.statements.attack_rate_text import format_percent


def gaussian_power(alpha, *, mu):
    """Φ(Φ⁻¹(α) + μ) (Dong, Roth & Su 2022)."""
    return float(ndtr(ndtri(alpha) + mu))


def test_known_answers():
    assert [gaussian_power(0.05, mu=mu) for mu in (0.5, 1.0, 2.0)] == pytest.approx(
        [0.126135, 0.259511, 0.638760], abs=1e-6
    )
    assert compute_power(0.05, epsilon=1.0) == pytest.approx(0.135914, abs=1e-6)
    assert compute_power(0.5, epsilon=1.0) == pytest.approx(0.816060, abs=1e-6)
    assert compute_power(0.05, epsilon=math.log(3)) == pytest.approx(0.15)


@given(st.floats(0, 1), st.floats(0, 5), st.floats(0, 0.5))
def test_power_is_a_rate_no_lower_than_a_guess(alpha, epsilon, delta):
    assert alpha - 1e-12 <= compute_power(alpha, epsilon=epsilon, delta=delta) <= 1


def test_a_composition_is_bounded_by_what_each_of_its_curves_says():
    pure = Composition.from_events([Pure(epsilon=1.0)])
    curve = sample_curve(lambda d: pure.compute_lowest_epsilon(d)[1])
    assert compute_curve_power(0.05, curve) <= compute_power(0.05, epsilon=1.0) + 1e-12
    gaussian = Composition.from_events([GaussianEvent(mu=0.5)])
    curve = sample_curve(lambda d: gaussian.compute_lowest_epsilon(d)[1])
    bound = compute_curve_power(0.05, curve)
    assert gaussian_power(0.05, mu=0.5) <= bound < gaussian_power(0.05, mu=0.5) + 0.01
    together = gaussian_power(0.05, mu=1.5)
    assert together <= compute_curve_power(0.05, curve, members=3) < together + 0.05


@settings(max_examples=30)
@given(st.floats(0, 1), st.floats(0, 3), st.integers(1, 5))
def test_what_gaussians_tell_is_that_of_their_law_and_never_below_it(alpha, mu, members):
    spent = Composition.from_events([GaussianEvent(mu=mu)])
    exact = gaussian_power(alpha, mu=members * mu)
    assert (
        exact - 1e-12
        <= compute_attack_power(spent, members=members, alpha=alpha)
        <= min(1.0, exact + 1e-9)
    )
    assert proved_power(alpha, mu=mu, distance=0.01) >= min(1.0, proved_power(alpha, mu=mu) + 0.01)


def test_what_is_found_adds_up_over_releases_and_members_as_each_law_does():
    laplace, two = [Pure(epsilon=0.5)], [Pure(epsilon=0.25)] * 2
    assert compute_attack_power(Composition.from_events(laplace)) == pytest.approx(
        0.05 * math.exp(0.5)
    )
    assert compute_attack_power(Composition.from_events(two)) == pytest.approx(0.05 * math.exp(0.5))
    assert compute_attack_power(Composition.from_events(two), members=2) == pytest.approx(
        0.05 * math.exp(1)
    )
    gaussians = Composition.from_events([GaussianEvent(mu=0.3), GaussianEvent(mu=0.4)])
    for members in GROUP_SIZES:
        exact = gaussian_power(0.05, mu=0.5 * members)
        assert compute_attack_power(gaussians, members=members) == pytest.approx(exact, abs=1e-9)
    # k²ρ beats k steps along the curve where ρ is all that is known, or less than ε²/2.
    known = Composition.from_events([Pure(epsilon=0.5, rho=0.03)])
    assert compute_attack_power(known, members=5) == compute_renyi_power(0.05, rho=0.03 * 25) < 0.5
    assert compute_attack_power(Composition()) == pytest.approx(0.05, abs=1e-9)


@given(st.floats(0, 1), st.floats(0, 10), st.floats(0, 0.5))
def test_what_renyi_divergence_allows_is_a_rate_no_lower_than_what_a_gaussian_tells(
    alpha, mu, slack
):
    bound = compute_renyi_power(alpha, rho=mu * mu / 2, distance=slack)
    assert gaussian_power(alpha, mu=mu) <= bound + 1e-12 <= 1 + 1e-12


MOVED, DRAWS = 10, 100_000
LAWS = {
    "gaussian": lambda scale: RoundedGaussian(sensitivity=MOVED, dimension=1, sigma=scale),
    "discrete": lambda scale: DiscreteGaussian(sensitivity=MOVED, dimension=1, sigma=scale),
    "laplace": lambda scale: Laplace(
        sensitivity=MOVED, sensitivity_l1=MOVED, dimension=1, epsilon=MOVED / scale
    ),
}


@pytest.mark.parametrize("members", GROUP_SIZES[:3])
@pytest.mark.parametrize(
    ("law", "tight"), [("gaussian", True), ("discrete", False), ("laplace", True)]
)
def test_the_best_attack_on_a_released_count_finds_no_more_than_is_said(law, tight, members):
    """The likelihood ratio of these laws grows with what is seen: the best test is a threshold."""
    stream = NoiseStream.from_seed(7)

    def attacked(scale):
        noise = LAWS[law](scale).draw_many(DRAWS, stream)[:, 0]
        threshold = np.quantile(noise, 0.95)
        # Where several draws lie at the threshold, a coin makes up the rate.
        above, at = (noise > threshold).mean(), (noise == threshold).mean()
        seen = noise + members * MOVED
        return (seen > threshold).mean() + (0.05 - above) / at * (seen == threshold).mean()

    said = compute_attack_power(Composition.from_events([LAWS[law](40.0).event()]), members=members)
    deviation = 5 * math.sqrt(0.25 / DRAWS)
    assert attacked(40.0) <= said + deviation
    if tight:  # of a discrete Gaussian ρ alone is proved
        assert said - deviation <= attacked(40.0)
        assert attacked(40.0 * 2 / 3) > said + deviation


def test_the_table_for_who_decides_is_what_is_computed():
    page = (Path(__file__).parents[3] / "docs/officers.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ε = ([\d.]+) \|(.+)\|$", page, re.MULTILINE)
    assert len(rows) == 6
    for epsilon, cells in rows:
        spent = Composition.from_events(
            [GaussianEvent(mu=compute_gaussian_mu(float(epsilon), 1e-5))]
        )
        expected = [
            format_percent(compute_attack_power(spent, members=members)) for members in GROUP_SIZES
        ]
        assert [cell.strip() for cell in cells.split("|")] == expected


def test_the_best_attack_on_steps_of_dp_sgd_finds_no_more_than_is_said():
    """A record's gradient is C, or absent: each step (1 − q)·N(0, σ²) + q·N(1, σ²), or N(0, σ²)."""
    rate, sigma, steps, draws = 0.1, 1.0, 20, 50_000
    generator = np.random.default_rng(5)

    def evidence(present, sigma):
        batch = generator.random((draws, steps)) < rate if present else 0.0
        seen = generator.normal(size=(draws, steps)) * sigma + batch
        return np.log1p(rate * np.expm1((2 * seen - 1) / (2 * sigma**2))).sum(1)

    def attacked(sigma):
        threshold = np.quantile(evidence(False, sigma), 0.95)
        return (evidence(True, sigma) > threshold).mean()

    step = PoissonSampledGaussian(
        sampling_rate=rate, noise_multiplier=sigma, neighbouring="add-or-remove-one"
    )
    said = compute_attack_power(Composition().add(step, count=steps))
    assert attacked(sigma) <= said + 0.01 < attacked(sigma * 2 / 3)


@pytest.mark.parametrize("members", [2, 5])
def test_a_groups_delta_bounds_the_gaussians(members):
    mu, epsilon = 0.3, 0.5
    delta = compute_gaussian_delta(mu, epsilon)
    total, bound = compute_group_guarantee(epsilon, delta, members)
    assert total == members * epsilon
    assert compute_gaussian_delta(mu * members, total) <= bound
    assert bound == pytest.approx(delta * np.expm1(members * epsilon) / np.expm1(epsilon))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: compute_power(1.5, epsilon=1.0),
        lambda: compute_power(0.1, epsilon=math.inf),
        lambda: compute_power(math.nan, epsilon=1.0),
        lambda: compute_renyi_power(0.1, rho=-1.0),
        lambda: compute_attack_power(Composition(), members=0),
        lambda: compute_group_guarantee(0.1, 0.0, 0),
        lambda: compute_group_guarantee(0.1, 0.0, True),
    ],
)
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match="Expected"):
        wrong()
